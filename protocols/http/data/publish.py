"""POST .../messages: publish one message or many, answer one by one when they are kept.

    ?ack=fsync    answer when all that must be durable is on the disk (default)
    ?ack=written  when they are written
    ?ack=none     at once: 202
    ?mandatory=true  a message that goes to no queue is refused, and not kept

With `Idempotency-Key` it is one atomic unit, and sent again it is appended once (`idempotency`).

200 when all are kept, 207 when some were refused, the status of the first refusal when all were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.log_core._batch import AMQP091
from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.bodies import Outgoing, messages_of
from penstock.protocols.http.data.idempotency import Idempotency, Once
from penstock.protocols.http.messages import BODY_MAX, HttpError, Request, Response, json_response
from penstock.router.errors import AccessRefused, NotFound
from penstock.router.names import join_key_block
from penstock.subscriptions.stream import Stream

if TYPE_CHECKING:
    from penstock.router.identity import Identity
    from penstock.router.publishing import Published
    from penstock.router.vhost import Vhost

__all__ = ["ACKS", "Publisher", "Way"]

ACKS: Final = ("none", "written", "fsync")
_AT_ONCE: Final = 500
"""Messages appended before the loop does something else."""
_ONCE_MAX: Final = 1000
"""Messages of one atomic unit."""


@dataclass(slots=True)
class Way:
    """Where messages go, and whose they are."""

    identity: Identity
    vhost: Vhost
    exchange: str
    default: str
    """The routing key of messages without one, or of all when `fixed`."""
    fixed: bool
    mandatory: bool
    append: Callable[[Outgoing], Published] | None = None
    """How, when it is not through an exchange. Raises HttpError."""

    def key_of(self, message: Outgoing) -> str:
        """The routing key of a message."""
        return self.default if self.fixed or message.routing_key is None else message.routing_key


class Publisher:
    """The handlers."""

    def __init__(self, access: Access, idempotency: Idempotency) -> None:
        self._access = access
        self._idempotency = idempotency

    async def to_exchange(self, request: Request) -> Response:
        """To an exchange; the key is the message's, or the request's `routing_key`."""
        name = request.names["exchange"]
        exchange = "" if name == "amq.default" else name
        return await self._publish(request, exchange, request.parameter("routing_key"))

    async def to_queue(self, request: Request) -> Response:
        """Straight into a queue, through the default exchange."""
        return await self._publish(request, "", request.names["queue"], fixed=True)

    async def to_stream(self, request: Request) -> Response:
        """Straight into a stream, which must be there."""
        vhost, name = self._access.vhost(request), request.names["stream"]
        identity = self._access.identity(request)
        if not self._access.broker.authorizer.allow(identity, vhost.name, "write", ""):
            raise AccessRefused("exchange", "", vhost.name, identity.username, "write")
        entry = vhost.queues.get(name)
        if entry is None or not isinstance(entry.queue, Stream):
            raise NotFound("queue", name, vhost.name)
        return await self._publish(request, "", request.names["stream"], fixed=True)

    async def _publish(
        self, request: Request, exchange: str, default: str, *, fixed: bool = False
    ) -> Response:
        vhost, identity = self._access.vhost(request), self._access.identity(request)
        way = Way(identity, vhost, exchange, default, fixed, request.flag("mandatory"))
        return await self.serve(request, way)

    async def serve(self, request: Request, way: Way) -> Response:
        """Publish what a request has, on its way."""
        access, vhost, identity = self._access, way.vhost, way.identity
        ack = request.parameter("ack", "fsync")
        if ack not in ACKS:
            raise HttpError(400, "bad_field", f"ack is one of {', '.join(ACKS)}")
        access.accepting(vhost)
        body = await request.body(BODY_MAX)
        access.accepting(vhost)  # it may have taken a while
        key = request.headers.get("idempotency-key", "")
        once = self._idempotency.once(key, vhost.name, identity.username, request.target, body)
        messages = messages_of(request, body)
        results, status, lsn = await self._append_all(way, messages, ack, once)
        response = json_response({"results": results}, status)
        if ack == "none":
            access.broker.tick.schedule()
        else:
            response.kept = lsn, ack == "fsync"
        return response

    async def publish(self, way: Way, messages: list[Outgoing], ack: str) -> list[dict[str, Any]]:
        """Append messages and wait for what `ack` promises: a result for each.

        Raises:
            HttpError: none was kept.

        """
        results, _, lsn = await self._append_all(way, messages, ack, None)
        await self._access.kept(lsn, ack)
        return results

    async def _append_all(
        self, way: Way, messages: list[Outgoing], ack: str, once: Once | None
    ) -> tuple[list[dict[str, Any]], int, int]:
        """Append messages: a result for each, the status of all, and the LSN to wait for.

        Raises:
            HttpError: none was kept.

        """
        if once is not None:
            lsns, refusals, repeated = self._once(once, way, messages)
        else:
            lsns, refusals, repeated = await self._all(way, messages)
        if refusals and not any(lsns):
            raise next(iter(refusals.values()))
        status = 202 if ack == "none" else 200
        if not refusals and not repeated and all(lsns):
            return [{"id": f"0:{lsn}"} for lsn in lsns], status, lsns[-1] if lsns else 0
        results: list[dict[str, Any]] = []
        for at, lsn in enumerate(lsns):
            if lsn:
                results.append({"id": f"0:{lsn}"})
                if at in repeated:
                    results[-1]["duplicate"] = True
            else:
                error = refusals.get(at)
                told = {"code": error.code, "detail": error.detail} if error else {"code": "refused"}
                results.append({"error": told})
        return results, status if all(lsns) else 207, max(lsns)

    async def _all(
        self, way: Way, messages: list[Outgoing]
    ) -> tuple[list[int], dict[int, HttpError], Collection[int]]:
        """Append them one by one: the LSN of each (0: refused), why, and which had been sent before."""
        lsns: list[int] = []
        refusals: dict[int, HttpError] = {}
        repeated: set[int] = set()
        known: str | None = None
        straight: Callable[[str, bytes], int] | None = None
        for at, message in enumerate(messages):
            if at and at % _AT_ONCE == 0:
                await asyncio.sleep(0)
                known = None
            if message.plain and way.append is None:
                key = way.key_of(message)
                if key != known:
                    known = key
                    straight = self._access.messages.straight(
                        way.vhost, way.identity, way.exchange, key, mandatory=way.mandatory
                    )
                if straight is not None:
                    lsns.append(straight(message.properties["content_type"], message.body))
                    continue
            self._one(way, at, message, lsns, refusals, repeated)
        return lsns, refusals, repeated

    def _once(
        self, once: Once, way: Way, messages: list[Outgoing]
    ) -> tuple[list[int], dict[int, HttpError], Collection[int]]:
        """The same in one unit, or what came of it the first time."""
        known = self._idempotency.known(once)
        if known is not None:
            return known, {}, range(len(known))
        if len(messages) > _ONCE_MAX:
            raise HttpError(
                413, "too_many_messages", f"more than {_ONCE_MAX} messages in a request with Idempotency-Key"
            )
        lsns: list[int] = []
        refusals: dict[int, HttpError] = {}
        repeated: set[int] = set()
        with self._access.broker.log.unit():
            for at, message in enumerate(messages):
                self._one(way, at, message, lsns, refusals, repeated)
            if any(lsns):
                self._idempotency.keep(once, lsns)
        return lsns, refusals, repeated

    def _one(
        self,
        way: Way,
        at: int,
        message: Outgoing,
        lsns: list[int],
        refusals: dict[int, HttpError],
        repeated: set[int],
    ) -> None:
        try:
            published = way.append(message) if way.append is not None else self._append(way, message)
        except HttpError as error:
            refusals[at] = error
            lsns.append(0)
            return
        lsns.append(published.lsn)
        if published.repeated:
            repeated.add(at)

    def _append(self, way: Way, message: Outgoing) -> Published:
        """Append one message. Raises HttpError."""
        access, vhost, exchange = self._access, way.vhost, way.exchange
        identity = way.identity
        key = way.key_of(message)
        try:
            if way.mandatory:
                block = join_key_block(exchange, key)
                route = vhost.route(identity, AMQP091, block, message.properties.get("headers") or {})
                if route.error is None and not route.routed:
                    raise HttpError(
                        422,
                        "unroutable",
                        f"no queue is bound to exchange '{exchange}' with key '{key}'"
                        if exchange
                        else f"there is no queue '{key}' in vhost '{vhost.name}'",
                    )
            published = access.messages.publish(
                vhost, identity, exchange, key, message.properties, message.body, due_ms=message.due_ms
            )
        except PenstockError as error:
            raise access.app.translate(error) from error
        except ValueError as error:
            raise HttpError(400, "bad_field", f"routing_key: {error}") from error
        if published.refused:
            raise HttpError(422, "queue_full", "a queue that it was to go to is full")
        return published
