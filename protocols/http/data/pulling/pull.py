"""Pull with leases: take messages of a queue or a subscription, or wait for some; settle them later.

    POST SOURCE/pull            {max_messages, max_bytes, wait_ms, lease_ms, consumer}   each with a handle
    POST SOURCE/ack             {handles}                              they are done
    POST SOURCE/nack            {handles, dead_letter, delay_ms}       back to their places, or dead-lettered
    POST SOURCE/extend          {handles, lease_ms}                    more time
    POST SOURCE/ack-cumulative  {handle}                               it is done, with all before it

With `Accept: application/x-ndjson` a pull goes on (`lines`).
With `?txn=T` the last, ack and nack are staged in a transaction (`transactions`).

SOURCE is queues/Q, or streams/S/subscriptions/N. A poll (`polls`) is a consumer attached until it has
something: its share of the turns is that of any consumer. Subscriptions in which it matters who takes a
message are pulled by consumers with a name (`members`).
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from penstock.log_core.batch._batch import MQTT5
from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.pulling.leases import Lease, Leases, requeue, settle
from penstock.protocols.http.data.pulling.members import Member, Members
from penstock.protocols.http.data.pulling.ndjson import Window, attach, lines
from penstock.protocols.http.data.pulling.polls import BYTES_MAX, Polls
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.fields import Whole, check_fields, number_of, object_of, optional_object
from penstock.protocols.http.shared.taking import Delivery
from penstock.router.names import text
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.streams.subscription import Subscription

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record
    from penstock.protocols.http.data.publishing.staged import Staged, Transaction
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["DELAY_MS", "LEASE_MS", "PULL", "Puller", "shown", "shown_record"]

NDJSON: Final = "application/x-ndjson"
LEASE_MS: Final = Whole(30_000, 1000, 43_200_000)
PULL: Final = {
    "max_messages": Whole(10, 1, 1000),
    "max_bytes": Whole(BYTES_MAX, 1, 16 << 20),
    "min_messages": Whole(1, 1, 1000),
    "min_bytes": Whole(0, 0, 16 << 20),
    "wait_ms": Whole(5000, 0, 60_000),
    "lease_ms": LEASE_MS,
}
"""Numbers of a pull."""
DELAY_MS: Final = Whole(0, 0, 86_400_000)
_WINDOWS_MAX: Final = 1000
_HANDLES_MAX: Final = 10_000


class Puller:
    """The handlers."""

    def __init__(
        self, access: Access, polls: Polls, leases: Leases, members: Members, staged: Staged
    ) -> None:
        self._access = access
        self._polls = polls
        self._leases = leases
        self._members = members
        self._staged = staged
        self._windows = 0

    async def pull(self, request: Request) -> Response:
        """Take messages, waiting for some."""
        access = self._access
        source = access.source(request)
        body = await optional_object(request)
        check_fields(body, (*PULL, "consumer"))
        numbers = [number_of(body, name, bounds) for name, bounds in PULL.items()]
        wanted, bytes_max, least_messages, least_bytes, wait_ms, lease_ms = numbers
        least = least_messages, least_bytes
        member = self._member(request, source, body.get("consumer"))
        if NDJSON in request.headers.get("accept", ""):
            if least != (1, 0):
                raise HttpError(
                    400, "bad_field", "min_messages, min_bytes: a pull that goes on waits for no more"
                )
            if self._windows >= _WINDOWS_MAX:
                raise HttpError(
                    503, "too_many_polls", f"{_WINDOWS_MAX} pulls go on already; try again", retry_after_s=5
                )
            window = Window(source, wanted, bytes_max)
            attach(source, window, member)
            wait_s = wait_ms / 1000 if "wait_ms" in body else None
            return Response(
                200,
                content_type=NDJSON,
                headers=(("cache-control", "no-store"),),
                stream=self._lines(request, source, window, member, lease_ms / 1000, wait_s),
            )
        with access.watched(request):
            deliveries = await self._polls.take(
                request, source, wanted, wait_ms / 1000, bytes_max=bytes_max, least=least, member=member
            )
        access.messages.delivered += len(deliveries)
        answer: dict[str, Any] = {
            "messages": [self._lease(one, lease_ms / 1000, member) for one in deliveries]
        }
        if member is not None and source.kind is Kind.FAILOVER:
            answer["active"] = member.is_active
        return json_response(answer)

    def _member(self, request: Request, source: Queue, name: Any) -> Member | None:
        """The consumer that pulls; None: it does not matter who does."""
        if not isinstance(source, Subscription):
            if name is not None:
                raise HttpError(400, "bad_field", "consumer: consumers of a queue have no names")
            if source.auto_delete:
                raise HttpError(409, "wrong_mode", "an auto-delete queue ends with its consumer: consume it")
            if source.arguments.get("x-queue-type") == "stream":
                raise HttpError(409, "wrong_mode", "a stream is read from a position and not pulled")
            return None
        if name is None and source.kind is Kind.SHARED and source.durable:
            return None
        if not isinstance(name, str):
            raise HttpError(
                400, "bad_field", "consumer: this subscription is pulled by consumers with a name: add one"
            )
        return self._members.get(source, name, self._access.identity(request))

    async def _lines(
        self,
        request: Request,
        source: Queue,
        window: Window,
        member: Member | None,
        lease_s: float,
        wait_s: float | None,
    ) -> AsyncGenerator[bytes, None]:
        def lease(delivery: Delivery) -> dict[str, Any]:
            self._access.messages.delivered += 1
            return self._lease(delivery, lease_s, member, window)

        self._windows += 1
        try:
            with self._access.watched(request):
                async with aclosing(lines(request, source, window, member, lease, wait_s)) as found:
                    async for line in found:
                        yield line
        finally:
            self._windows -= 1

    def _lease(
        self, delivery: Delivery, lease_s: float, member: Member | None, window: Window | None = None
    ) -> dict[str, Any]:
        lease = self._leases.add(delivery, lease_s, member, window)
        return {**shown(self._access, delivery), "handle": lease.handle}

    # Settling

    async def ack(self, request: Request) -> Response:
        """They are done."""
        return await self._settle(request, lambda _: settle, ())

    async def nack(self, request: Request) -> Response:
        """They are not."""
        return await self._settle(request, _given_back, ("delay_ms", "dead_letter"))

    async def extend(self, request: Request) -> Response:
        """They take longer."""
        source, body, leases = await self._handles(request, ("lease_ms",))
        if request.parameter("txn"):
            raise HttpError(400, "bad_field", "txn: what is staged stays leased; extend without it")
        lease_ms = number_of(body, "lease_ms", LEASE_MS)
        for lease in leases.values():
            if lease is not None:
                self._leases.extend(lease, lease_ms / 1000)
        return self._told(source, body["handles"], leases)

    async def _settle(
        self,
        request: Request,
        how_of: Callable[[dict[str, Any]], Callable[[Delivery], None] | float],
        fields: tuple[str, ...],
    ) -> Response:
        """`how_of` reads from `fields` what becomes of messages, or after how many seconds they go back."""
        source, body, leases = await self._handles(request, fields)
        how = how_of(body)
        there = [lease for lease in leases.values() if lease is not None]
        transaction = self._transaction(request)
        if transaction is not None:
            if isinstance(how, float):
                raise HttpError(400, "bad_field", "delay_ms: not in a transaction")
            self._staged.settle(transaction, there, how)
            return self._told(source, body["handles"], leases)
        for lease in there:
            if isinstance(how, float):
                self._leases.end_later(lease, how)
            else:
                self._leases.end(lease, how)
        self._settled(source)
        return self._told(source, body["handles"], leases)

    async def _handles(
        self, request: Request, fields: tuple[str, ...]
    ) -> tuple[Queue, dict[str, Any], dict[str, Lease | None]]:
        """Deliveries to settle: their source, the body, and the lease of each handle; None: it is stale."""
        source = self._access.source(request)
        body = object_of(await request.json())
        check_fields(body, ("handles", *fields))
        handles = body.get("handles")
        if not isinstance(handles, list) or not all(isinstance(one, str) for one in handles):
            raise HttpError(400, "bad_field", "handles is a list of handles, as a pull gave them")
        if len(handles) > _HANDLES_MAX:
            raise HttpError(413, "too_many_handles", f"more than {_HANDLES_MAX} handles in one request")
        return source, body, {handle: self._leases.get(source, handle) for handle in handles}

    def _told(self, source: Queue, handles: list[str], leases: dict[str, Lease | None]) -> Response:
        """The outcome for each handle."""
        results: list[dict[str, Any]] = [
            {"handle": handle, **({} if leases[handle] is not None else {"error": {"code": "stale_handle"}})}
            for handle in handles
        ]
        stale = sum(lease is None for lease in leases.values())
        if stale and stale == len(leases):
            raise HttpError(
                409, "stale_handle", f"no handle is leased (any more) from '{source.name}': pull again"
            )
        return json_response({"results": results}, 207 if stale else 200)

    def _transaction(self, request: Request) -> Transaction | None:
        """The one that a request is staged in. Raises HttpError 410."""
        if not (id := request.parameter("txn")):
            return None
        vhost, identity = self._access.vhost(request), self._access.identity(request)
        return self._staged.get(id, vhost.name, identity.username)

    async def ack_cumulative(self, request: Request) -> Response:
        """It is done, and all that its consumer got before it."""
        source = self._access.source(request)
        body = object_of(await request.json())
        check_fields(body, ("handle",))
        if source.kind not in (Kind.EXCLUSIVE, Kind.FAILOVER):
            raise HttpError(
                409,
                "wrong_mode",
                f"'{source.name}' is {source.kind.value}: its messages are acknowledged one by one (ack)",
            )
        lease = self._leases.get(source, body.get("handle"))
        if lease is None:
            raise HttpError(409, "stale_handle", f"the handle is not leased (any more) from '{source.name}'")
        done = self._leases.up_to(lease)
        transaction = self._transaction(request)
        if transaction is not None:
            self._staged.settle(transaction, done, settle)
            return json_response({"acknowledged": len(done)})
        for one in done:
            self._leases.end(one, settle)
        self._settled(source)
        return json_response({"acknowledged": len(done)})

    def _settled(self, source: Queue) -> None:
        if not source.deleted:
            source.credit_gained()
        self._access.broker.tick.schedule()


def _given_back(body: dict[str, Any]) -> Callable[[Delivery], None] | float:
    delay_ms = number_of(body, "delay_ms", DELAY_MS)
    dead_letter = body.get("dead_letter", False)
    if not isinstance(dead_letter, bool):
        raise HttpError(400, "bad_field", "dead_letter is true or false")
    if dead_letter and delay_ms:
        raise HttpError(
            400, "bad_field", "delay_ms: what is dead-lettered does not come back: set one of them"
        )
    if dead_letter:
        return Delivery.reject
    return delay_ms / 1000 if delay_ms else requeue


def shown(access: Access, delivery: Delivery) -> dict[str, Any]:
    """A message as pull and tail show it."""
    return {
        **shown_record(access, delivery.record),
        "deliveries": delivery.deliveries + 1,
        "redelivered": delivery.redelivered,
    }


def shown_record(access: Access, record: Record) -> dict[str, Any]:
    """The same of a record of the log, whoever gets it."""
    message = access.messages.show(record)
    properties = message.properties
    headers = properties.pop("headers", {})
    item: dict[str, Any] = {
        "id": f"0:{record.lsn}",
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "published_at": record.ts,
        "headers": headers,
        **properties,
    }
    if isinstance(key := headers.get("x-key"), str):
        item["key"] = key
    if record.enc == MQTT5:
        item["topic"] = text(record.key)  # a routing key does not tell its . from its /
    try:
        item["value"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        item["value_b64"] = base64.b64encode(message.body).decode("ascii")
    return item
