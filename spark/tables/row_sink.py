"""The rows of a stream into a table, each micro-batch once: for pipelines that make rows of their own.

The sink `penstock-rows` is told in the table which micro-batches of which query it has, so one that comes
again is skipped. The rest of a query (its state, how far it read) is in its checkpoint alone: with
another checkpoint it is another query, and is refused on a table that has rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.spark.errors import SparkError
from penstock.spark.schema import arrow_schema_of
from penstock.spark.tables.files import DataFile, write_files
from penstock.spark.tables.table import open_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["RowSink", "start_rows"]


def start_rows(
    frame: DataFrame, to: str, checkpoint: Path, *, moment: str, every_s: float | None
) -> StreamingQuery:
    """Start a stream of `frame` into the table `to`, partitioned by the day of the timestamp `moment`.

    `every_s` None: take what is there and end. Raises SparkError when table and checkpoint do not fit.
    """
    table = open_table(to)
    table.create(arrow_schema_of(frame.schema), moment)
    if not (checkpoint / "metadata").exists() and table.paths():
        raise SparkError(
            f"the table {to} has rows, and the checkpoint {checkpoint} knows nothing of them",
            remedy="give the checkpoint they were written with, or another table",
        )
    frame.sparkSession.dataSource.register(RowSink)
    writer = frame.writeStream.format("penstock-rows").outputMode("append")
    writer = writer.option("checkpointLocation", str(checkpoint)).option("to", to).option("moment", moment)
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds").start()


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The rows that a task wrote, and its query."""

    query: str
    files: tuple[DataFile, ...]


class RowSink(DataSource):
    """Format `penstock-rows`. Options: `to`, `moment`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock-rows"

    def streamWriter(self, schema: StructType, overwrite: bool) -> _RowWriter:
        """The writer."""
        return _RowWriter(dict(self.options), schema)


class _RowWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.to = options["to"]
        self.moment = options["moment"]
        self.schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task of a micro-batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        if query is None:
            raise SparkError("Spark did not say which query this is", remedy="use pyspark 4.2 or newer")
        schema = arrow_schema_of(self.schema)
        # The same types, but Spark names the session's time zone in its own way.
        batches = (batch.cast(schema) for batch in iterator if batch.num_rows)
        return Written(query, tuple(write_files(open_table(self.to).path, batches, self.moment)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks are done: publish their files, unless the table has this micro-batch."""
        written = [message for message in messages if isinstance(message, Written) and message.files]
        if not written:
            return
        table = open_table(self.to)
        position = table.position(written[0].query)
        if position is not None and position > batchId:
            table.make_durable()
            self._forget(written)
            return
        files = [file for message in written for file in message.files]
        table.publish(written[0].query, files, batchId, batchId + 1)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The files of this attempt count for nothing."""
        self._forget([message for message in messages if isinstance(message, Written)])

    def _forget(self, written: Sequence[Written]) -> None:
        root = open_table(self.to).path
        for message in written:
            for file in message.files:
                (root / file.path).unlink(missing_ok=True)
