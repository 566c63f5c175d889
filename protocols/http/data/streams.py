"""Streams and their subscriptions as resources: made, looked at, moved, deleted.

    PUT GET DELETE streams/S                    {max_age, max_bytes}
    PUT GET DELETE streams/S/subscriptions/N    {kind, start, durable, ack_timeout_ms, nack_min_ms,
                                                 nack_max_ms, max_deliveries, dead_letter}
    POST streams/S/subscriptions/N/seek         {to}
    POST streams/S/subscriptions/N/pause, resume

The same streams and subscriptions as those of AMQP and of the native protocol. `start` and `to` are
"earliest", "latest", a time, an interval ("-1h") or a position ("pos:N").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.data.access import Access
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.server.numbers import whole
from penstock.protocols.http.shared.fields import Whole, check_fields, number_of, object_of, optional_object
from penstock.protocols.http.shared.lag import heads_known
from penstock.protocols.http.shared.lists import chosen_in_parts
from penstock.protocols.http.shared.pages import page
from penstock.protocols.http.shared.positions import indexed, position_of
from penstock.router.queues.start_position import parse_since
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.streams.lag import figures
from penstock.subscriptions.streams.stream import Stream
from penstock.subscriptions.streams.subscription import Subscription

if TYPE_CHECKING:
    from penstock.log_core.log import Log

__all__ = ["StreamHandlers"]

KINDS: Final = {
    "exclusive": Kind.EXCLUSIVE,
    "failover": Kind.FAILOVER,
    "shared": Kind.SHARED,
    "key_shared": Kind.KEY_SHARED,
}
_DAY_MS: Final = 86_400_000
MAX_BYTES: Final = Whole(None, 0, 2**62)
DELAYS: Final = dict.fromkeys(("ack_timeout_ms", "nack_min_ms", "nack_max_ms"), Whole(None, 0, _DAY_MS))
MAX_DELIVERIES: Final = Whole(None, 1, 65_535)
_NAME_MAX: Final = 200
_FIELDS: Final = (
    "kind",
    "start",
    "durable",
    *DELAYS,
    "max_deliveries",
    "dead_letter",
)


class StreamHandlers:
    """The handlers."""

    def __init__(self, access: Access) -> None:
        self._access = access

    # Streams

    async def index(self, request: Request) -> Response:
        """All streams that the user may read."""
        vhost, identity = self._access.vhost(request), self._access.identity(request)
        allow = self._access.broker.authorizer.allow
        entries = list(vhost.queues.values())
        streams = await chosen_in_parts(entries, lambda entry: isinstance(entry.queue, Stream))
        found = [
            (entry.name, entry.queue)
            for entry in streams
            if isinstance(entry.queue, Stream) and allow(identity, vhost.name, "read", entry.name)
        ]
        return page(request, "streams", found, lambda _, stream: _stream_shown(stream))

    async def put(self, request: Request) -> Response:
        """Make one; the same again is fine."""
        vhost, name = self._access.vhost(request), request.names["stream"]
        body = await optional_object(request)
        check_fields(body, ("max_age", "max_bytes"))
        arguments: dict[str, Any] = {"x-queue-type": "stream"}
        if body.get("max_age") is not None:
            if not isinstance(body["max_age"], str):
                raise HttpError(400, "bad_field", 'max_age is an interval such as "7D"')
            arguments["x-max-age"] = body["max_age"]
        if body.get("max_bytes") is not None:
            arguments["x-max-length-bytes"] = number_of(body, "max_bytes", MAX_BYTES)
        is_new = name not in vhost.queues
        declared = vhost.declare_queue(name, self._access.actor(request), durable=True, arguments=arguments)
        await self._access.kept(declared.lsn, "fsync")
        assert isinstance(declared.queue, Stream)
        return json_response(_stream_shown(declared.queue), 201 if is_new else 200)

    async def show(self, request: Request) -> Response:
        """The fields of one stream."""
        return json_response(_stream_shown(self._access.stream(request)))

    async def delete(self, request: Request) -> Response:
        """End one, with its messages and subscriptions."""
        vhost, name = self._access.vhost(request), request.names["stream"]
        entry = vhost.queues.get(name)
        lsn = 0
        if entry is None or isinstance(entry.queue, Stream):
            lsn = vhost.delete_queue(name, self._access.actor(request)).lsn
        else:
            self._access.stream(request)  # which refuses what is none
        await self._access.kept(lsn, "fsync")
        return Response(204)

    # Subscriptions

    async def subscriptions(self, request: Request) -> Response:
        """Those of a stream."""
        stream = self._access.stream(request)
        found = self._access.vhost(request).subscriptions.of(stream.name)
        log = self._access.broker.log
        await heads_known(log, found.values())
        return page(request, "subscriptions", found.items(), partial(_shown, log))

    async def subscribe(self, request: Request) -> Response:
        """Make one; the same again is fine, and moves nothing."""
        access = self._access
        stream, name = access.stream(request), request.names["subscription"]
        body = await optional_object(request)
        check_fields(body, _FIELDS)
        if len(name.encode("utf-8", "surrogateescape")) > _NAME_MAX:
            raise HttpError(400, "bad_field", f"the name of a subscription has at most {_NAME_MAX} bytes")
        kind = body.get("kind", "shared")
        if not isinstance(kind, str) or kind not in KINDS:
            raise HttpError(400, "bad_field", f"kind is one of {', '.join(KINDS)}")
        durable = body.get("durable", True)
        if not isinstance(durable, bool):
            raise HttpError(400, "bad_field", "durable is true or false")
        options = self._options(body)
        position = await self._position(request, body.get("start", "latest"), "start")
        await indexed(access.broker.log, [(stream.feed, position)])
        vhost = access.vhost(request)
        stream = access.stream(request)  # it may be another one meanwhile
        is_new = name not in vhost.subscriptions.of(stream.name)
        subscription, lsn = vhost.subscriptions.open(
            stream,
            name,
            KINDS[kind],
            options,
            identity=access.identity(request),
            durable=durable,
            position=position,
        )
        await access.kept(lsn, "fsync")
        await heads_known(access.broker.log, [subscription])
        return json_response(_shown(access.broker.log, name, subscription), 201 if is_new else 200)

    def _options(self, body: dict[str, Any]) -> dict[str, Any]:
        options: dict[str, Any] = {}
        for name, bounds in DELAYS.items():
            if body.get(name) is not None:
                options["x-" + name.replace("_", "-")] = number_of(body, name, bounds)
        if body.get("max_deliveries") is not None:
            options["x-delivery-limit"] = number_of(body, "max_deliveries", MAX_DELIVERIES) - 1
        if (queue := body.get("dead_letter")) is not None:
            if not isinstance(queue, str):
                raise HttpError(400, "bad_field", "dead_letter is the name of a queue or a stream")
            options["x-dead-letter-exchange"] = ""
            options["x-dead-letter-routing-key"] = queue
        return options

    async def show_subscription(self, request: Request) -> Response:
        """Where one stands."""
        log, subscription = self._access.broker.log, self._subscription(request)
        await heads_known(log, [subscription])
        return json_response(_shown(log, request.names["subscription"], subscription))

    async def unsubscribe(self, request: Request) -> Response:
        """End one."""
        self._subscription(request)
        vhost = self._access.vhost(request)
        lsn = vhost.subscriptions.delete(request.names["stream"], request.names["subscription"])
        await self._access.kept(lsn, "fsync")
        return Response(204)

    async def seek(self, request: Request) -> Response:
        """Go on elsewhere; handles from before are stale."""
        self._subscription(request)
        body = object_of(await request.json())
        check_fields(body, ("to",))
        position = await self._position(request, body.get("to"), "to")
        await indexed(self._access.broker.log, [(self._subscription(request).stream.feed, position)])
        await self._access.kept(self._subscription(request).seek(position), "fsync")
        return json_response({"position": position})

    async def pause(self, request: Request) -> Response:
        """Nobody gets anything until it is resumed, also after a restart; what is leased may be settled."""
        return await self._set_paused(request, Subscription.pause)

    async def resume(self, request: Request) -> Response:
        """The end of a pause."""
        return await self._set_paused(request, Subscription.go_on)

    async def _set_paused(self, request: Request, change: Callable[[Subscription], int]) -> Response:
        self._subscription(request)
        check_fields(await optional_object(request), ())
        access, subscription = self._access, self._subscription(request)
        await access.kept(change(subscription), "fsync")
        await heads_known(access.broker.log, [subscription])
        return json_response(_shown(access.broker.log, request.names["subscription"], subscription))

    def _subscription(self, request: Request) -> Subscription:
        """The one in the path. Raises RoutingError, HttpError 409."""
        stream = self._access.stream(request)
        return self._access.vhost(request).subscriptions.get(stream.name, request.names["subscription"])

    async def _position(self, request: Request, value: Any, name: str) -> int:
        """The position that `value` stands for. Raises HttpError 400."""
        log = self._access.broker.log
        if value == "latest":
            return log.appender.next_lsn
        if value == "earliest":
            return 1
        number = whole(value)
        since = parse_since(value if number is None else number, log.now_ms())
        if since is None:
            raise HttpError(
                400,
                "bad_field",
                f'{name} is "earliest", "latest", "pos:N", "-1h", a time with its zone (RFC 3339), or '
                "milliseconds since the epoch",
            )
        return await position_of(log, self._access.vhost(request).lp, since)


def _stream_shown(stream: Stream) -> dict[str, Any]:
    return {
        "name": stream.name,
        "messages": stream.ready_count,
        "first_offset": stream.first_offset,
        "next_offset": stream.next_offset,
        "max_age": stream.arguments.get("x-max-age"),
        "max_bytes": stream.arguments.get("x-max-length-bytes"),
    }


def _shown(log: Log, name: str, subscription: Subscription) -> dict[str, Any]:
    arguments = subscription.arguments
    limit = arguments.get("x-delivery-limit")
    return {
        "name": name,
        "stream": subscription.stream.name,
        **figures(log, subscription),
        "ack_timeout_ms": arguments.get("x-ack-timeout-ms"),
        "nack_min_ms": arguments.get("x-nack-min-ms"),
        "nack_max_ms": arguments.get("x-nack-max-ms"),
        "max_deliveries": limit + 1 if isinstance(limit, int) else None,
        "dead_letter": arguments.get("x-dead-letter-routing-key"),
    }
