"""Deletes queues that nobody has used for a while.

A queue is used if it has consumers, was asked for a message, or was declared again. One heap and one timer
serve all queues. Use does not touch the heap. When an entry comes up and its queue was used meanwhile, it
is put back. If the queue has consumers then, the entry is dropped until the last of them leaves.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from penstock.subscriptions.queue.queue import Queue
    from penstock.subscriptions.tick.tick import Tick

__all__ = ["IdleExpiry"]

_LOG: Final = logging.getLogger("penstock.subscriptions")


@dataclass(slots=True)
class _Lease:
    queue: Queue
    length_s: float
    used_s: float
    waits: bool = False
    """It stands in the heap."""


class IdleExpiry:
    """Of all queues of the process."""

    def __init__(self, tick: Tick, on_unused: Callable[[Queue], None]) -> None:
        self._tick = tick
        self._on_unused = on_unused
        self.leases: dict[Queue, _Lease] = {}
        """Of the queues that expire."""
        self._heap: list[tuple[float, int, _Lease]] = []
        self._count = 0
        self._timer: Any = None
        self._timer_s = 0.0

    def lease(self, queue: Queue, length_ms: int | None) -> None:
        """Delete it when nobody used it for so long from now on; None: keep it."""
        known = self.leases.get(queue)
        if length_ms is None:
            if known is not None:
                del self.leases[queue]
            return
        if known is None or known.length_s != length_ms / 1000:
            lease = self.leases[queue] = _Lease(queue, length_ms / 1000, self._tick.time())
            self._wait(lease)

    def used(self, queue: Queue) -> None:
        """It was used, or its last consumer has left."""
        lease = self.leases.get(queue)
        if lease is not None:
            lease.used_s = self._tick.time()
            if not lease.waits:
                self._wait(lease)

    def _wait(self, lease: _Lease) -> None:
        lease.waits = True
        self._count += 1
        heapq.heappush(self._heap, (lease.used_s + lease.length_s, self._count, lease))
        self._set_timer()

    def _set_timer(self) -> None:
        due_s = self._heap[0][0]
        if self._timer is not None:
            if self._timer_s <= due_s:
                return
            self._timer.cancel()
        self._timer_s = due_s
        self._timer = self._tick.after(max(due_s - self._tick.time(), 0), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._tick.time()
        while self._heap and self._heap[0][0] <= now:
            lease = heapq.heappop(self._heap)[2]
            lease.waits = False
            queue = lease.queue
            if self.leases.get(queue) is not lease or queue.consumer_count:
                continue
            if lease.used_s + lease.length_s > now:
                self._wait(lease)
                continue
            what = f"{queue!r} could not be deleted, though nobody uses it; it is tried again later"
            if guarded(_LOG, what, self._on_unused, queue):
                self.leases.pop(queue, None)
            else:
                lease.used_s = now
                if not lease.waits:
                    self._wait(lease)
        if self._heap:
            self._set_timer()
