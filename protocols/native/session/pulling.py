"""The pulls of one connection: credit that ends. No task waits for one, and one timer serves all of them.

A heap has them by when their time is up. One that is over before stays in it until it comes up, or until more
are over than wait; so each costs the same, however many there are.
"""

from __future__ import annotations

import heapq
import struct
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.native.codec._consumer import Consumer, Pull
from penstock.protocols.native.codec.errors import RequestError, unknown_handle
from penstock.subscriptions.queue.empty_check import look

if TYPE_CHECKING:
    from penstock.protocols.native.session.session import Session

__all__ = ["Pulling"]

_PULL: Final = struct.Struct(">IIIIII")
_WAIT_MAX_MS: Final = 60_000
_PULLS_MAX: Final = 1000
"""That wait for one consumer."""
_PULLS_OF_ALL_MAX: Final = 10_000
"""That wait for all consumers of a connection: so many may come up in one turn of the loop."""
_OVER_MIN: Final = 64
"""Pulls that are over and stay in the heap."""


class Pulling:
    """See the module."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._heap: list[tuple[Pull, Consumer]] = []
        self._timer: Any = None
        self._timer_s = 0.0

    def pull(self, id: int, payload: bytes) -> None:
        """PULL: request u32 | most messages u32 | most bytes u32 | least messages u32 | least bytes u32 |
        longest wait u32, ms."""
        session = self._session
        if len(payload) != _PULL.size:
            session.fault("malformed", f"PULL has {_PULL.size} bytes, not {len(payload)}")
            return
        request, messages, size, messages_min, size_min, wait_ms = _PULL.unpack(payload)
        consumer = session.codec.consumer(id)
        if consumer is None:
            session.answer_error(request, unknown_handle("consumer", id))
            return
        if not messages or not size:
            session.answer_error(
                request,
                RequestError(
                    "bad_field",
                    f"a pull of {messages} messages, {size} bytes",
                    remedy="pull a message and a byte at least",
                ),
            )
            return
        waiting, of_all = consumer.pulls, session.codec.outgoing.pulls
        if waiting >= _PULLS_MAX or of_all >= _PULLS_OF_ALL_MAX:
            session.answer_error(
                request,
                RequestError(
                    "limit_reached",
                    f"{waiting} pulls of this consumer wait, {of_all} of this connection",
                    remedy=f"wait for PULLED: at most {_PULLS_MAX} and {_PULLS_OF_ALL_MAX} may",
                ),
            )
            return
        pull = Pull(request, messages, size, max(messages_min, 1), size_min)
        pull.due = session.broker.tick.time() + min(wait_ms, _WAIT_MAX_MS) / 1000
        consumer.pull(pull)
        if len(self._heap) > 2 * (of_all + 1) + _OVER_MIN:
            self._heap = [one for one in self._heap if not one[0].over]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (pull, consumer))
        self._set_timer()
        consumer.queue.credit_gained(consumer)

    def lost(self) -> None:
        """The connection is gone, its consumers have ended."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        due_s = self._heap[0][0].due
        if self._timer is not None:
            if self._timer_s <= due_s:
                return
            self._timer.cancel()
        tick = self._session.broker.tick
        self._timer_s = due_s
        self._timer = tick.after(max(due_s - tick.time(), 0), self._fire)

    def _fire(self) -> None:
        self._timer = None
        heap, now = self._heap, self._session.broker.tick.time()
        while heap and (heap[0][0].over or heap[0][0].due <= now):
            pull, consumer = heapq.heappop(heap)
            if not pull.over:
                _over(consumer, pull)
        if heap:
            self._set_timer()


def _over(consumer: Consumer, pull: Pull) -> None:
    """Its time is up: it ends, with nothing only when there is nothing."""

    def served() -> bool:
        return bool(pull.got) or pull.over or not consumer.attached

    look(consumer.queue, served, lambda: consumer.end_pull(pull))
