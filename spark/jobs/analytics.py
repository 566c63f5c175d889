"""Rates, sizes and top talkers: `penstock spark analytics --data DIR --html report.html`.

    spark-submit .../penstock/spark/jobs/analytics.py --data DIR --html report.html

Payloads are not read: their sizes are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.jobs.common import add_choice, program
from penstock.spark.jobs.frames import add_input, frame_of
from penstock.spark.jobs.report import Report, write_html

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["analyse", "main"]

_COLUMNS: Final = "protocol,vhost,address,routing_key,append_time,qos,persistent,payload_size"
_WINDOWS_MAX: Final = 240
_WINDOWS_S: Final = (1, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400)


def analyse(frame: DataFrame, top: int = 15) -> Report:
    """What a report says about these messages; the frame is read a few times."""
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


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _add(parser: argparse.ArgumentParser) -> None:
    add_input(parser)
    add_choice(parser, data=False)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report with plots")
    parser.add_argument("--top", type=int, default=15, help="how many talkers (default: %(default)s)")


def _run(arguments: argparse.Namespace) -> int:
    from penstock.spark.session import session

    spark = session("penstock spark analytics", cores=arguments.cores, memory=arguments.memory)
    report = analyse(frame_of(spark, arguments, _COLUMNS), arguments.top)
    print(report.text())
    if arguments.html is not None:
        write_html(report, arguments.html)
        print(f"written: {arguments.html}")
    spark.stop()
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("analytics", "Rates, sizes and top talkers of the traffic.", _add, _run, words)


if __name__ == "__main__":
    sys.exit(main())
