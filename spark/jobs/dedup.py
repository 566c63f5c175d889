"""Traffic into a table, of each message's repetitions only the first one.

    penstock spark dedup --data DIR --to delta:PATH --checkpoint DIR --by message_id --within 10m
    spark-submit .../penstock/spark/jobs/dedup.py --data DIR --to delta:PATH --checkpoint DIR --by message_id

Publishers repeat a message when they do not know whether it arrived (QoS 1, a lost confirm): these are
messages of their own to a gateway that was not told a producer and a number. Columns or headers say which
messages are the same; one that lacks any of them has no repetitions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import SparkOptionError
from penstock.spark.jobs.shared.arguments import duration_s
from penstock.spark.jobs.shared.common import add_choice, choice_of, every, program, run_stream
from penstock.spark.jobs.shared.frames import HEADER
from penstock.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["first_ones", "main", "start_dedup"]

_HEADER = "header:"


def first_ones(frame: DataFrame, by: Sequence[str], within_s: float) -> DataFrame:
    """Of rows that agree in all of `by`, the first within `within_s` seconds of it.

    `by`: columns, or header:NAME. `frame` is a stream with all columns of the table `traffic`. Raises
    SparkOptionError for what is neither.
    """
    from pyspark.sql import functions as f

    keys = []
    for word in by:
        if word.startswith(_HEADER):
            name = word.removeprefix(_HEADER).replace("\\", "\\\\").replace("'", "\\'")
            keys.append(f.expr(HEADER.format(name=name)))
        elif word in COLUMNS and word != "headers":
            # Of payloads the state keeps a digest.
            keys.append(f.sha2(f.col(word), 256) if word == "payload" else f.col(word))
        else:
            raise SparkOptionError("by", word, "give columns of the table, or header:NAME")
    lacks = keys[0].isNull()
    for key in keys[1:]:
        lacks = lacks | key.isNull()
    columns = {f"_key{index}": key for index, key in enumerate(keys)}
    columns["_alone"] = f.when(lacks, f.col("offset"))
    marked = frame.withColumns(columns).withWatermark("append_time", f"{round(within_s * 1000)} milliseconds")
    return marked.dropDuplicatesWithinWatermark(list(columns)).drop(*columns)


def start_dedup(
    spark: SparkSession,
    data: Path | str,
    to: str,
    checkpoint: Path,
    *,
    by: Sequence[str],
    within_s: float,
    options: Mapping[str, str],
    every_s: float | None = None,
) -> StreamingQuery:
    """Start the stream into the table `to`; `every_s` None: take what is there and end.

    `options` are those of the source. Raises SparkError when table and checkpoint do not fit.
    """
    from penstock.spark.tables.row_sink import start_rows

    chosen = dict(options)
    if "startingTimestamp" not in chosen:
        chosen.setdefault("startingOffsets", "earliest")
    frame = spark.readStream.format("penstock").options(**chosen).load(str(data))
    only = first_ones(frame, by, within_s)
    return start_rows(only, to, checkpoint, moment="append_time", every_s=every_s)


def _add(parser: argparse.ArgumentParser) -> None:
    add_choice(parser, stream=True)
    parser.add_argument(
        "--by", default="message_id", metavar="X,Y", help="columns or header:NAME (default: %(default)s)"
    )
    parser.add_argument(
        "--within",
        type=duration_s,
        default="10m",
        metavar="T",
        help="how long to remember (default: %(default)s)",
    )


def _shown(progress: dict[str, Any]) -> str:
    (state,) = progress["stateOperators"]
    dropped = state["customMetrics"].get("numDroppedDuplicateRows", 0)
    line = f"{progress['numInputRows']} messages, {dropped} repetitions"
    late = state["numRowsDroppedByWatermark"]
    return f"{line}; {late} dropped: the gateway's clock was set back" if late else line


def _run(arguments: argparse.Namespace) -> int:
    from penstock.spark.session import session

    every_s = every(arguments)
    spark = session("penstock spark dedup", cores=arguments.cores, memory=arguments.memory)

    def start() -> StreamingQuery:
        return start_dedup(
            spark,
            arguments.data,
            arguments.to,
            arguments.checkpoint,
            by=arguments.by.split(","),
            within_s=arguments.within,
            options=choice_of(arguments),
            every_s=every_s,
        )

    run_stream(start, _shown, arguments, "dedup")
    spark.stop()
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("dedup", "Traffic into a table without repetitions.", _add, _run, words)


if __name__ == "__main__":
    sys.exit(main())
