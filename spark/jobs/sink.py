"""Traffic into a table, each message once: `penstock spark sink --data DIR --to delta:PATH --checkpoint DIR`.

    spark-submit .../penstock/spark/jobs/sink.py --data DIR --to delta:PATH --checkpoint DIR

Without a checkpoint the job goes on where the table ends; so both may be lost, but not the table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.jobs.shared.common import add_choice, choice_of, every, position_of, program, run_stream
from penstock.spark.logs.log_view import LogView
from penstock.spark.schema import arrow_schema, select
from penstock.spark.tables.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["main", "start_sink"]

_NEEDED = ("append_time", "offset")


def start_sink(
    spark: SparkSession,
    data: Path | str,
    to: str,
    checkpoint: Path,
    *,
    options: dict[str, str] | None = None,
    every_s: float | None = None,
    compact_every: int = 0,
) -> StreamingQuery:
    """Start the stream into the table `to`; `every_s` None: take what is there and end.

    `options` are those of the source. Raises SparkError when the table does not fit.
    """
    from penstock.spark.tables.table_sink import RangesSource, TableSink

    options = dict(options or {})
    columns = select(options.get("columns"), options.get("payload", "full"))
    columns = select(",".join({*columns, *_NEEDED}), options.get("payload", "full"))
    options["columns"] = ",".join(columns)
    view = LogView(data)
    view.refresh()
    table = open_table(to)
    table.create(arrow_schema(columns))
    position = table.position(view.log_id)
    if position is not None:
        options.pop("startingTimestamp", None)
        options["startingOffsets"] = str(position)
    elif "startingTimestamp" not in options:
        options.setdefault("startingOffsets", "earliest")
    options.setdefault("minPartitions", str(spark.sparkContext.defaultParallelism))
    spark.dataSource.register(RangesSource)
    spark.dataSource.register(TableSink)
    frame = spark.readStream.format("penstock-ranges").options(**options).load(str(data))
    writer = frame.writeStream.format("penstock-table").option("checkpointLocation", str(checkpoint))
    writer = writer.option("to", to).option("log", view.log_id).option("compactEvery", str(compact_every))
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds").start()


def _add(parser: argparse.ArgumentParser) -> None:
    add_choice(parser, stream=True)
    parser.add_argument("--columns", help="comma separated (default: all)")
    parser.add_argument("--payload", default="full", help="full, none or head:BYTES")
    parser.add_argument(
        "--compact-every",
        type=int,
        default=100,
        metavar="N",
        help="tidy the table each N micro-batches (0: never)",
    )


def _run(arguments: argparse.Namespace) -> int:
    from penstock.spark.session import session

    options = {**choice_of(arguments), "payload": arguments.payload}
    if arguments.columns:
        options["columns"] = arguments.columns
    every_s = every(arguments)
    spark = session("penstock spark sink", cores=arguments.cores, memory=arguments.memory)

    def start() -> StreamingQuery:
        return start_sink(
            spark,
            arguments.data,
            arguments.to,
            arguments.checkpoint,
            options=options,
            every_s=every_s,
            compact_every=arguments.compact_every,
        )

    run_stream(
        start,
        lambda progress: (
            f"the table has the log up to position {position_of(progress['sources'][0]['endOffset'])}"
        ),
        arguments,
        "sink",
    )
    spark.stop()
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("sink", "Traffic into a table, each message once.", _add, _run, words)


if __name__ == "__main__":
    sys.exit(main())
