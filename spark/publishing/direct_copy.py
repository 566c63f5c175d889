"""The direct copy of a log into a gateway, in log order: its messages do not pass through the JVM.

Spark plans and retries. The source gives Spark one row for each part of the log, which says where the part
lies. The sink reads the parts there, one after the other, and publishes. If there are several tasks, each
reads all of the log and sends its share of the keys. Reading a message costs a tenth of sending it; keeping
the order of each key in Spark would cost a shuffle and a sort. A condition in SQL needs Spark's own reading.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, InputPartition, WriterCommitMessage

from penstock.spark.errors import SparkError
from penstock.spark.options import ReadOptions
from penstock.spark.publishing._messages import COLUMNS as SENT
from penstock.spark.publishing.messages import Numbers
from penstock.spark.schema import COLUMNS
from penstock.spark.sink import WriteOptions, publish
from penstock.spark.source import Task, TrafficReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DirectCopySource", "send_log"]

_NAME: Final = "penstock-direct-copy"
_PART_BYTES: Final = 4 << 20
"""Of the log, at a time: so often it is told how far the work is."""


def send_log(
    spark: SparkSession, data: str, reading: dict[str, str], writing: dict[str, str], tasks: int = 1
) -> None:
    """Publish the messages of a log in its order, with several tasks in the order of each key.

    Args:
        data: The data folder, or the URL of a gateway.
        reading: Options of the source.
        writing: Options of the sink, with a `producer`. A message's number is its position.
        tasks: How many publish at a time, at most `messages.SHARES`.

    """
    from pyspark.sql import functions as f

    spark.dataSource.register(DirectCopySource)
    source = spark.read.format(_NAME).option("taskBytes", str(_PART_BYTES)).options(**reading)
    each = f.explode(f.array(*(f.lit(task) for task in range(tasks))))
    parts = source.load(data).withColumn("task", each).repartitionById(tasks, "task")
    options = {**writing, "sequence": "offset", "numberedBy": "key", "tasks": str(tasks)}
    parts.sortWithinPartitions("first").write.format(_NAME).mode("append").options(**options).save()


class DirectCopySource(DataSource):
    """Reads a row for each part of the log, and writes what those rows point to."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return _NAME

    def schema(self) -> str:
        """Where the part begins, and the part."""
        return "first bigint, part binary"

    def reader(self, schema: StructType) -> _Parts:
        """The parts."""
        return _Parts(ReadOptions.parse(self.options), [name for name in COLUMNS if name in SENT])

    def writer(self, schema: StructType, overwrite: bool) -> _Publisher:
        """The publisher."""
        if overwrite:
            raise SparkError("a log cannot be overwritten", remedy='write with mode("append")')
        options = {name.lower(): value for name, value in self.options.items()}
        tasks = int(options.pop("tasks"))
        return _Publisher(WriteOptions.parse(options), tasks)


class _Parts(TrafficReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if isinstance(partition, Task) and partition.parts:
            reader = TrafficReader(self.options, self.columns)
            reader.lease = self.lease  # which the planner has taken
            part = pickle.dumps((reader, partition))
            first = pa.array([partition.parts[0].first], pa.int64())
            yield pa.RecordBatch.from_pydict({"first": first, "part": pa.array([part], pa.binary())})


class _Publisher(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, tasks: int) -> None:
        self.options = options
        self.tasks = tasks

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One of the tasks."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        name = self.options.producer
        numbers = Numbers(name, by_offset=True, by_key=True, tasks=self.tasks, task=task)
        return publish(self.options, _messages(iterator, task), numbers, task)


def _messages(parts: Iterator[pa.RecordBatch], task: int) -> Iterator[pa.RecordBatch]:
    for batch in parts:
        for wanted, described in zip(
            batch.column("task").to_pylist(), batch.column("part").to_pylist(), strict=True
        ):
            if wanted != task:
                raise SparkError(f"Spark gave task {task} a part of the log that was for task {wanted}")
            reader, partition = pickle.loads(described)
            yield from reader.read(partition)
