"""Shared by the jobs: arguments that choose messages, and a stream that shows its progress."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from penstock.argument_parser import Parser
from penstock.errors import ConfigError, PenstockError
from penstock.extras import install
from penstock.spark.errors import SparkError, SparkOptionError, said_by_penstock
from penstock.spark.jobs.shared.arguments import archive_uri, duration_s, log_source, table_uri
from penstock.spark.jobs.shared.progress import Progress, add_output, progress_of
from penstock.spark.jobs.shared.registry import Job, registered
from penstock.spark.logs.log_view import LogView
from penstock.spark.options import ReadOptions
from penstock.spark.tables.table import TABLES, readable_files

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "DATA",
    "INSTALL",
    "PACKAGES",
    "add_choice",
    "choice_of",
    "every",
    "position_of",
    "program",
    "run_stream",
    "span",
]

DATA: Final = "penstock's data folder, or the URL of its native listener (penstock://USER@HOST:PORT)"
PACKAGES: Final = {
    "pyspark": (4, 2),
    "pyarrow": (19, 0),
    "deltalake": (1, 2),
    "pandas": (2, 2),
}
"""Packages that every job may need, and the least version of each."""
INSTALL: Final = install("spark")
_CHOICES: Final = {
    "topics": "MQTT topic filters, comma separated",
    "exchanges": "exchanges, comma separated",
    "routingKeys": "AMQP routing key patterns, comma separated",
    "vhosts": "vhosts, comma separated",
    "protocols": "amqp091, mqtt",
    "startingTimestamp": "begin with the first message not older (ISO 8601, or ms since 1970)",
}


def add_choice(parser: argparse.ArgumentParser, *, data: bool = True, stream: bool = False) -> None:
    """Arguments that say which messages of which log are meant; with `stream`, those of a job that fills a
    table as they come."""
    if data:
        parser.add_argument("--data", required=True, type=log_source, metavar="LOG", help=DATA)
    for name, text in _CHOICES.items():
        parser.add_argument(f"--{_flag(name)}", dest=name, metavar="X", help=text)
    parser.add_argument(
        "--archive", type=archive_uri, metavar="ARCHIVE", help="what tier wrote of this log: parquet:PATH"
    )
    parser.add_argument("--memory", default="1g", help="memory of Spark's process (default: %(default)s)")
    parser.add_argument("--cores", type=int, help="cores to use (default: all)")
    if stream:
        _add_stream(parser)


def _add_stream(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", required=True, type=table_uri, metavar="TABLE", help=TABLES)
    parser.add_argument(
        "--checkpoint", required=True, type=Path, metavar="DIR", help="where the job notes how far it is"
    )
    parser.add_argument("--name", help="of the job, for spark jobs (default: that of the checkpoint)")
    parser.add_argument(
        "--every", type=duration_s, default="10s", help="time between micro-batches (default: %(default)s)"
    )
    parser.add_argument("--once", action="store_true", help="take what is there and end")
    add_output(parser)
    parser.add_argument(
        "--max-bytes", default="268435456", help="of log per micro-batch (default: %(default)s)"
    )


def _flag(name: str) -> str:
    return (
        "since"
        if name == "startingTimestamp"
        else "".join(f"-{c.lower()}" if c.isupper() else c for c in name)
    )


def choice_of(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of the source that they say."""
    names = {name: name for name in _CHOICES} | {"max_bytes": "maxBytesPerTrigger", "archive": "archive"}
    said = {option: getattr(arguments, name, None) for name, option in names.items()}
    return {option: value for option, value in said.items() if value is not None}


def every(arguments: argparse.Namespace) -> float | None:
    """Seconds between micro-batches; None: take what is there and end."""
    return None if arguments.once else arguments.every


