"""What the jobs share: arguments that choose messages, and a stream that shows its progress."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["add_choice", "choice_of", "program", "run_stream"]

_CHOICES: Final = {
    "topics": "MQTT topic filters, comma separated",
    "exchanges": "exchanges, comma separated",
    "routingKeys": "AMQP routing key patterns, comma separated",
    "vhosts": "vhosts, comma separated",
    "protocols": "amqp091, mqtt",
    "startingTimestamp": "begin with the first message not older (ISO 8601, or ms since 1970)",
}


def add_choice(parser: argparse.ArgumentParser, *, data: bool = True) -> None:
    """Arguments that say which messages of which log are meant."""
    if data:
        parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="penstock's data folder")
    for name, text in _CHOICES.items():
        parser.add_argument(f"--{_flag(name)}", dest=name, metavar="X", help=text)
    parser.add_argument("--memory", default="1g", help="memory of Spark's process (default: %(default)s)")
    parser.add_argument("--cores", type=int, help="cores to use (default: all)")


def _flag(name: str) -> str:
    return (
        "since"
        if name == "startingTimestamp"
        else "".join(f"-{c.lower()}" if c.isupper() else c for c in name)
    )


def choice_of(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of the source that they say."""
    return {name: getattr(arguments, name) for name in _CHOICES if getattr(arguments, name) is not None}


def program(
    name: str,
    text: str,
    add: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
    words: Sequence[str] | None = None,
) -> int:
    """Run a job as a program; its exit code, 1 with one line on standard error when it could not be done."""
    parser = argparse.ArgumentParser(prog=f"penstock spark {name}", description=text)
    add(parser)
    arguments = parser.parse_args(words)
    try:
        return run(arguments)
    except PenstockError as error:
        print(f"penstock: error: {error}", file=sys.stderr)
        return 1


def run_stream(start: Callable[[], StreamingQuery], show: Callable[[dict[str, Any]], str]) -> None:
    """Run a query until it ends by itself or SIGTERM or SIGINT stops it, and print a line per micro-batch.

    Raises what ended it otherwise.
    """
    from penstock.spark.running import run_to_end

    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    shown = -1

    def watch(query: StreamingQuery) -> None:
        nonlocal shown
        while not query.awaitTermination(1):
            shown = _show(query, shown, show)
            if stopping:
                query.stop()
        shown = _show(query, shown, show)

    try:
        run_to_end(start, watch)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(query: StreamingQuery, shown: int, show: Callable[[dict[str, Any]], str]) -> int:
    for progress in query.recentProgress:
        if progress["batchId"] > shown and progress["numInputRows"]:
            shown = progress["batchId"]
            print(f"{time.strftime('%H:%M:%S')} batch {shown}: {show(dict(progress))}", flush=True)
    return shown
