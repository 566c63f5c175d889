"""Rows to Parquet files of a table: what counts is what a commit of the table lists later (`tables`).

A file holds rows of one day, UTC, of one timestamp column; it lies under `event_date=YYYY-MM-DD/`, so readers
that know such folders prune by day.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.locations import is_local, make_folder, sync

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PARTITION", "DataFile", "sync_files", "write_files"]

PARTITION: Final = "event_date"
_ROW_GROUP_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class DataFile:
    """One Parquet file of a table."""

    path: str
    """Relative to the table."""
    date: str
    """Of its rows (UTC): YYYY-MM-DD."""
    rows: int
    nbytes: int
    first: int = 0
    """Of the positions in it, the least and the greatest; 0: its rows have none."""
    last: int = 0


def write_files(
    root: Path, batches: Iterable[pa.RecordBatch], moment: str = "append_time"
) -> Sequence[DataFile]:
    """Write rows as Parquet files under `root`, one per day of the timestamp column `moment`.

    Nothing is left of them when `batches` raises.
    """
    writers: dict[str, _File] = {}
    try:
        for batch in batches:
            for date, part in _by_date(batch, moment):
                writer = writers.get(date)
                if writer is None:
                    writer = writers[date] = _File(root, date, part.schema)
                writer.add(part)
        return [writer.close() for writer in writers.values()]
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise


def _by_date(batch: pa.RecordBatch, moment: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    dates = pc.cast(batch.column(moment), pa.date32(), safe=False)
    days = pc.unique(dates)
    for day in days:
        part = batch if len(days) == 1 else batch.filter(pc.equal(dates, day))
        yield day.as_py().isoformat(), part


class _File:
    """One file being written; rows wait until they are worth a row group."""

    def __init__(self, root: Path, date: str, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.date = date
        self.name = f"{PARTITION}={date}/{uuid.uuid4()}.zstd.parquet"
        self.path = root / self.name
        make_folder(self.path.parent)
        self._file = self.path.open("wb")
        self.rows = self._waiting_bytes = 0
        self.first = self.last = 0
        self._waiting: list[Any] = []
        # Payloads hardly repeat: a dictionary and statistics of them cost time and room for nothing.
        plain = [name for name in schema.names if name != "payload"]
        self._writer = pq.ParquetWriter(
            self._file, schema, compression="zstd", use_dictionary=plain, write_statistics=plain
        )

    def add(self, part: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        if "offset" in part.schema.names:
            bounds = pc.min_max(part.column("offset"))
            self.first = min(self.first or bounds["min"].as_py(), bounds["min"].as_py())
            self.last = max(self.last, bounds["max"].as_py())
        self.rows += part.num_rows
        self._waiting.append(part)
        self._waiting_bytes += part.nbytes
        if self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting.clear()
            self._waiting_bytes = 0

    def close(self) -> DataFile:
        self._flush()
        self._writer.close()
        nbytes = self._file.tell()
        self._file.close()
        return DataFile(self.name, self.date, self.rows, nbytes, self.first, self.last)

    def discard(self) -> None:
        self._writer.close()
        self._file.close()
        self.path.unlink(missing_ok=True)


def sync_files(root: Path, files: Iterable[DataFile]) -> None:
    """Put these files of a table on the disk, with their names."""
    if not is_local(root):
        return
    paths = [root / file.path for file in files]
    for path in [*paths, *sorted({path.parent for path in paths}), root]:
        sync(path)
