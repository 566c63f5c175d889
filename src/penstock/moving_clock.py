"""A clock that tests move: what a gateway's tick and log take as their time.

It goes with the machine's, and is ahead of it by what it was advanced. As after a machine that slept: what
was to happen meanwhile happens at the end of it, in the order of its times, and what repeats happens once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any

__all__ = ["MovingClock"]


class _Timer:
    """A call at a time."""

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., Any] | None = callback
        self.args = args

    def cancel(self) -> None:
        """It is not called any more."""
        self.callback = None


class MovingClock:
    """A `subscriptions.tick.tick.Loop`, and `wall` for the log."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._loop: asyncio.AbstractEventLoop
        self._timers: list[tuple[float, int, _Timer]] = []
        self._numbers = itertools.count()
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop that it is to be called in, and that runs what it calls; what waits in another is gone."""
        self._loop = loop
        self._timers.clear()
        self._handle = None

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time() + self._ahead_s

    def time(self) -> float:
        """Seconds as the loop counts them."""
        return self._loop.time() + self._ahead_s

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any:
        """As the loop's."""
        return self._loop.call_soon(callback, *args)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any:
        """As the loop's, by this clock."""
        timer = _Timer(callback, args)
        heapq.heappush(self._timers, (self.time() + delay, next(self._numbers), timer))
        self._arm()
        return timer

    def _arm(self) -> None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        due_s = self._timers[0][0] if self._timers else 0.0
        if self._handle is not None:
            if due_s == self._due_s:
                return
            self._handle.cancel()
            self._handle = None
        self._due_s = due_s
        if self._timers:
            self._handle = self._loop.call_later(max(due_s - self.time(), 0.0), self._fire)

    def _fire(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        now = self.time()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                # As calls of its own: one that raises is the loop's matter, and one may cancel the next.
                self._loop.call_soon(_call, timer)
        self._arm()

    async def advance(self, seconds: float) -> None:
        """Move it, and wait until what is due by then has been called, and what that made due at once."""
        self._ahead_s += seconds
        self._fire()
        while True:
            await asyncio.sleep(0)  # the calls of this turn
            if not self._timers or self._timers[0][0] > self.time():
                break
            self._fire()
        await asyncio.sleep(0)  # the turn of the tick that they asked for


def _call(timer: _Timer) -> None:
    if timer.callback is not None:
        timer.callback(*timer.args)
