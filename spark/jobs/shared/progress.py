"""Progress of a long job: a moving line on a terminal, a line at intervals in a log, or lines of JSON.

Text goes to standard error, beside what the job prints; JSON (`--output json`) to standard output, an object
a line, of which `event` says what it is: `progress`, `batch` (of a stream), `done`.

While a Spark job runs, its tasks tell how far they are (`reports`); where they tell nothing, since
Spark reads the table itself, how many tasks of how many are done.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from penstock.spark.jobs.shared.arguments import duration_s
from penstock.spark.reports import Listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress", "add_output", "listener_of", "progress_of", "watched"]

_MOVES_S: Final = 0.5
_LOOKS_S: Final = 0.2


def add_output(parser: argparse.ArgumentParser) -> None:
    """Arguments that say how a job tells what it does."""
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="json: an object a line"
    )
    parser.add_argument(
        "--progress-every",
        type=duration_s,
        default="10s",
        metavar="T",
        help="time between two lines of progress, where it is no terminal (default: %(default)s)",
    )


class Progress:
    """Shows how far a work is, which may have several parts; see the module."""

    def __init__(
        self,
        output: str = "table",
        every_s: float = 10.0,
        *,
        screen: TextIO | None = None,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`screen` is for text (standard error), `out` for JSON (standard output)."""
        self._json = output == "json"
        self._screen = screen or sys.stderr
        self._out = out or sys.stdout
        self._moves = not self._json and self._screen.isatty()
        self._every_s = _MOVES_S if self._moves else every_s
        self._clock = clock
        self._what = ""
        self._began = self._due = clock()
        self._shown = False

    @property
    def json(self) -> bool:
        """Whether lines of JSON are wanted."""
        return self._json

    def show(
        self, what: str, rows: int, nbytes: int, done: float | None = None, *, unit: str = "messages"
    ) -> None:
        """So far `rows` were `what` (read, sent), of `nbytes` bytes, which is the part `done` of all.

        Writes something when it is time to.
        """
        now = self._clock()
        if what != self._what:
            self._what, self._began, self._due = what, now, now + (0 if self._moves else self._every_s)
        if now < self._due:
            return
        self._due = now + self._every_s
        elapsed = now - self._began
        rate = rows / elapsed if elapsed else 0.0
        left = elapsed * (1 - done) / done if done else None
        if self._json:
            facts = {unit: rows, "bytes": nbytes, "fraction": done and round(done, 4)}
            left_s = None if left is None else round(left, 1)
            self.tell("progress", doing=what, **facts, per_second=round(rate, 1), seconds_left=left_s)
            return
        text = f"{what} {rows:,} {unit}"
        text += f", {nbytes / 1e6:,.1f} MB" if nbytes else ""
        text += f", {rate:,.0f}/s" if elapsed else ""
        text += "" if done is None else f", {done:.0%}"
        text += "" if left is None else f", {_duration(left)} left"
        if self._moves:
            width = shutil.get_terminal_size().columns - 1
            self._screen.write(f"\r{text[:width]}\x1b[K")
            self._shown = True
        else:
            self._screen.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        self._screen.flush()

    def end(self) -> None:
        """The work is over: take the line that moved away."""
        if self._shown:
            self._screen.write("\r\x1b[K")
            self._screen.flush()
            self._shown = False

    def done(self, text: str, **facts: Any) -> None:
        """The result, in a line: the text, or the facts."""
        self.end()
        if self._json:
            self.tell("done", **facts)
        else:
            print(text, file=self._out, flush=True)

    def tell(self, event: str, **facts: Any) -> None:
        """A line of JSON."""
        print(json.dumps({"event": event, **facts}, default=str), file=self._out, flush=True)


def progress_of(arguments: argparse.Namespace) -> Progress:
    """As the arguments of `add_output` say. Raises SparkOptionError."""
    return Progress(arguments.output, arguments.progress_every)


def listener_of(spark: SparkSession) -> Listener:
    """A listener that the session's tasks can reach."""
    return Listener(spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))


@contextmanager
def watched(
    spark: SparkSession, progress: Progress, listener: Listener, total: int | None = None
) -> Iterator[None]:
    """Show meanwhile what tasks tell the listener.

    `total`: how many messages will be sent; None: as many as are read, before or while they are sent.
    """
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOKS_S):
            _show(spark, progress, listener, total)

    thread = threading.Thread(target=look, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        progress.end()


def _show(spark: SparkSession, progress: Progress, listener: Listener, total: int | None) -> None:
    told = listener.totals()
    planned = told["plan"][1]
    read, read_bytes = told["read"]
    sent, sent_bytes = told["sent"]
    if sent and total is None and read_bytes < planned:  # while it is read
        progress.show("sent", sent, sent_bytes, read_bytes / planned)
    elif sent:
        of = read if total is None else total
        progress.show("sent", sent, sent_bytes, min(1.0, sent / of) if of else None)
    elif planned and read_bytes < planned:
        progress.show("read", read, read_bytes, read_bytes / planned)
    else:
        finished, tasks = _tasks(spark)
        progress.show("did", finished, 0, finished / tasks if tasks else None, unit="tasks")


def _tasks(spark: SparkSession) -> tuple[int, int]:
    """How many tasks of the stages that run are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    found = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in found), sum(stage.numTasks for stage in found)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
