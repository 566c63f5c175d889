"""One turn of the event loop: write, hand out, confirm, flush.

Owns the order of a turn and the list of queues with something to do. Front ends append records and
change output buffers during reads, then call `schedule`; the turn runs once after all reads of this
loop iteration (or behind a lone small read, see `begin_read`):

    1 log.flush()            one write of everything appended since the last turn; confirms of class written
    2 wake                   the queues that wait at a feed which got entries
    3 pump                   ready queues, a bounded number of messages each, for about 5 ms
    4 connection.flush()     each dirty connection once

A turn that leaves work (a queue with more to give) schedules the next one through the loop, so sockets
are read in between. Knows no protocol, no queue's inside, no file.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.subscriptions._cursor import release

if TYPE_CHECKING:
    from penstock.log_core._feed import Feed, Waiter

__all__ = ["Flushed", "Loop", "Tick", "TickLog"]

logger = logging.getLogger("penstock.subscriptions")


PUMP_S: Final = 0.005
"""Time in which a turn begins with new queues; those that are left come first in the next one."""
QUICK_EACH_S: Final = 0.001
"""Least time between two reads that have a turn of their own."""
CHECK_EACH: Final = 8
"""Queues between two looks at the clock."""


class Loop(Protocol):
    """What a tick needs of the event loop."""

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any: ...
    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any: ...
    def time(self) -> float: ...


class TickLog(Protocol):
    """What a tick needs of the log."""

    def flush(self) -> None: ...
    def take_dirty(self) -> list[Feed]: ...


class Flushed(Protocol):
    """A connection, as the tick sees it."""

    def flush(self) -> None: ...


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


class Tick:
    """The turns of one worker."""

    def __init__(self, log: TickLog, loop: Loop, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._log = log
        self._clock = clock
        self._loop = loop
        self._scheduled = False
        self._running = False
        self._quick_at = -QUICK_EACH_S
        self._ready: list[Waiter] = []
        self._dirty: dict[Flushed, None] = {}
        self._periodic: list[Periodic] = []
        self.turns = 0
        """Turns that ran, ever."""

    def schedule(self) -> None:
        """Have a turn run in this loop iteration's end; any number of calls make one turn."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.run)

    def begin_read(self) -> bool:
        """A small read is about to be handled; True: it has a turn of its own, so call `run` behind it.

        A lone message then does not wait for the loop to come round, nor for its scheduling. At most one read
        per millisecond is served so; all others share the turn after the iteration's reads, which is what
        makes many of them cheap.
        """
        now = self._loop.time()
        if self._scheduled or self._running or now - self._quick_at < QUICK_EACH_S:
            return False
        self._quick_at = now
        self._scheduled = True
        return True

    def ready(self, queue: Waiter) -> None:
        """Have `queue.pump()` called in the next turn (the running one, if it is not past that)."""
        self._ready.append(queue)
        if not self._scheduled and not self._running:
            self.schedule()

    def dirty_connection(self, connection: Flushed) -> None:
        """Have `connection.flush()` called at the end of the next (or running) turn."""
        self._dirty[connection] = None
        if not self._scheduled and not self._running:
            self.schedule()

    def run(self) -> None:
        """One turn. Called by the loop; a test may call it."""
        self._scheduled = False
        self._running = True
        self.turns += 1
        try:
            self._turn()
        finally:
            self._running = False
            if self._ready or self._dirty:
                self.schedule()

    def _turn(self) -> None:
        log = self._log
        log.flush()
        for feed in log.take_dirty():
            waiters = feed.waiters
            if waiters:
                feed.waiters = []  # a registration is for one waking
                for queue in waiters:
                    queue.fed(feed)
        ready, self._ready = self._ready, []
        ends = self._clock() + PUMP_S
        for i, queue in enumerate(ready):
            try:
                queue.pump()
            except Exception:
                logger.exception("a queue failed in its turn", extra={"queue": repr(queue)})
            if i % CHECK_EACH == CHECK_EACH - 1 and self._clock() > ends:
                self._ready[:0] = ready[i + 1 :]  # first in the next turn
                break
        release()
        dirty, self._dirty = self._dirty, {}
        for connection in dirty:
            try:
                connection.flush()
            except Exception:
                logger.exception("a connection failed to flush", extra={"connection": repr(connection)})

    # Time

    def after(self, delay_s: float, callback: Callable[[], None]) -> Any:
        """Call `callback` once, `delay_s` seconds from now; returns a handle with cancel()."""
        return self._loop.call_later(delay_s, callback)

    def every(self, interval_s: float, callback: Callable[[], None]) -> Periodic:
        """Call `callback` each `interval_s` seconds until the handle's cancel() or `close`."""
        periodic = Periodic(self._loop, interval_s, callback)
        self._periodic.append(periodic)
        return periodic

    def close(self) -> None:
        """Stop the periodic calls."""
        for periodic in self._periodic:
            periodic.cancel()
        self._periodic.clear()
