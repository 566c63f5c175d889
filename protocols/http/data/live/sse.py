"""Tails as server-sent events.

    GET .../exchanges/X/tail?pattern=K    what goes through an exchange; `amq.default` is the default one
    GET .../tail?topic=F                  what is published to MQTT topics that match the filter F
    GET .../tail?queue=Q                  what is routed to a queue
    GET .../tail?events=log,webhooks      what the gateway itself has to say (`events`), as `event: KIND`
    GET .../streams/S/tail?from=          a stream, from "next" unless said otherwise (`reader`)

    id: 0:<position>
    data: {"routing_key": ..., "value": ...}

With `Last-Event-ID` it begins behind that event, as far as the log has what came since. `event: lagging`
tells how many a slow client has missed, `event: end` why nothing more comes. A comment every 15 s keeps the
connection.

Source: the HTML standard, "Server-sent events".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.live.events import Events, EventTail, kinds_of
from penstock.protocols.http.data.live.tail import Tail, Tails, pattern_of
from penstock.protocols.http.data.pulling.pull import shown
from penstock.protocols.http.server.messages import HttpError, Request, Response, dumps
from penstock.protocols.http.shared.positions import begin_of_replay, offset_at
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE
from penstock.router.queues.start_position import parse_since
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.protocols.http.data.pulling.reader import StreamReader
    from penstock.protocols.http.shared.taking import Delivery
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["TailHandlers", "position_of"]

_QUIET_S: Final = 15.0
_ASKED: Final = ("topic", "queue", "events")
"""The parameters that say which messages a tail of a vhost shows."""


class TailHandlers:
    """The handlers."""

    def __init__(self, access: Access, tails: Tails, reader: StreamReader, events: Events) -> None:
        self._access = access
        self._tails = tails
        self._reader = reader
        self._of_gateway = events

    async def exchange(self, request: Request) -> Response:
        """The messages that go through an exchange."""
        return self._bound(request, request.names["exchange"], request.parameter("pattern", "#"))

    async def of_query(self, request: Request) -> Response:
        """Messages to MQTT topics, those of a queue, or the gateway's own."""
        match [(name, value) for name in _ASKED if (value := request.parameter(name))]:
            case [("topic", topic_filter)]:
                return self._bound(request, MQTT_EXCHANGE, pattern_of(topic_filter))
            case [("queue", name)]:
                return await self._queue(request, name)
            case [("events", wanted)]:
                return self._gateway(request, kinds_of(wanted))
            case []:
                raise HttpError(
                    400, "bad_field", "topic: a topic filter of MQTT, such as a/+/b; or queue; or events"
                )
            case [_, (name, _), *_]:
                raise HttpError(400, "bad_field", f"{name}: one of {', '.join(_ASKED)} is needed")
        raise AssertionError("all lists are matched")

    async def _queue(self, request: Request, name: str) -> Response:
        """Messages as they are routed to a queue, from now on or from a moment on."""
        broker, more = self._access.broker, asyncio.Event()
        queue, since = self._tailed(request, name), self._since(request)
        position = 0
        if since:
            moment = parse_since(since, broker.log.now_ms())
            assert moment is not None  # `_since` has looked
            position = await begin_of_replay(broker, queue, moment)
            queue = self._tailed(request, name)  # it may be gone, or another one
        tail = self._tails.queue(queue, position, more.set)
        return self._response(request, tail, more, lambda request: self._tailed(request, name))

    def _tailed(self, request: Request, name: str) -> Queue:
        """The queue, to be read. Raises RoutingError, HttpError 404 and 409."""
        queue = self._access.queue_named(request, name)
        if isinstance(queue, Stream):
            raise HttpError(409, "wrong_mode", f"'{name}' is a stream: read it by GET streams/NAME/tail")
        return queue

    def _bound(self, request: Request, exchange: str, pattern: str) -> Response:
        vhost, identity = self._access.vhost(request), self._access.identity(request)
        more = asyncio.Event()
        tail = self._tails.exchange(identity, vhost, exchange, pattern, more.set, since=self._since(request))
        return self._response(
            request, tail, more, lambda _: self._tails.check(identity, vhost, exchange, pattern)
        )

    def _since(self, request: Request) -> str:
        """Where to begin, as `parse_since` reads it; "": now. Raises HttpError 400."""
        if last := last_event(request):
            return f"pos:{last + 1}"
        since = request.parameter("from", "next")
        if since in ("first", "next"):
            return "pos:1" if since == "first" else ""
        if parse_since(since, self._access.broker.log.now_ms()) is None:
            raise HttpError(
                400,
                "bad_field",
                'from is "first", "next", "pos:N", "-1h", or a time with its zone (RFC 3339)',
            )
        return since

    def _gateway(self, request: Request, kinds: frozenset[str]) -> Response:
        vhost, identity = self._access.vhost(request), self._access.identity(request)
        more = asyncio.Event()
        tail = self._of_gateway.listen(identity, vhost.name, kinds, more.set)

        def check(request: Request) -> None:
            self._access.vhost(request)
            self._of_gateway.check(identity, kinds)

        return self._response(request, tail, more, check)

    async def stream(self, request: Request) -> Response:
        """The messages of a stream, old and new."""
        stream, more = self._access.stream(request), asyncio.Event()
        if last := last_event(request):
            offset = await offset_at(stream, last + 1)
        else:
            offset = await self._reader.offset(stream, request.parameter("from", "next"))
        tail = self._tails.stream(stream, offset, more.set)
        return self._response(request, tail, more, self._access.stream)

    def _response(
        self,
        request: Request,
        tail: Tail | EventTail,
        more: asyncio.Event,
        check: Callable[[Request], object],
    ) -> Response:
        request.on_gone = more.set
        request.on_shutdown = partial(tail.cancelled, "the gateway stops")
        return Response(
            200,
            content_type="text/event-stream",
            headers=(("cache-control", "no-store"),),
            stream=self._events(request, tail, more, check),
        )

    async def _events(
        self,
        request: Request,
        tail: Tail | EventTail,
        more: asyncio.Event,
        check: Callable[[Request], object],
    ) -> AsyncGenerator[bytes, None]:
        try:
            with self._access.watched(request, check):
                yield b": penstock\n\n"
                while not (tail.ended or request.gone or request.refusal):
                    delivery = tail.take()
                    if delivery is not None:
                        yield self._event(delivery)
                        continue
                    if tail.skipped:
                        skipped, tail.skipped = tail.skipped, 0
                        yield b'event: lagging\ndata: {"skipped":%d}\n\n' % skipped
                    more.clear()
                    try:
                        async with asyncio.timeout(_QUIET_S):
                            await more.wait()
                    except TimeoutError:
                        yield b": still here\n\n"
                if tail.ended or request.refusal:
                    why = request.refusal.detail if request.refusal else tail.ended
                    yield b"event: end\ndata: %b\n\n" % dumps({"reason": why})
        finally:
            tail.close()

    def _event(self, delivery: Delivery | tuple[str, bytes]) -> bytes:
        if isinstance(delivery, tuple):
            return b"event: %b\ndata: %b\n\n" % (delivery[0].encode(), delivery[1])
        self._access.messages.delivered += 1
        return b"id: 0:%d\ndata: %b\n\n" % (delivery.record.lsn, dumps(shown(self._access, delivery)))


def last_event(request: Request) -> int:
    """The position that a client had last; 0: it had none. Raises HttpError 400."""
    header = request.headers.get("last-event-id", "")
    return position_of(header) if header else 0


def position_of(id: object) -> int:
    """The position in the id of a message. Raises HttpError 400."""
    zero, _, digits = id.partition(":") if isinstance(id, str) else ("", "", "")
    if not (zero == "0" and digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise HttpError(400, "bad_field", f"no id of a message: {str(id)[:50]!r}; send one as it came")
    return int(digits)
