"""Dead letters: what failed, why, from where: `penstock spark dlq --data DIR [--requeue --url URL --name N]`.

    spark-submit .../penstock/spark/jobs/dlq.py --data DIR

A dead letter is a message with the headers x-first-death-reason, -queue and -exchange
(docs/reference/amqp.md).
Requeued ones go into the queue they died in, by the default exchange, without their history.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.spark.errors import SparkError
from penstock.spark.jobs.replay import send
from penstock.spark.jobs.shared.arguments import amqp_url
from penstock.spark.jobs.shared.common import add_choice, program
from penstock.spark.jobs.shared.frames import HEADER, add_input, frame_of
from penstock.spark.jobs.shared.progress import Progress, add_output, listener_of, progress_of, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

__all__ = ["dead_letters", "main", "summary"]

_SAMPLE_BYTES: Final = 60
_HISTORY: Final = ("x-death", "x-first-death-reason", "x-first-death-queue", "x-first-death-exchange")


def dead_letters(frame: DataFrame) -> DataFrame:
    """The dead letters among messages, with `dead_reason`, `dead_queue` and `dead_exchange`."""
    from pyspark.sql import functions as f

    for column in ("reason", "queue", "exchange"):
        frame = frame.withColumn(f"dead_{column}", f.expr(HEADER.format(name=f"x-first-death-{column}")))
    return frame.where("dead_reason IS NOT NULL")


def summary(dead: DataFrame) -> DataFrame:
    """One row per queue and reason: how many, first and last seen, and the payload of one."""
    from pyspark.sql import functions as f

    return (
        dead.groupBy("vhost", "dead_queue", "dead_reason", "dead_exchange")
        .agg(
            f.count("*").alias("messages"),
            f.min("append_time").alias("first_seen"),
            f.max("append_time").alias("last_seen"),
            f.max_by("payload", "offset").alias("sample"),
        )
        .orderBy(f.desc("messages"))
    )


def requeue(dead: DataFrame, url: str, name: str, *, of_log: bool = False, report: str = "") -> None:
    """Publish each into the queue it died in, once however often this runs under the same name."""
    from pyspark.sql import functions as f

    history = ", ".join(f"'{word}'" for word in _HISTORY)
    rows = (
        dead.withColumn("address", f.lit(""))
        .withColumn("protocol", f.lit("amqp091"))
        .withColumn("routing_key", f.col("dead_queue"))
        .withColumn("headers", f.expr(f"filter(headers, h -> h.name NOT IN ({history}))"))
    )
    send(rows, url, name, of_log=of_log, report=report)


def _add(parser: argparse.ArgumentParser) -> None:
    add_input(parser)
    add_choice(parser, data=False)
    parser.add_argument("--requeue", action="store_true", help="send them into the queues they died in")
    parser.add_argument("--url", type=amqp_url, help="the gateway: amqp://USER@HOST:PORT/VHOST")
    parser.add_argument("--name", help="of this run; repeat a run under its name after a failure")
    add_output(parser)


def _run(arguments: argparse.Namespace) -> int:
    from penstock.spark.session import session

    if arguments.requeue and not (arguments.url and arguments.name):
        raise SparkError("it is not said where to requeue", remedy="give --url and --name")
    spark = session("penstock spark dlq", cores=arguments.cores, memory=arguments.memory)
    progress = progress_of(arguments)
    with listener_of(spark) as listener:
        dead = dead_letters(frame_of(spark, arguments, report=listener.address))
        with watched(spark, progress, listener):
            rows = summary(dead).collect()
        _tell(rows, progress)
        if arguments.requeue:
            total = sum(row["messages"] for row in rows)
            of_log = arguments.table is None
            with watched(spark, progress, listener, total):
                requeue(dead, arguments.url, arguments.name, of_log=of_log, report=listener.address)
            progress.done(f"{total} sent as {arguments.name}", name=arguments.name, messages=total)
    spark.stop()
    return 0


def _tell(rows: Sequence[Row], progress: Progress) -> None:
    if progress.json:
        for row in rows:
            sample = bytes(row["sample"] or b"")[:_SAMPLE_BYTES].decode("utf-8", "replace")
            progress.tell("dead_letters", **{**row.asDict(), "sample": sample})
        return
    print(f"{'messages':>8}  {'queue':24} {'reason':12} {'first seen':19}  {'last seen':19}  sample")
    for row in rows:
        sample = bytes(row["sample"] or b"")[:_SAMPLE_BYTES].decode("utf-8", "replace")
        print(
            f"{row['messages']:8}  {row['dead_queue'] or '':24} {row['dead_reason']:12} "
            f"{row['first_seen']:%Y-%m-%d %H:%M:%S}  {row['last_seen']:%Y-%m-%d %H:%M:%S}  {sample!r}"
        )


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("dlq", "Dead letters: what failed, why and from where.", _add, _run, words)


if __name__ == "__main__":
    sys.exit(main())
