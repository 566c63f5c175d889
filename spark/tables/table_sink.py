"""A stream of the log into a table, each message once: Spark plans and retries, Python translates.

The source `penstock-ranges` hands each task not rows but where its rows lie; the sink `penstock-table` reads
them there and writes Parquet with pyarrow. So no payload goes through the JVM, which is several times cheaper
than its Parquet writer. The files of a task count when the commit of its micro-batch lists it (`tables`).

A micro-batch that comes again (its commit was lost) finds the table's position at its end and is skipped.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.spark.errors import SparkError
from penstock.spark.logs.reading import read_parts
from penstock.spark.options import ReadOptions
from penstock.spark.schema import select
from penstock.spark.source import Task, TrafficStream
from penstock.spark.tables.files import DataFile, write_files
from penstock.spark.tables.table import open_table
from penstock.spark.worker_heap import spare_imports

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RangesSource", "TableSink"]

_TASK_BYTES: Final = 128 << 20
"""Of the log that a task translates, at most. A task costs 0.1 CPU-seconds before it does anything, and
makes a file, so they are large; `minPartitions` splits what comes at once over the cores."""
_TASK_BYTES_MIN: Final = 8 << 20


class RangesSource(DataSource):
    """Format `penstock-ranges`: a row for each task of the source, which says where its rows lie."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock-ranges"

    def schema(self) -> str:
        """One column."""
        return "task binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Streams only."""
        raise SparkError("penstock-ranges is read as a stream")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The source's own stream, with other rows."""
        options = ReadOptions.parse({"taskbytes": str(_TASK_BYTES), **self.options})
        least = min(_TASK_BYTES_MIN, options.task_bytes or _TASK_BYTES)
        options = replace(options, task_bytes_min=least)
        return _Ranges(options, select(options.columns, options.payload))


class _Ranges(TrafficStream):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if isinstance(partition, Task) and partition.parts:
            described = pickle.dumps((self.options.storage, partition.parts, partition.selection))
            yield pa.RecordBatch.from_pydict({"task": pa.array([described], pa.binary())})


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The files that a task wrote, and their part of the log."""

    files: tuple[DataFile, ...] = ()
    first: int = 0
    last: int = 0


class TableSink(DataSource):
    """Format `penstock-table`: writes what `penstock-ranges` points to. Options: `to`, `log`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock-table"

    def streamWriter(self, schema: StructType, overwrite: bool) -> _TableWriter:
        """The writer."""
        return _TableWriter(dict(self.options))


class _TableWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.to = options["to"]
        self.log = options["log"]
        self.compact_every = int(options.get("compactevery", "0"))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task: read its part of the log, write its files."""
        spare_imports()
        root = open_table(self.to).path
        files: list[DataFile] = []
        bounds: list[int] = []
        for batch in iterator:
            for described in batch.column(0).to_pylist():
                storage, parts, selection = pickle.loads(described)
                files += write_files(root, read_parts(storage, parts, selection))
                bounds += [parts[0].first, parts[-1].last]
        return Written(tuple(files), min(bounds, default=0), max(bounds, default=0))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks are done: publish their files, unless the table has them."""
        written = [message for message in messages if isinstance(message, Written) and message.last]
        files = [file for message in written for file in message.files]
        if not written:
            return
        table = open_table(self.to)
        first = min(message.first for message in written)
        last = max(message.last for message in written)
        position = table.position(self.log)
        if position is None or position <= first:
            if files:
                table.publish(self.log, files, first, last)
                if self.compact_every and (batchId + 1) % self.compact_every == 0:
                    table.compact()
            return
        table.make_durable()
        self._forget(table.path, files)
        if position < last:
            raise SparkError(
                f"the table has the log up to {position}, and half of [{first}, {last})",
                remedy="stop the other job that writes to this table, or begin without the checkpoint",
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The files of this attempt count for nothing."""
        root = open_table(self.to).path
        self._forget(root, [f for m in messages if isinstance(m, Written) for f in m.files])

    def _forget(self, root: Path, files: Iterable[DataFile]) -> None:
        for file in files:
            (root / file.path).unlink(missing_ok=True)
