"""GET .../exchanges/X/tail: what goes through an exchange from now on, as server-sent events.

    id: 0:<position>
    data: {"routing_key": ..., "value": ...}

A tail is a transient queue of its own, bound with `pattern` (default "#"), without acknowledgements. It slows
nobody: a client that does not take its events has the surplus dropped, and is told with `event: lagging` how
many. A comment every 15 s keeps the connection.

Source: the HTML standard, "Server-sent events".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.pull import shown
from penstock.protocols.http.messages import HttpError, Request, Response, dumps
from penstock.protocols.http.traffic import Taken
from penstock.router.errors import AccessRefused, NotFound, TopicRefused
from penstock.router.identity import BROKER, Actor
from penstock.router.names import wire

if TYPE_CHECKING:
    from penstock.router.vhost import Vhost
    from penstock.subscriptions._cursor import Cursor
    from penstock.subscriptions.queue import Queue

__all__ = ["Tailer"]

_PENDING_MAX: Final = 1 << 20
"""Bytes of bodies that wait for one client."""
_QUIET_S: Final = 15.0
_TAILS_MAX: Final = 1000
_AT_ONCE: Final = 1024


class _Tail:
    """The outlet of a tail's queue."""

    priority = 0

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._size = 0
        self.pending: deque[Taken] = deque()
        self.skipped = 0
        self.ended = False
        self.more = asyncio.Event()

    def credit(self) -> int:
        return _AT_ONCE

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        records = cursor.records()
        for at in range(first, len(records), step):
            seq, _, _, count, redelivered = records[at]
            if self._size > _PENDING_MAX:
                self.skipped += 1
            else:
                batch, index = cursor.record(at)
                taken = Taken(self._queue, seq, batch.record(index), redelivered, count, 0)
                self.pending.append(taken)
                self._size += len(taken.record.body) + 256
            cursor.settle(seq)
        self.more.set()
        return len(range(first, len(records), step))

    def cancelled(self, reason: str) -> None:
        self.ended = True
        self.more.set()

    def take(self) -> Taken | None:
        """The next one."""
        if not self.pending:
            return None
        taken = self.pending.popleft()
        self._size -= len(taken.record.body) + 256
        return taken


class Tailer:
    """The handler."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._tails = 0

    async def tail(self, request: Request) -> Response:
        """Begin a tail."""
        access = self._access
        vhost = access.vhost(request)
        name = request.names["exchange"]
        pattern = request.parameter("pattern", "#")
        identity = access.identity(request)
        allowed = access.broker.authorizer
        if not allowed.allow(identity, vhost.name, "read", name):
            raise AccessRefused("exchange", name, vhost.name, identity.username, "read")
        source = vhost.exchanges.get(name)
        if source is None or not name:
            raise NotFound("exchange", name, vhost.name)
        if source.is_topic and not allowed.allow_topic(identity, vhost.name, "read", name, wire(pattern)):
            raise TopicRefused(name, vhost.name, identity.username, "read", wire(pattern))
        if self._tails >= _TAILS_MAX:
            raise HttpError(503, "too_many_tails", f"there are {_TAILS_MAX} tails already")
        # Whoever may read the exchange may have this queue, whatever names he may declare.
        actor = Actor(BROKER, object())
        queue = vhost.declare_queue("", actor, exclusive=True).queue
        try:
            vhost.bind_queue(queue.name, name, pattern, actor)
        except Exception:
            vhost.connection_closed(actor.owner)
            raise
        tail = _Tail(queue)
        queue.attach(tail)
        request.on_gone = tail.more.set
        request.on_shutdown = partial(tail.cancelled, "the gateway stops")
        return Response(
            200,
            content_type="text/event-stream",
            headers=(("cache-control", "no-store"),),
            stream=self._events(request, vhost, tail, actor.owner),
        )

    async def _events(
        self, request: Request, vhost: Vhost, tail: _Tail, owner: object
    ) -> AsyncGenerator[bytes, None]:
        self._tails += 1
        try:
            yield b": penstock\n\n"
            while not (tail.ended or request.gone):
                taken = tail.take()
                if taken is not None:
                    data = dumps(shown(self._access, taken))
                    yield b"id: 0:%d\ndata: %b\n\n" % (taken.record.lsn, data)
                    continue
                if tail.skipped:
                    skipped, tail.skipped = tail.skipped, 0
                    yield b'event: lagging\ndata: {"skipped":%d}\n\n' % skipped
                tail.more.clear()
                try:
                    async with asyncio.timeout(_QUIET_S):
                        await tail.more.wait()
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._tails -= 1
            vhost.connection_closed(owner)
