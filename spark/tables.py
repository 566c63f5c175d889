"""Tables that a job fills: files first, then one commit that says which files count and up to where.

A commit names the log and the position it reaches, so what is in the table is known from the table alone:
a batch that is published again changes nothing, and a job whose checkpoint is lost goes on behind the last
commit. A position is that of `[first, last)` ranges of the log, so commits follow one another.

    delta:PATH      a Delta table; the position is the version of the transaction of application penstock:LOG
    parquet:PATH    Parquet files under PATH/event_date=.../, and PATH/_penstock/LOG-POSITION.json for each
                    commit, which lists its files; what no commit lists does not count
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.spark.errors import SparkError, SparkOptionError
from penstock.spark.schema import SCHEMA_VERSION, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DataFile", "Table", "open_table", "table_schema"]

PARTITION: Final = "event_date"


@dataclass(frozen=True)
class DataFile:
    """One Parquet file of a table."""

    path: str
    """Relative to the table."""
    date: str
    """Of its rows (append_time, UTC): YYYY-MM-DD."""
    rows: int
    nbytes: int
    first: int
    """Of the positions in it, the least and the greatest."""
    last: int


class Table(Protocol):
    """What a job needs of a table format."""

    path: Path

    def position(self, log_id: str) -> int | None:
        """Behind the last record of this log that the table has; None: it has none."""

    def create(self, columns: Sequence[str]) -> None:
        """Make the table if there is none. Raises SparkError when it has other columns."""

    def publish(self, log_id: str, files: Sequence[DataFile], last: int) -> None:
        """Add files, in one step, and move the position to `last`."""

    def paths(self) -> list[str]:
        """The files that count, absolute."""

    def compact(self) -> str:
        """Make few files of many; says what was done."""


def open_table(uri: str) -> Table:
    """The table of a URI such as delta:/lake/traffic. Raises SparkOptionError."""
    kind, colon, path = uri.partition(":")
    if not colon or kind not in ("delta", "parquet") or not path:
        raise SparkOptionError("to", uri, "give delta:PATH or parquet:PATH")
    place = Path(path.removeprefix("//")).absolute()
    return DeltaFormat(place) if kind == "delta" else ParquetFormat(place)


def table_schema(columns: Sequence[str]) -> pa.Schema:
    """The table's columns with the one it is partitioned by."""
    import pyarrow as pa

    return arrow_schema(columns).append(pa.field(PARTITION, pa.date32()))


class DeltaFormat:
    """A Delta table, written by the package deltalake without the JVM; every Delta reader reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(str(self.path))

    def position(self, log_id: str) -> int | None:
        """See `Table`."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.path)):
            return None
        found: int | None = self._table().transaction_version(f"penstock:{log_id}")
        return found

    def create(self, columns: Sequence[str]) -> None:
        """See `Table`."""
        from deltalake import DeltaTable

        schema = table_schema(columns)
        self.path.mkdir(parents=True, exist_ok=True)
        table = DeltaTable.create(
            str(self.path),
            schema=schema,
            mode="ignore",
            partition_by=[PARTITION],
            description=f"penstock traffic, version {SCHEMA_VERSION}",
        )
        _same_columns(self.path, [field.name for field in table.schema().fields], schema.names)

    def publish(self, log_id: str, files: Sequence[DataFile], last: int) -> None:
        """See `Table`."""
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        actions: list[Any] = [
            AddAction(
                path=file.path,
                size=file.nbytes,
                partition_values={PARTITION: file.date},
                modification_time=int(time.time() * 1000),
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        table = self._table()
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            partition_by=[PARTITION],
            commit_properties=CommitProperties(app_transactions=[Transaction(f"penstock:{log_id}", last)]),
        )

    def paths(self) -> list[str]:
        """See `Table`."""
        return [str(uri).removeprefix("file://") for uri in self._table().file_uris()]

    def compact(self) -> str:
        """See `Table`."""
        done = self._table().optimize.compact()
        return f"{done['numFilesRemoved']} files became {done['numFilesAdded']}"


class ParquetFormat:
    """Parquet files and a commit file for each batch, for readers that know no table format."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._commits = path / "_penstock"

    def _read(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self._commits.glob("*.json"))]

    def position(self, log_id: str) -> int | None:
        """See `Table`."""
        return max((commit["last"] for commit in self._read() if commit["log"] == log_id), default=None)

    def files(self) -> list[DataFile]:
        """The files that count."""
        return [DataFile(**file) for commit in self._read() for file in commit["files"]]

    def paths(self) -> list[str]:
        """See `Table`."""
        return [str(self.path / file.path) for file in self.files()]

    def create(self, columns: Sequence[str]) -> None:
        """See `Table`."""
        self._commits.mkdir(parents=True, exist_ok=True)
        head = self._commits / "columns"
        try:
            _write_new(head, json.dumps(list(columns)))
        except FileExistsError:
            _same_columns(self.path, json.loads(head.read_text()), list(columns))

    def publish(self, log_id: str, files: Sequence[DataFile], last: int) -> None:
        """See `Table`."""
        for file in files:
            _sync(self.path / file.path)
        commit = {"log": log_id, "last": last, "files": [asdict(file) for file in files]}
        _write_new(self._commits / f"{log_id}-{last:020}.json", json.dumps(commit))

    def compact(self) -> str:
        """Remove the files of attempts that no commit lists and that are older than a day."""
        listed = {file.path for file in self.files()}
        gone = 0
        for path in self.path.glob(f"{PARTITION}=*/*.parquet"):
            old = time.time() - path.stat().st_mtime > 86400
            if old and str(path.relative_to(self.path)) not in listed:
                path.unlink()
                gone += 1
        return f"{gone} files that no commit lists were removed"


def _same_columns(path: Path, found: Sequence[str], wanted: Sequence[str]) -> None:
    if list(found) != list(wanted):
        raise SparkError(
            f"the table {path} has the columns {', '.join(found)}, not {', '.join(wanted)}",
            remedy="give the columns it has, or another table",
        )


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_new(path: Path, text: str) -> None:
    """Make a file whole, durably, or not at all. Raises FileExistsError."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with new.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(new, path)
        _sync(path.parent)
    finally:
        new.unlink(missing_ok=True)
