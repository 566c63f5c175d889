"""Programs for `test_kills`: they write into a gateway or a table while somebody kills them, or themselves.

    python -m tests.spark.kill_program copy --data URL --url URL --checkpoint DIR --rate N
    python -m tests.spark.kill_program send --url URL --rows N --rate N
    python -m tests.spark.kill_program die --data DIR --to TABLE|URL --checkpoint DIR --when before|after

`copy` streams the messages of `amq.topic` to the exchange `taken`, `send` writes rows there in one go; both
with the master in $PENSTOCK_TEST_SPARK_MASTER, each task at most `--rate` rows a second. `die` streams into a
table or a gateway and kills itself in its third micro-batch, with what Spark's driver is: when everything of
it is written and nothing is published, or when it is published and the checkpoint does not say so yet.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.jobs.sink import start_sink
from penstock.spark.running import run_to_end
from penstock.spark.session import session
from penstock.spark.sink import StreamSink, WriteOptions
from penstock.spark.source import PenstockSource
from penstock.spark.tables import table_sink
from tests.spark.conftest import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, WriterCommitMessage
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

FATAL_BATCH = 2
BATCH_OFFSETS = "300"


def stream(
    spark: SparkSession, data: str, to: str, checkpoint: Path, name: str = "penstock", **more: str
) -> StreamingQuery:
    """Copy what is in `amq.topic`; `more` are options of the source or, as `rate`, of the sink."""
    reading = {"exchanges": "amq.topic", "startingOffsets": "earliest", "minPartitions": "2", **more}
    writing = {"url": to, "exchange": "taken", "rate": reading.pop("rate", "0")}
    frame = spark.readStream.format("penstock").options(**reading).load(data)
    writer = frame.writeStream.format(name).options(**writing, checkpointLocation=str(checkpoint))
    return writer.trigger(availableNow=True).start()


def die() -> None:
    """Kill the driver: its Python, its JVM, and what they started, which may be the caller."""
    os.killpg(int(os.environ["KILL_PROGRAM_GROUP"]), signal.SIGKILL)
    signal.pause()  # the connection to Spark is the process's own, which ends it


def dying(writer: Any, when: str) -> Any:
    """A stream's writer that dies in `commit`, which Spark calls when all tasks of a micro-batch are done."""
    commit: Callable[[list[WriterCommitMessage | None], int], None] = writer.commit

    def fatal(messages: list[WriterCommitMessage | None], batch: int) -> None:
        if batch == FATAL_BATCH and when == "before":
            die()
        commit(messages, batch)
        if batch == FATAL_BATCH:
            die()

    writer.commit = fatal
    return writer


def dying_sources(when: str) -> tuple[type[DataSource], type[DataSource]]:
    """Sources that kill a process: one for writing to a gateway, one for a table."""

    class Source(PenstockSource):
        @classmethod
        def name(cls) -> str:
            return "penstock-dying"

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
            writer: StreamSink = dying(StreamSink(WriteOptions.parse(self.options), schema, overwrite), when)
            return writer

    class Table(table_sink.TableSink):
        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
            return dying(super().streamWriter(schema, overwrite), when)

    return Source, Table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("copy", "send", "die"))
    parser.add_argument("--data")
    parser.add_argument("--to")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rate", default="0")
    parser.add_argument("--when", choices=("before", "after"))
    said = parser.parse_args()
    master = os.environ.get("PENSTOCK_TEST_SPARK_MASTER")
    spark = session("kills", cores=2, memory="600m", master=master, settings=SETTINGS)
    if said.verb == "copy":
        options = {"maxOffsetsPerTrigger": "4000", "rate": said.rate}
        run_to_end(lambda: stream(spark, said.data, said.to, said.checkpoint, **options))
    elif said.verb == "send":
        frame = spark.range(0, said.rows, 1, 4).selectExpr(
            "cast(id AS string) AS payload", "'k' AS routing_key"
        )
        options = {"url": said.to, "exchange": "taken", "rate": said.rate}
        frame.write.format("penstock").mode("append").options(**options).save()
    else:
        source, table = dying_sources(said.when)
        limits = {"maxOffsetsPerTrigger": BATCH_OFFSETS}
        if said.to.startswith("amqp"):
            spark.dataSource.register(source)
            run_to_end(lambda: stream(spark, said.data, said.to, said.checkpoint, source.name(), **limits))
        else:
            table_sink.TableSink = table  # type: ignore[misc]
            limits["exchanges"] = "amq.topic"
            run_to_end(lambda: start_sink(spark, said.data, said.to, said.checkpoint, options=limits))
    spark.stop()


if __name__ == "__main__":
    main()
