"""Rates, sizes and top talkers: `penstock spark analytics --data DIR --html report.html [--to TABLE]`.

    spark-submit .../penstock/spark/jobs/analytics.py --data DIR --html report.html

Payloads are not read: their sizes are.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.errors import SparkOptionError
from penstock.spark.jobs.rollup import NEEDED, roll_up, rolled_up_to
from penstock.spark.jobs.shared.arguments import duration_s, new_file, table_uri
from penstock.spark.jobs.shared.common import add_choice, program
from penstock.spark.jobs.shared.frames import add_input, frame_of
from penstock.spark.jobs.shared.progress import Progress, add_output, listener_of, progress_of, watched
from penstock.spark.jobs.shared.report import Report, write_html
from penstock.spark.logs.log_view import LogView
from penstock.spark.logs.storage import storage_of
from penstock.spark.tables.table import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["analyse", "main"]

_COLUMNS: Final = "protocol,vhost,address,routing_key,append_time,qos,persistent,payload_size,feeds"
_WINDOWS_MAX: Final = 240
_WINDOWS_S: Final = (1, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400)


def analyse(frame: DataFrame, top: int = 15) -> Report:
    """A report about these messages; the frame is read a few times."""
    from pyspark.sql import functions as f

    frame = frame.select(*_COLUMNS.split(",")).persist()
    try:
        whole = frame.agg(
            f.count("*").alias("messages"),
            f.coalesce(f.sum("payload_size"), f.lit(0)).alias("bytes"),
            f.min("append_time").alias("first"),
            f.max("append_time").alias("last"),
            f.countDistinct("address", "routing_key").alias("keys"),
        ).first()
        assert whole is not None
        if not whole["messages"]:
            return Report()
        span_s = (whole["last"] - whole["first"]).total_seconds()
        window_s = next((w for w in _WINDOWS_S if span_s / w <= _WINDOWS_MAX), _WINDOWS_S[-1])
        talkers = frame.groupBy("vhost", "protocol", "address", "routing_key").agg(
            f.count("*").alias("messages"),
            f.sum("payload_size").alias("bytes"),
            f.min("append_time").alias("first"),
            f.max("append_time").alias("last"),
        )
        return Report(
            whole=whole.asDict(),
            window_s=window_s,
            rates=_rows(
                frame.groupBy(f.window("append_time", f"{window_s} seconds").start.alias("time"), "protocol")
                .agg(f.count("*").alias("messages"), f.sum("payload_size").alias("bytes"))
                .orderBy("time", "protocol")
            ),
            sizes=_rows(
                frame.groupBy("protocol").agg(
                    f.count("*").alias("messages"),
                    f.sum("payload_size").alias("bytes"),
                    f.percentile_approx("payload_size", [0.5, 0.9, 0.99]).alias("percentiles"),
                    f.max("payload_size").alias("largest"),
                    f.avg(f.col("persistent").cast("int")).alias("persistent"),
                    f.avg("feeds").alias("feeds"),
                    f.avg((f.col("feeds") == 0).cast("int")).alias("unrouted"),
                    f.array(*[f.avg((f.col("qos") == q).cast("int")) for q in range(3)]).alias("qos"),
                )
            ),
            buckets=_rows(
                frame.groupBy(
                    "protocol", f.ceil(f.log2(f.greatest(f.col("payload_size"), f.lit(1)))).alias("power")
                )
                .count()
                .orderBy("power", "protocol")
            ),
            talkers=_rows(talkers.orderBy(f.desc("messages"), "address", "routing_key").limit(top)),
            heaviest=_rows(talkers.orderBy(f.desc("bytes"), "address", "routing_key").limit(top)),
        )
    finally:
        frame.unpersist()


def _called(data: Path | str) -> str:
    """The log's name in the report: no password is in it."""
    return str(data.absolute() if isinstance(data, Path) else storage_of(data))


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _add(parser: argparse.ArgumentParser) -> None:
    add_input(parser)
    add_choice(parser, data=False)
    parser.add_argument("--html", type=new_file, metavar="FILE", help="write a report with plots")
    parser.add_argument(
        "--to", type=table_uri, metavar="TABLE", help=f"add whole windows to a table: {TABLES}"
    )
    parser.add_argument(
        "--window", type=duration_s, default="1m", help="of that table (default: %(default)s)"
    )
    add_output(parser)
    parser.add_argument("--top", type=int, default=15, help="how many talkers (default: %(default)s)")


def _run(arguments: argparse.Namespace) -> int:
    from penstock.spark.session import session

    if arguments.window < 1:
        raise SparkOptionError("window", f"{arguments.window}s", "give at least 1s")
    progress = progress_of(arguments)
    spark = session("penstock spark analytics", cores=arguments.cores, memory=arguments.memory)
    if arguments.to is not None:
        _roll_up(spark, arguments, progress)
        if arguments.html is None:
            spark.stop()
            return 0
    with listener_of(spark) as listener, watched(spark, progress, listener):
        report = analyse(frame_of(spark, arguments, _COLUMNS, report=listener.address), arguments.top)
    if arguments.html is not None:
        report.source = arguments.table or _called(arguments.data)
        write_html(report, arguments.html)
    written = "" if arguments.html is None else f"\nwritten: {arguments.html}"
    progress.done(report.text() + written, html=arguments.html, **asdict(report))
    spark.stop()
    return 0


def _roll_up(spark: SparkSession, arguments: argparse.Namespace, progress: Progress) -> None:
    chosen = copy(arguments)
    if arguments.table is None:
        view = LogView(arguments.data)
        view.refresh()
        who = f"analytics-{view.log_id}"
        if arguments.startingTimestamp is None:
            chosen.startingTimestamp = str(rolled_up_to(arguments.to, who) * 1000)
    else:
        who = f"analytics-{hashlib.sha256(arguments.table.encode()).hexdigest()[:32]}"
    with listener_of(spark) as listener, watched(spark, progress, listener):
        frame = frame_of(spark, chosen, ",".join(NEEDED), report=listener.address)
        rows, end = roll_up(frame, arguments.to, who, round(arguments.window))
    text = f"{rows} rows added, the table has the traffic up to {end:%Y-%m-%d %H:%M:%S} UTC"
    progress.done(text, table=arguments.to, rows=rows, up_to=f"{end:%Y-%m-%dT%H:%M:%SZ}")


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("analytics", "Rates, sizes and top talkers of the traffic.", _add, _run, words)


if __name__ == "__main__":
    sys.exit(main())
