"""The rules of a queue beyond plain queueing: what leaves it undone, and when.

Most queues have none, and pay nothing. A queue with `Limits` is looked after before and after each pump:

    before    what was refused leaves
    after     what is over the length limit and no consumer took is dropped from the head; then the head is
              looked at, and a timer set for the moment it expires

What leaves is handed to `bury` while its place is still out, and its place is settled afterwards: the copy
stands in the log before the cursor's record that says the original is done. A crash between the two makes a
duplicate, never a loss. A record that is no longer in memory is loaded first.

Only a queue with `bury` looks at its head in time; in others expired records are dropped when they are met.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.log_core._batch import Record
    from penstock.subscriptions.queue import Queue

__all__ = ["Bury", "Limits"]

logger = logging.getLogger("penstock.subscriptions")

Bury = Callable[["Record", str], None]
"""Called with a record and why it left the queue: "rejected", "expired", "maxlen" or "delivery_limit".

It appends what becomes of it to the log, and raises when it cannot.
"""

_BURIED_AT_ONCE: Final = 128
"""Records handed to `bury` in one go (a few ms); the rest follows in the next turns."""
_DROPPED_AT_ONCE: Final = 1024
"""Items of one take."""


class Limits:
    """Of one queue; see the module."""

    __slots__ = ("_due_ms", "_queue", "_refused", "_timer", "bury", "max_length")

    def __init__(self, queue: Queue, bury: Bury | None, max_length: int | None) -> None:
        self._queue = queue
        self.bury = bury
        self.max_length = max_length
        """Ready messages it may hold; None: any number."""
        self._refused: deque[tuple[int, str]] = deque()
        self._timer: Any = None
        self._due_ms = 0
        if bury is not None:
            queue.cursor.on_expired = self._expired
            queue.cursor.on_refused = self._refuse

    def _refuse(self, seq: int, reason: str) -> None:
        self._refused.append((seq, reason))
        self._queue.wake()

    def _expired(self, positions: list[int]) -> None:
        """They were read a moment ago, so they are in memory."""
        assert self.bury is not None
        for position in positions:
            batch = self._queue.log.cache.get(position)
            try:
                assert batch is not None
                self.bury(batch.record(position - batch.base_lsn), "expired")
            except Exception:
                logger.exception("an expired message could not be kept", extra={"queue": self._queue.name})
        self._queue.tick.schedule()

    # Around a pump

    def before(self) -> bool:
        """Let go of what was refused; False: some of it must be loaded first."""
        queue, cursor = self._queue, self._queue.cursor
        for _ in range(min(len(self._refused), _BURIED_AT_ONCE)):
            seq, reason = self._refused[0]
            position = cursor.position(seq)
            if position and self.bury is not None:
                batch = queue.log.cache.get(position)
                if batch is None:
                    queue.load(position)
                    return False
                self.bury(batch.record(position - batch.base_lsn), reason)
                cursor.settle(seq)
                queue.tick.schedule()
            self._refused.popleft()
        if self._refused:
            queue.wake()
        return True

    def shorten(self) -> bool:
        """Drop from the head what is over the length limit; False: it goes on later."""
        if self.max_length is None:
            return True
        queue, cursor = self._queue, self._queue.cursor
        at_once = _DROPPED_AT_ONCE if self.bury is None else _BURIED_AT_ONCE
        while (excess := cursor.ready_count() - self.max_length) > 0:
            taken = cursor.take(min(excess, at_once))
            if taken == 0:
                return queue.caught_up()
            if self.bury is not None:
                for index in range(taken):
                    batch, at = cursor.record(index)
                    self.bury(batch.record(at), "maxlen")
                queue.tick.schedule()
            cursor.settle_taken()
            if self.bury is not None:
                queue.wake()
                return False
        return True

    def after(self) -> None:
        """Wait for what comes next: the head's end, or new messages."""
        queue, cursor = self._queue, self._queue.cursor
        if not self.shorten():
            return
        if self.max_length is not None:
            queue.watch()
        if self.bury is None:
            return
        if cursor.take(1):
            due_ms = cursor.deadline()
            cursor.put_back(0)
            if due_ms >= 0:
                self._wake_at(due_ms)
        else:
            queue.caught_up()

    def _wake_at(self, due_ms: int) -> None:
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        left_ms = max(due_ms - self._queue.log.now_ms(), 0) + 1
        self._timer = self._queue.tick.after(left_ms / 1000, self._due)

    def _due(self) -> None:
        self._timer = None
        self._queue.wake()

    def close(self) -> None:
        """The queue is deleted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._queue.cursor.on_expired = self._queue.cursor.on_refused = None
        self._refused.clear()