def program(
    name: str,
    text: str,
    add: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
    words: Sequence[str] | None = None,
) -> int:
    """Run a job as a program; its exit code.

    When it could not be done, one line on standard error says why. The code is 2 when the arguments are
    wrong, and 1 otherwise.
    """
    parser = Parser(prog=f"penstock spark {name}", description=text)
    add(parser)
    try:
        arguments = parser.parse_args(words)
        _check_source(arguments)
        return run(arguments)
    except PenstockError as error:
        print(f"penstock: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, (ConfigError, SparkOptionError)) else 1
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        print(
            f"penstock: error: there is no {error.name}; {INSTALL} (penstock spark doctor)", file=sys.stderr
        )
    except Exception as error:
        # Spark's own errors quote ours, among hundreds of lines of its JVM. pyspark may not be installed.
        said = said_by_penstock(str(error)) if type(error).__module__.startswith("pyspark.") else None
        if said is None:
            raise
        print(f"penstock: error: {said}", file=sys.stderr)
    return 1


def _check_source(arguments: argparse.Namespace) -> None:
    """Look for the log or the table, and at the choice of messages: Spark takes seconds to start.

    Raises SparkError, ClientError.
    """
    data, table = getattr(arguments, "data", None), getattr(arguments, "table", None)
    if table is not None:
        chosen = choice_of(arguments)
        if chosen:
            raise SparkError(f"a table is not asked by {', '.join(chosen)}", remedy="use --where")
        readable_files(table)
    if data is None:
        return
    said = {name: getattr(arguments, name, None) for name in ("columns", "payload")}
    options = {name: value for name, value in said.items() if value is not None}
    _ = ReadOptions.parse({"path": str(data), **options, **choice_of(arguments)}).selected
    LogView(data).storage.close()


def run_stream(
    start: Callable[[], StreamingQuery],
    show: Callable[[dict[str, Any]], str],
    arguments: argparse.Namespace,
    verb: str,
) -> None:
    """Run a query until it ends by itself or SIGTERM or SIGINT stops it, and print a line per micro-batch.

    Meanwhile it is a job that `penstock spark jobs` lists. Raises what ended it otherwise.
    """
    progress = progress_of(arguments)
    name = arguments.name or arguments.checkpoint.absolute().name
    with registered(name, verb, arguments.data, arguments.to) as job:
        _run_stream(start, show, job, progress)


def _run_stream(
    start: Callable[[], StreamingQuery],
    show: Callable[[dict[str, Any]], str],
    job: Job,
    progress: Progress,
) -> None:
    from penstock.spark.running import run_to_end

    view = LogView(job.data)
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    shown = -1

    def watch(query: StreamingQuery) -> None:
        nonlocal shown
        while not query.awaitTermination(1):
            shown = _show(query, shown, show, job, progress, view)
            if stopping:
                query.stop()
        shown = _show(query, shown, show, job, progress, view)

    try:
        run_to_end(start, watch)
    finally:
        view.storage.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(
    query: StreamingQuery,
    shown: int,
    show: Callable[[dict[str, Any]], str],
    job: Job,
    progress: Progress,
    view: LogView,
) -> int:
    for report in query.recentProgress:
        if report["batchId"] > shown and report["numInputRows"]:
            shown = report["batchId"]
            source = report["sources"][0]
            start, end, newest = (
                position_of(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset")
            )
            job.note(end)
            seconds = report["durationMs"]["triggerExecution"] / 1000
            view.refresh()
            taken, behind = span(view, start, end), span(view, end, newest)
            text = show(dict(report))
            if progress.json:
                facts = {"position": end, "positions": taken[0], "bytes": taken[1], "seconds": seconds}
                left = {"behind": behind[0], "behind_bytes": behind[1]}
                progress.tell("batch", batch=shown, **facts, **left, text=text)
                continue
            pace = f"{taken[1] / 1e6:,.1f} MB of log in {seconds:.1f} s"
            print(
                f"{time.strftime('%H:%M:%S')} batch {shown}: {text}, {pace}, "
                f"{behind[0]:,} positions ({behind[1] / 1e6:,.1f} MB) behind",
                flush=True,
            )
    return shown


def span(view: LogView, first: int, last: int) -> tuple[int, int]:
    """Positions and bytes that the log has in [first, last); between two runs of a gateway it has none."""
    parts = view.parts(max(first, view.first), last, 1 << 62)
    return sum(part.last - part.first for part in parts), sum(part.nbytes for part in parts)


def position_of(offset: Any) -> int:
    """The position in an offset of the source, which may be text; 0: there is none."""
    if isinstance(offset, str):
        offset = json.loads(offset)
    return int(offset["0"]) if offset else 0
