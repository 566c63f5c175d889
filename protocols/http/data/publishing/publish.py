"""POST .../messages: publish one message or many, answer one by one when they are kept.

    ?ack=fsync    answer when all that must be durable is on the disk (default)
    ?ack=written  when they are written
    ?ack=none     at once: 202
    ?mandatory=true  a message that goes to no queue is refused, and not kept

    ?txn=T        staged in a transaction, kept when that is committed (`transactions`): 202

With `Idempotency-Key` it is one atomic unit, and sent again it is appended once (`idempotency`); so it is
when a producer numbers it (`producers`).

200 when all are kept, 207 when some were refused, the status of the first refusal when all were. Each result
says whether a queue or subscription gets the message (`routed`), unless it waits for its time or was sent
before. A queue or stream that is named in the path must be there: 404.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.data.access import Access, absent
from penstock.protocols.http.data.publishing.bodies import Outgoing, messages_of
from penstock.protocols.http.data.publishing.destinations import Destination, Ready, ready
from penstock.protocols.http.data.publishing.idempotency import Idempotency, Once
from penstock.protocols.http.data.publishing.producers import Number, NumberedProducers
from penstock.protocols.http.server.messages import BODY_MAX, HttpError, Request, Response, json_response
from penstock.router.errors import AccessRefused
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.protocols.http.data.publishing.staged import Staged

__all__ = ["ACKS", "Publisher"]

ACKS: Final = ("none", "written", "fsync")
_AT_ONCE: Final = 500
"""Messages appended before the loop does something else."""
_ONCE_MAX: Final = 1000
"""Messages of one atomic unit."""

Marks = dict[int, Mapping[str, bool]]
"""The fields of a message's result besides its id, by its place; a message that is not there was routed."""
_ROUTED: Final = {"routed": True}
_UNROUTED: Final[Mapping[str, bool]] = {"routed": False}
_REPEATED: Final[Mapping[str, bool]] = {"duplicate": True}
_WAITS: Final[Mapping[str, bool]] = {}


