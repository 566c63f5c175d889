"""Parquet files and a commit file for each batch, for readers that know no table format.

PATH/event_date=YYYY-MM-DD/*.parquet
PATH/_penstock/columns                  name and type of each column
              /WHO-POSITION.json        a commit: {"log", "first", "last", "files"}
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.spark.locations import make_folder, write_new
from penstock.spark.tables.files import PARTITION, DataFile, sync_files
from penstock.spark.tables.table import same_columns, with_partition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Commit", "ParquetFormat"]

_ORPHAN_S: Final = 86400.0


@dataclass(frozen=True)
class Commit:
    """The rows that one commit added: [first, last) of `who`, which is all in `files`."""

    who: str
    first: int
    last: int
    files: tuple[DataFile, ...]


class ParquetFormat:
    """See `tables.Table`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = path / "_penstock"

    def positions(self, who: str) -> list[int]:
        """The positions that the commits of `who` reach, in order."""
        return sorted(int(path.stem.rpartition("-")[2]) for path in self._folder.glob(f"{who}-*.json"))

    def commit(self, who: str, last: int) -> Commit:
        """The commit that reaches `last`."""
        return _read(self._name(who, last))

    def _name(self, who: str, last: int) -> Path:
        return self._folder / f"{who}-{last:020}.json"

    def position(self, who: str) -> int | None:
        """See `Table`."""
        return max(self.positions(who), default=None)

    def files(self) -> list[DataFile]:
        """The files that count."""
        return [file for path in sorted(self._folder.glob("*.json")) for file in _read(path).files]

    def paths(self) -> list[str]:
        """See `Table`."""
        return [str(self.path / file.path) for file in self.files()]

    def create(self, schema: pa.Schema, moment: str = "append_time") -> None:
        """See `Table`."""
        columns = [f"{field.name} {field.type}" for field in with_partition(schema)]
        make_folder(self._folder)
        head = self._folder / "columns"
        try:
            write_new(head, json.dumps(columns))
        except FileExistsError:
            same_columns(self.path, json.loads(head.read_text()), columns)

    def publish(self, who: str, files: Sequence[DataFile], first: int, last: int) -> None:
        """See `Table`."""
        sync_files(self.path, files)
        commit = {"log": who, "first": first, "last": last, "files": [asdict(file) for file in files]}
        write_new(self._name(who, last), json.dumps(commit))

    def make_durable(self) -> None:
        """See `Table`: a commit is, before it has its name."""

    def compact(self) -> str:
        """Remove the files of attempts that no commit lists and that are older than a day."""
        listed = {file.path for file in self.files()}
        gone = 0
        for path in self.path.glob(f"{PARTITION}=*/*.parquet"):
            old = time.time() - path.stat().st_mtime > _ORPHAN_S
            if old and str(path.relative_to(self.path)) not in listed:
                path.unlink()
                gone += 1
        return f"{gone} files that no commit lists were removed"


def _read(path: Path) -> Commit:
    said = json.loads(path.read_text())
    return Commit(said["log"], said["first"], said["last"], tuple(DataFile(**file) for file in said["files"]))
