"""What the tests of subscriptions share: a log in a temporary folder, a loop whose time the test moves."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions


class Clock:
    """Seconds since the epoch, moved by the test."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Handle:
    """A scheduled call."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """An event loop without sockets: `turn` runs what is due, `advance` moves its time."""

    def __init__(self) -> None:
        self._now = 0.0
        self._soon: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._later: list[tuple[float, int, Handle, Callable[..., Any], tuple[Any, ...]]] = []
        self._count = 0

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self._soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle()
        self._count += 1
        heapq.heappush(self._later, (self._now + delay, self._count, handle, callback, args))
        return handle

    def turn(self) -> int:
        """Run what is due now, once; how many calls that were."""
        while self._later and self._later[0][0] <= self._now:
            _, _, handle, callback, args = heapq.heappop(self._later)
            if not handle.cancelled:
                self._soon.append((callback, args))
        soon, self._soon = self._soon, []
        for callback, args in soon:
            callback(*args)
        return len(soon)

    def settle(self, turns_max: int = 1000) -> int:
        """Turn until nothing is due; how many turns that took."""
        for turn in range(turns_max):
            if not self.turn():
                return turn
        raise AssertionError(f"still busy after {turns_max} turns")

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self.settle()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Iterator[Log]:
    log = Log.open(tmp_path / "data", LogOptions(), clock=clock)
    yield log
    log.close_sync()