class Publisher:
    """The handlers."""

    def __init__(
        self, access: Access, idempotency: Idempotency, producers: NumberedProducers, staged: Staged
    ) -> None:
        self._access = access
        self._idempotency = idempotency
        self._producers = producers
        self._staged = staged

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
            raise absent("stream", name, vhost)
        return await self._publish(request, "", request.names["stream"], fixed=True)

    async def _publish(
        self, request: Request, exchange: str, default: str, *, fixed: bool = False
    ) -> Response:
        vhost, identity = self._access.vhost(request), self._access.identity(request)
        way = Destination(identity, vhost, exchange, default, fixed, request.flag("mandatory"))
        return await self.serve(request, way)

    async def serve(self, request: Request, way: Destination) -> Response:
        """Publish what a request has, on its way."""
        access, vhost, identity = self._access, way.vhost, way.identity
        ack = request.parameter("ack", "fsync")
        if ack not in ACKS:
            raise HttpError(400, "bad_field", f"ack is one of {', '.join(ACKS)}")
        access.accepting(vhost, identity)
        body = await request.body(BODY_MAX)
        access.accepting(vhost, identity)  # it may have taken a while
        number = self._producers.number_of(request, vhost.name, identity.username)
        if id := request.parameter("txn"):
            return await self._stage(request, way, body, id, numbered=number is not None)
        if number is not None:
            return self._numbered(number, way, messages_of(request, body), ack)
        key = request.headers.get("idempotency-key", "")
        once = self._idempotency.once(key, vhost.name, identity.username, request.target, body)
        messages = messages_of(request, body)
        results, status, lsn = await self._append_all(way, messages, ack, once)
        return self._when_kept(json_response({"results": results}, status), lsn, ack)

    def _when_kept(self, response: Response, lsn: int, ack: str) -> Response:
        if ack == "none":
            self._access.broker.tick.schedule()
        else:
            response.kept = lsn, ack == "fsync"
        return response

    def _numbered(self, number: Number, way: Destination, messages: list[Outgoing], ack: str) -> Response:
        """Messages with a producer's numbers: all of it or nothing, and once."""
        if not messages:
            raise HttpError(400, "bad_field", "a numbered request has messages")
        _check_unit(messages, "Penstock-Sequence")
        access = self._access
        kept, lsn, repeated = self._producers.append(number, [ready(access, way, one) for one in messages])
        results = [
            {
                **({"id": f"0:{at}"} if at else {}),
                **_routed(routed),
                **({"duplicate": True} if repeated else {}),
            }
            for at, routed in kept
        ]
        return self._when_kept(json_response({"results": results}, 202 if ack == "none" else 200), lsn, ack)

    async def _stage(
        self, request: Request, way: Destination, body: bytes, id: str, *, numbered: bool
    ) -> Response:
        """Keep the messages for the commit of a transaction."""
        if numbered or "idempotency-key" in request.headers or request.parameter("ack"):
            raise HttpError(
                400,
                "bad_field",
                "txn: what is in a transaction happens once, when it is committed and on the disk; without "
                "Idempotency-Key, Penstock-Producer and ack",
            )
        place = id, way.vhost.name, way.identity.username
        self._staged.get(*place)
        messages: list[Ready] = []
        for at, message in enumerate(messages_of(request, body)):
            if at and at % _AT_ONCE == 0:
                await asyncio.sleep(0)
            one = ready(self._access, way, message)
            one.route()
            messages.append(one)
        transaction = self._staged.get(*place)  # its time may be up by now
        first = self._staged.publish(transaction, messages)
        return json_response({"results": [{"staged": first + at} for at in range(len(messages))]}, 202)

    async def publish(self, way: Destination, messages: list[Outgoing], ack: str) -> list[dict[str, Any]]:
        """Append messages and wait for what `ack` promises: a result for each.

        Raises:
            HttpError: none was kept.

        """
        results, _, lsn = await self._append_all(way, messages, ack, None)
        await self._access.kept(lsn, ack)
        return results

    async def _append_all(
        self, way: Destination, messages: list[Outgoing], ack: str, once: Once | None
    ) -> tuple[list[dict[str, Any]], int, int]:
        """Append messages: a result for each, the status of all, and the LSN to wait for.

        Raises:
            HttpError: none was kept.

        """
        if once is not None:
            lsns, refusals, marks = self._once(once, way, messages)
        else:
            lsns, refusals, marks = await self._all(way, messages)
        if refusals and not any(lsns):
            raise next(iter(refusals.values()))
        status = 202 if ack == "none" else 200
        if not refusals and not marks and all(lsns):
            return [{"id": f"0:{lsn}", "routed": True} for lsn in lsns], status, lsns[-1] if lsns else 0
        results: list[dict[str, Any]] = []
        for at, lsn in enumerate(lsns):
            if lsn:
                results.append({"id": f"0:{lsn}", **marks.get(at, _ROUTED)})
            else:
                error = refusals.get(at)
                told = {"code": error.code, "detail": error.detail} if error else {"code": "refused"}
                results.append({"error": told})
        return results, status if all(lsns) else 207, max(lsns)

    async def _all(
        self, way: Destination, messages: list[Outgoing]
    ) -> tuple[list[int], dict[int, HttpError], Marks]:
        """Append them one by one: the LSN of each (0: refused), why, and what else their results say."""
        lsns: list[int] = []
        refusals: dict[int, HttpError] = {}
        marks: Marks = {}
        known: str | None = None
        fast_path: tuple[Callable[[str, bytes], int], bool] | None = None
        for at, message in enumerate(messages):
            if at and at % _AT_ONCE == 0:
                await asyncio.sleep(0)
                known = None
            if message.plain and way.ready is None:
                key = way.key_of(message)
                if key != known:
                    known = key
                    fast_path = self._access.messages.appender(
                        way.vhost, way.identity, way.exchange, key, must_route=way.mandatory or way.fixed
                    )
                if fast_path is not None:
                    append, routed = fast_path
                    lsns.append(append(message.properties["content_type"], message.body))
                    if not routed:
                        marks[at] = _UNROUTED
                    continue
            self._one(way, at, message, lsns, refusals, marks)
        return lsns, refusals, marks

    def _once(
        self, once: Once, way: Destination, messages: list[Outgoing]
    ) -> tuple[list[int], dict[int, HttpError], Marks]:
        """The same in one unit, or what came of it the first time."""
        known = self._idempotency.known(once)
        if known is not None:
            marks: Marks = {at: {**_REPEATED, **_routed(routed)} for at, (_, routed) in enumerate(known)}
            return [lsn for lsn, _ in known], {}, marks
        _check_unit(messages, "Idempotency-Key")
        lsns: list[int] = []
        refusals: dict[int, HttpError] = {}
        marks = {}
        with self._access.broker.log.unit():
            for at, message in enumerate(messages):
                self._one(way, at, message, lsns, refusals, marks)
            if any(lsns):
                self._idempotency.keep(
                    once, [(lsn, marks.get(at, _ROUTED).get("routed")) for at, lsn in enumerate(lsns)]
                )
        return lsns, refusals, marks

    def _one(
        self,
        way: Destination,
        at: int,
        message: Outgoing,
        lsns: list[int],
        refusals: dict[int, HttpError],
        marks: Marks,
    ) -> None:
        try:
            one = ready(self._access, way, message)
            if way.mandatory or way.fixed:
                one.route()
            published = one.append()
            if published.refused:
                raise HttpError(422, "queue_full", "a queue that it was to go to is full and refuses more")
        except HttpError as error:
            refusals[at] = error
            lsns.append(0)
            return
        lsns.append(published.lsn)
        if published.repeated:
            marks[at] = _REPEATED
        elif not published.routed:
            marks[at] = _UNROUTED if published.routed is False else _WAITS


def _routed(routed: bool | None) -> Mapping[str, bool]:
    return _WAITS if routed is None else _ROUTED if routed else _UNROUTED


def _check_unit(messages: list[Outgoing], header: str) -> None:
    if len(messages) > _ONCE_MAX:
        raise HttpError(
            413, "too_many_messages", f"more than {_ONCE_MAX} messages in a request with {header}"
        )
