"""A pull that goes on: leased messages as lines of JSON, as they come, for as long as the client reads.

    POST SOURCE/pull, Accept: application/x-ndjson
    {"id": ..., "handle": ..., "value": ...}      one line each, as a pull has them
    {"end": REASON}                               the last one, when it is not the client who ends

`max_messages` is the window: so many are leased at most, and each that is settled, on any connection, or
whose lease ends makes room for another one. With `wait_ms` it ends when nothing came for so long. An empty
line every 15 s keeps the connection. Messages that were not sent when the client goes are given
back at once, the rest when its lease ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.data.pulling.polls import give_back
from penstock.protocols.http.server.messages import HttpError, Request, dumps
from penstock.protocols.http.shared.taking import Delivery, each_delivery
from penstock.subscriptions.errors import ConsumerRefused, QueueGone
from penstock.subscriptions.queue.empty_check import look

if TYPE_CHECKING:
    from penstock.protocols.http.data.pulling.members import Member
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Window", "lines"]

_QUIET_S: Final = 15.0


class Window:
    """The consumer: what it took and the client has not settled is never more than its size."""

    priority = 0

    def __init__(self, queue: Queue, size: int, bytes_max: int) -> None:
        self._queue = queue
        self._size = size
        self._bytes_max = bytes_max
        self._pending_bytes = 0
        self._held = 0
        self.pending: deque[Delivery] = deque()
        self.more = asyncio.Event()
        """There is something to take, or it ended."""
        self.ended = ""
        """Why nothing more comes."""

    def credit(self) -> int:
        if self.ended or self._pending_bytes >= self._bytes_max:
            return 0
        return max(self._size - self._held, 0)

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        took = 0
        items = each_delivery(self._queue, cursor, first, step)
        while self.credit() > 0 and (delivery := next(items, None)) is not None:
            self.pending.append(delivery)
            self._pending_bytes += len(delivery.record.body)
            self._held += 1
            took += 1
        self.more.set()
        return took

    def void(self) -> None:
        """Its deliveries are void: its subscription goes on elsewhere."""
        self.pending.clear()
        self._held = self._pending_bytes = 0

    def cancelled(self, reason: str) -> None:
        self.end(reason)

    def end(self, reason: str) -> None:
        """Nothing more is taken."""
        self.ended = self.ended or reason
        self.more.set()

    def take(self) -> Delivery | None:
        """The next one, which is leased from now on."""
        if not self.pending:
            return None
        delivery = self.pending.popleft()
        self._pending_bytes -= len(delivery.record.body)
        return delivery

    def released(self, delivery: Delivery) -> None:
        """The lease of one is over."""
        if delivery.is_void:
            return  # it counts no more since `void`
        self._held -= 1
        if not self.ended and not self._queue.deleted:
            self._queue.credit_gained()


def attach(queue: Queue, window: Window, member: Member | None) -> None:
    """Begin. Raises HttpError 409, 404."""
    try:
        if member is None:
            queue.attach(window)
        else:
            member.begin(window)
    except ConsumerRefused as error:
        raise HttpError(409, "subscription_busy", error.message) from error
    except QueueGone as error:
        raise HttpError(404, "not_found", error.message) from error


async def lines(
    request: Request,
    queue: Queue,
    window: Window,
    member: Member | None,
    lease: Callable[[Delivery], dict[str, Any]],
    wait_s: float | None,
) -> AsyncGenerator[bytes, None]:
    """The lines of a window that is attached; `lease` begins the lease of a message and shows it."""
    loop = asyncio.get_running_loop()
    request.on_gone = window.more.set
    request.on_shutdown = lambda: window.end("the gateway stops")
    last_at = loop.time()
    try:
        queue.credit_gained(member or window)
        while not (request.gone or request.refusal or window.ended):
            delivery = window.take()
            if delivery is not None:
                last_at = loop.time()
                yield dumps(lease(delivery)) + b"\n"
                continue
            window.more.clear()
            queue.credit_gained(member or window)  # taking made room
            quiet_s = _QUIET_S if wait_s is None else min(last_at + wait_s - loop.time(), _QUIET_S)
            if quiet_s <= 0:
                look(queue, lambda: bool(window.pending or window.ended or request.gone), window.more.set)
                await window.more.wait()
                if not window.pending:
                    window.end(f"nothing came for {wait_s} s")
                continue
            timer = loop.call_later(quiet_s, window.more.set)
            try:
                await window.more.wait()
            finally:
                timer.cancel()
            if not window.pending:
                yield b"\n"
        if not request.gone:
            why = request.refusal.detail if request.refusal else window.ended
            yield dumps({"end": why}) + b"\n"
    finally:
        window.end("closed")
        give_back(list(window.pending))
        if member is None:
            queue.detach(window)
        else:
            member.end(window)
