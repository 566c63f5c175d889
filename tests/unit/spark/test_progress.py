"""How far a job is: what tasks tell, and what is shown of it on a terminal, in a log and as JSON."""

from __future__ import annotations

import io
import json
import re
import socket
import time
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.spark.jobs.shared.progress import Progress, watched
from penstock.spark.reports import Listener, Reporter


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def until_told(listener: Listener, kind: Any, rows: int) -> tuple[int, int]:
    """The reported progress once it has reached `rows`: local datagrams arrive with a delay."""
    while listener.totals()[kind][0] < rows:
        time.sleep(0.005)
    found = listener.totals()[kind]
    return found[0], found[1]


def test_parts_of_a_work_are_added_up_and_one_that_is_done_again_counts_once() -> None:
    with Listener("127.0.0.1") as listener:
        for key, rows in ((0, 10), (1, 5), (0, 10)):
            reporter = Reporter(listener.address, "sent", key)
            reporter.add(rows, 100 * rows)
            reporter.close()
        assert until_told(listener, "sent", 15) == (15, 1500)
        # A repetition that is not that far yet takes nothing back.
        again = Reporter(listener.address, "sent", 1)
        again.add(1, 100)
        other = Reporter(listener.address, "read", 7)
        other.add(3, 0)
        other.close()
        assert until_told(listener, "read", 3) == (3, 0)
        assert listener.totals()["sent"] == (15, 1500)
        again.close()


def test_datagrams_of_strangers_are_ignored() -> None:
    with Listener("127.0.0.1") as listener, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        host, port = listener.address.partition("/")[0].split(":")
        stranger.connect((host, int(port)))
        told = {"token": "guess", "kind": "sent", "key": 0, "rows": 9, "bytes": 9}
        for data in (b"", b"{", b"[]", b"null", b"\xff" * 900, json.dumps(told).encode()):
            stranger.send(data)
        mine = Reporter(listener.address, "read", 0)
        mine.add(1, 0)
        mine.close()
        assert until_told(listener, "read", 1) == (1, 0)
        assert listener.totals()["sent"] == (0, 0)


def test_nobody_who_listens_harms_no_task() -> None:
    with Listener("127.0.0.1") as listener:
        address = listener.address
    reporter = Reporter(address, "sent", 0)
    for _ in range(3):
        reporter.add(1, 1)
    reporter.close()
    silent = Reporter("", "sent", 0)
    silent.add(1, 1)
    silent.close()


def test_on_a_terminal_a_line_moves_and_goes_away() -> None:
    clock, screen, out = Clock(), Terminal(), io.StringIO()
    progress = Progress(screen=screen, out=out, clock=clock)
    for rows in range(0, 1000, 100):
        progress.show("sent", rows, 1000 * rows, rows / 1000)
        clock.now += 0.25
    lines = screen.getvalue().split("\r")[1:]
    assert len(lines) == 5, "twice a second"
    assert all(line.endswith("\x1b[K") and "\n" not in line for line in lines)
    assert lines[-1].startswith("sent 800 messages, 0.8 MB, 400/s, 80%, 0 s left")
    progress.done("800 sent")
    assert screen.getvalue().endswith("\r\x1b[K")
    assert out.getvalue() == "800 sent\n"


def test_a_log_gets_a_line_now_and_then() -> None:
    clock, screen = Clock(), io.StringIO()
    progress = Progress(every_s=10.0, screen=screen, clock=clock)
    for second in range(65):
        progress.show("read" if second < 30 else "sent", 1000 * second, 0, second / 300)
        clock.now += 1
    lines = screen.getvalue().splitlines()
    assert len(lines) == 2 + 3
    assert re.fullmatch(r"\d\d:\d\d:\d\d read 10,000 messages, 1,000/s, 3%, 5 min left", lines[0])
    assert all(" sent " in line for line in lines[2:])


def test_programs_get_an_object_a_line() -> None:
    clock, screen, out = Clock(), io.StringIO(), io.StringIO()
    progress = Progress("json", 5.0, screen=screen, out=out, clock=clock)
    progress.show("sent", 0, 0, 0.0)
    clock.now += 5
    progress.show("sent", 500, 5000, 0.25)
    progress.done("text", messages=2000)
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert told == [
        {
            "event": "progress",
            "doing": "sent",
            "messages": 500,
            "bytes": 5000,
            "fraction": 0.25,
            "per_second": 100.0,
            "seconds_left": 15.0,
        },
        {"event": "done", "messages": 2000},
    ]
    assert screen.getvalue() == ""


@dataclass
class Stage:
    numCompletedTasks: int
    numTasks: int


class FakeSpark:
    """The part of a Spark session that `watched` uses."""

    @property
    def sparkContext(self) -> Any:
        return self

    def statusTracker(self) -> Any:
        return self

    def getActiveStageIds(self) -> list[int]:
        return [1, 2, 3]

    def getStageInfo(self, stage: int) -> Stage | None:
        return {1: Stage(1, 4), 2: Stage(2, 2)}.get(stage)


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ([], "did 3 tasks, "),
        ([("plan", 0, 1000), ("read", 30, 400)], r"read 30 messages, 0.0 MB, .*, 40%, "),
        ([("plan", 0, 1000), ("read", 30, 1000)], "did 3 tasks, "),
        ([("plan", 0, 1000), ("read", 40, 1000), ("sent", 10, 90)], r"sent 10 messages, 0.0 MB, .*, 25%, "),
    ],
)
def test_the_progress_of_tasks_is_shown_during_a_job(told: list[tuple[Any, int, int]], wanted: str) -> None:
    screen = Terminal()
    progress = Progress(screen=screen, clock=lambda: float(len(screen.getvalue())))
    spark: Any = FakeSpark()
    with Listener("127.0.0.1") as listener:
        for kind, rows, nbytes in told:
            reporter = Reporter(listener.address, kind, 0)
            reporter.add(rows, nbytes)
            reporter.close()
        with watched(spark, progress, listener):
            while not re.search(wanted, screen.getvalue()):
                time.sleep(0.005)
    assert screen.getvalue().endswith("\r\x1b[K")
