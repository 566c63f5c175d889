"""The tick of one worker: turns of its event loop, and timed work between them.

The kernel `_tick` is the turn itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.subscriptions.tick._tick import TickBase

if TYPE_CHECKING:
    from penstock.log_core.wal._unwritten import Unwritten

__all__ = ["Loop", "Tick", "TickLog"]


class Loop(Protocol):
    """The part of the event loop that a tick needs."""

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call it in the next turn of the loop."""

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any:
        """Call it after `delay` seconds; what is returned has `cancel`."""

    def time(self) -> float:
        """Seconds, on a clock that only rises."""


class Pumped(Protocol):
    """A part that a tick calls in its turn: a queue, as a rule."""

    def pump(self) -> None:
        """Hand out messages, a bounded number."""


class TickLog(Protocol):
    """The part of the log that a tick needs."""

    unwritten: Unwritten
    """Bytes that were appended and not written."""

    @property
    def awaited(self) -> bool:
        """Whether anybody waits for what is not written or not synced yet."""

    def flush(self) -> None:
        """Write what was appended, and tell who waited for that."""


class Periodic:
    """A repeated call. It keeps its pace when one call is late, and skips what was missed."""

    __slots__ = ("_callback", "_handle", "_interval_s", "_loop", "_next")

    def __init__(self, loop: Loop, interval_s: float, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._interval_s = interval_s
        self._callback = callback
        self._next = loop.time() + interval_s
        self._handle: asyncio.TimerHandle | None = loop.call_later(interval_s, self._fire)

    def _fire(self) -> None:
        now = self._loop.time()
        self._next += self._interval_s
        if self._next <= now:
            self._next = now + self._interval_s
        self._handle = self._loop.call_later(self._next - now, self._fire)
        self._callback()

    def cancel(self) -> None:
        """No further calls."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class Tick(TickBase):
    """The turns of one worker, and what happens at a time between them."""

    def __init__(self, log: TickLog, loop: Loop, *, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(log, loop.call_soon, loop.call_later, clock)
        self._unwritten = log.unwritten
        self._loop = loop
        self._periodic: list[Periodic] = []

    # Time

    def time(self) -> float:
        """Seconds on the loop's clock."""
        return self._loop.time()

    def after(self, delay_s: float, callback: Callable[[], None]) -> Any:
        """Call `callback` once, `delay_s` seconds from now; returns a handle with cancel()."""
        return self._loop.call_later(delay_s, callback)

    def every(self, interval_s: float, callback: Callable[[], None]) -> Periodic:
        """Call `callback` each `interval_s` seconds until the handle's cancel() or `close`."""
        periodic = Periodic(self._loop, interval_s, callback)
        self._periodic.append(periodic)
        return periodic

    def close(self) -> None:
        """Stop the periodic calls, and have no turn for what becomes durable later."""
        self._unwritten.on_shown = None
        for periodic in self._periodic:
            periodic.cancel()
        self._periodic.clear()
