"""Messages of a log or a table back into a gateway: `penstock spark replay --data DIR --url URL --name NAME`.

    spark-submit .../penstock/spark/jobs/replay.py --from delta:PATH --where "..." --url URL --name NAME

In the order of the log, with one task; with --tasks N in the order of each routing key. A run that is
repeated under the same --name, with as many tasks or others, sends only what is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.spark.jobs.shared.arguments import amqp_url
from penstock.spark.jobs.shared.common import add_choice, program
from penstock.spark.jobs.shared.frames import add_input, frame_of, reading
from penstock.spark.jobs.shared.progress import Progress, add_output, listener_of, progress_of, watched
from penstock.spark.publishing.messages import SHARES
from penstock.spark.reports import Listener
from penstock.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["main", "send"]

_SHOWN = 20


def send(
    frame: DataFrame,
    url: str,
    name: str,
    *,
    exchange: str | None = None,
    routing_key: str | None = None,
    tasks: int = 1,
    rate: float = 0.0,
    of_log: bool = False,
    report: str = "",
) -> None:
    """Publish the messages of a frame with the columns of `traffic`, in the order of `offset`; with several
    tasks, in that of each key.

    Args:
        name: Of the run: repeated under the same name, it sends what is missing.
        exchange, routing_key: For all; None: what each row says.
        tasks: How many publish at a time, at most `messages.SHARES`.
        rate: Messages per second in all at most; 0: no limit.
        of_log: They are of one log and in its order, as they are read; so each is numbered by its `offset`:
            what is missing is known also when the log has lost its beginning meanwhile. Otherwise by its
            place among the rows of its share of the keys.
        report: The address of a listener whom tasks tell how far they are.

    """
    # One task takes the parts of a log one after the other; all else has to be put in order.
    in_order = of_log and tasks == 1
    ordered = frame.coalesce(1) if in_order else by_key(frame, tasks).sortWithinPartitions("offset")
    ordered = ordered.select(*[name for name in COLUMNS if name in frame.columns])
    options = writing(url, name, exchange=exchange, routing_key=routing_key, rate=rate / tasks, report=report)
    options |= {"sequence": "offset" if of_log else "row", "numberedBy": "key"}
    ordered.write.format("penstock").mode("append").options(**options).save()


def by_key(frame: DataFrame, tasks: int) -> DataFrame:
    """A partition for each task, with whole shares of the keys, as `messages.Numbers.by_key` has them."""
    from pyspark.sql import functions as f

    names = ("address", "routing_key")
    texts = [f.coalesce(name, f.lit("")) if name in frame.columns else f.lit("") for name in names]
    address, key = (f.encode(text, "UTF-8") for text in texts)
    share = f.crc32(f.concat(address, f.lit(b"\0"), key)) % SHARES
    return frame.repartitionById(tasks, (share % tasks).cast("int"))


def writing(
    url: str, name: str, *, exchange: str | None, routing_key: str | None, rate: float, report: str
) -> dict[str, str]:
    """The options of the sink; see `send`. `rate` is that of a task."""
    given = {"exchange": exchange, "routingKey": routing_key, "report": report or None}
    said = {option: value for option, value in given.items() if value is not None}
    return {"url": url, "producer": name, "rate": str(rate), **said}


def _add(parser: argparse.ArgumentParser) -> None:
    add_input(parser)
    add_choice(parser, data=False)
    parser.add_argument(
        "--url", type=amqp_url, required=True, help="the gateway: amqp://USER@HOST:PORT/VHOST"
    )
    parser.add_argument(
        "--name", required=True, help="of this run; repeat a run under its name after a failure"
    )
    parser.add_argument(
        "--to-exchange", metavar="X", help="publish all to this exchange (default: where each was)"
    )
    parser.add_argument("--to-key", metavar="K", help="with this routing key (default: each its own)")
    parser.add_argument(
        "--tasks",
        type=int,
        default=1,
        choices=range(1, SHARES + 1),
        metavar="N",
        help=f"how many publish at a time, at most {SHARES} (default: %(default)s)",
    )
    parser.add_argument("--rate", type=float, default=0.0, help="messages per second (default: no limit)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be sent, and where to")
    add_output(parser)


def _run(arguments: argparse.Namespace) -> int:
    from penstock.spark.session import session

    spark = session("penstock spark replay", cores=arguments.cores, memory=arguments.memory)
    progress = progress_of(arguments)
    with listener_of(spark) as listener:
        if arguments.dry_run:
            _tell(frame_of(spark, arguments), progress)
        else:
            _send(spark, arguments, progress, listener)
    spark.stop()
    return 0


def _tell(frame: DataFrame, progress: Progress) -> None:
    groups = frame.groupBy("address").count().orderBy("count", ascending=False).collect()
    messages = sum(row["count"] for row in groups)
    lines = [f"{row['count']:10} {row['address']}" for row in groups[:_SHOWN]]
    if len(groups) > _SHOWN:
        lines.append(f"{'':10} and {len(groups) - _SHOWN} more exchanges or topics")
    lines.append(f"{messages:10} messages would be sent")
    counts = {row["address"]: row["count"] for row in groups}
    progress.done("\n".join(lines), dry_run=True, messages=messages, addresses=counts)


def _send(spark: SparkSession, arguments: argparse.Namespace, progress: Progress, listener: Listener) -> None:
    from penstock.spark.publishing.direct_copy import send_log

    of_log = arguments.table is None
    exchange, key = arguments.to_exchange, arguments.to_key
    report = listener.address
    if of_log and arguments.where is None:
        options = writing(
            arguments.url,
            arguments.name,
            exchange=exchange,
            routing_key=key,
            rate=arguments.rate / arguments.tasks,
            report=report,
        )
        with watched(spark, progress, listener):
            source = reading(arguments, report)
            send_log(spark, str(arguments.data), source, options, arguments.tasks)
    else:
        frame = frame_of(spark, arguments, report=report)
        # Of a log, what is read is what is sent; a table tells its rows without being read.
        total = None if of_log and arguments.where is None else frame.count()
        with watched(spark, progress, listener, total):
            send(
                frame,
                arguments.url,
                arguments.name,
                exchange=exchange,
                routing_key=key,
                tasks=arguments.tasks,
                rate=arguments.rate,
                of_log=of_log,
                report=report,
            )
    messages, nbytes = listener.totals()["sent"]
    text = f"sent as {arguments.name}: {messages:,} messages, {nbytes / 1e6:,.1f} MB"
    progress.done(text, name=arguments.name, messages=messages, bytes=nbytes)


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("replay", "Send messages of a log or a table to a gateway again.", _add, _run, words)


if __name__ == "__main__":
    sys.exit(main())
