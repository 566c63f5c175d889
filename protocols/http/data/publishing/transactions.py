"""Messages published and deliveries settled as one atomic unit of the log, in one request or in many.

    POST .../transactions               {"publish": [{"exchange": X, "routing_key": K, "value": ...}
                                          | {"queue": Q, "value": ...}, ...],
                                         "ack": [{"queue": Q, "handles": [...]}
                                          | {"stream": S, "subscription": N, "handles": [...]}, ...]}
    POST .../transactions               {"timeout_ms": ...}: opens one, 201 {"id": T}
    POST .../messages?txn=T             staged in it, and so are ack, nack and ack-cumulative (`staged`)
    GET  .../transactions/T             what is staged
    POST .../transactions/T/commit      all of it happens; sent again, it has the first answer
    POST .../transactions/T/rollback    nothing of it does

So what was made of a message and its acknowledgement are kept together or not at all: work is neither lost
nor done twice, whatever breaks. Everything is looked at before anything happens: a stale handle, an exchange
that is not there, a queue that is full or that the messages themselves fill up refuse the whole, and
leave what is open as it was. With `Idempotency-Key` the request that does all may be sent again: it happens
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.publishing.bodies import message_of
from penstock.protocols.http.data.publishing.destinations import Destination, Ready, Run, ready
from penstock.protocols.http.data.publishing.idempotency import Idempotency, Kept, Once
from penstock.protocols.http.data.pulling.leases import Lease, Leases, settle
from penstock.protocols.http.server.messages import (
    BODY_MAX,
    HttpError,
    Request,
    Response,
    json_response,
    parsed,
)
from penstock.protocols.http.shared.fields import Whole, destination, number_of, object_of, optional_object

if TYPE_CHECKING:
    from penstock.protocols.http.data.publishing.staged import Staged, Transaction
    from penstock.protocols.http.shared.taking import Delivery
    from penstock.router.authorization.identity import Identity
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Transactions"]

_MOST: Final = 1000
"""Messages and handles of a transaction that is one request, each."""
TIMEOUT_MS: Final = Whole(60_000, 1000, 900_000)
_AT_ONCE: Final = ("publish", "ack")


class Transactions:
    """The handlers."""

    def __init__(self, access: Access, leases: Leases, staged: Staged, idempotency: Idempotency) -> None:
        self._access = access
        self._all_leases = leases
        self._staged = staged
        self._idempotency = idempotency

    async def post(self, request: Request) -> Response:
        """Do one at once, or open one."""
        raw = await request.body(BODY_MAX)
        body = object_of(parsed(raw)) if raw else {}
        if any(name in body for name in _AT_ONCE):
            return await self._at_once(request, body, raw)
        if unknown := sorted(set(body) - {"timeout_ms"}):
            raise HttpError(
                400,
                "bad_field",
                f"{unknown[0]}: there is no such field; publish and ack make a transaction at once, "
                "timeout_ms opens one",
            )
        if "idempotency-key" in request.headers:
            raise HttpError(
                400,
                "bad_field",
                "Idempotency-Key: one whose id was lost ends by itself; open another",
            )
        vhost, identity = self._access.vhost(request), self._access.identity(request)
        timeout_ms = number_of(body, "timeout_ms", TIMEOUT_MS)
        one = self._staged.begin(vhost.name, identity.username, timeout_ms / 1000)
        return json_response({"id": one.id, "timeout_ms": timeout_ms}, 201)

    # At once

    async def _at_once(self, request: Request, body: dict[str, Any], raw: bytes) -> Response:
        access = self._access
        vhost, identity = access.vhost(request), access.identity(request)
        if unknown := sorted(set(body) - set(_AT_ONCE)):
            raise HttpError(400, "bad_field", f"{unknown[0]}: there is no such field; there are publish, ack")
        key = request.headers.get("idempotency-key", "")
        once = self._idempotency.once(key, vhost.name, identity.username, request.target, raw)
        known = self._idempotency.known(once) if once is not None else None
        if known is not None:
            return await self._answer(known, repeated=True)
        messages = [
            ready(access, way, one) for way, one in _messages(vhost, identity, body.get("publish", []))
        ]
        if messages:
            # A unit that only settles makes room, and is never refused.
            access.accepting(vhost, identity)
        leases = self._leases(request, body.get("ack", []))
        results = self._do(messages, [(lease, settle) for lease in leases], once)
        return await self._answer(results, repeated=False)

    def _leases(self, request: Request, value: Any) -> list[Lease]:
        if not isinstance(value, list):
            raise HttpError(400, "bad_field", "ack is a list of objects with queue and handles")
        leases: list[Lease] = []
        for at, item in enumerate(value):
            leases += self._all_leases.all(*self._source(request, object_of(item), f"ack[{at}]"))
        if len(leases) > _MOST:
            raise HttpError(413, "too_many_handles", f"more than {_MOST} handles in one transaction")
        if len({id(lease) for lease in leases}) < len(leases):
            raise HttpError(400, "bad_field", "ack: a handle twice")
        return leases

    def _source(self, request: Request, item: dict[str, Any], where: str) -> tuple[Queue, list[Any]]:
        """The source that an item of `ack` was pulled from, and its handles."""
        queue, stream, name = item.get("queue"), item.get("stream"), item.get("subscription")
        handles = item.get("handles")
        if isinstance(handles, list):
            if isinstance(queue, str) and stream is None:
                return self._access.queue_named(request, queue), handles
            if queue is None and isinstance(stream, str) and isinstance(name, str):
                found = self._access.stream_named(request, stream)
                return self._access.vhost(request).subscriptions.get(found.name, name), handles
        raise HttpError(
            400, "bad_field", f"{where}: an object with handles, and queue, or stream and subscription"
        )

    # In several requests

    def _named(self, request: Request) -> Transaction:
        vhost, identity = self._access.vhost(request), self._access.identity(request)
        return self._staged.get(request.names["transaction"], vhost.name, identity.username)

    async def show(self, request: Request) -> Response:
        """The staged messages."""
        one = self._named(request)
        return json_response(
            {
                "id": one.id,
                "messages": len(one.messages),
                "handles": len(one.settling),
                "bytes": one.size,
                "left_ms": int(self._staged.left_s(one) * 1000),
            }
        )

    async def commit(self, request: Request) -> Response:
        """All that is staged happens."""
        access = self._access
        await optional_object(request)
        vhost, identity = access.vhost(request), access.identity(request)
        id = request.names["transaction"]
        once = self._idempotency.of_transaction(id, vhost.name, identity.username)
        known = self._idempotency.known(once)
        if known is not None:
            return await self._answer(known, repeated=True)
        one = self._staged.get(id, vhost.name, identity.username)
        if one.messages:
            access.accepting(vhost, identity)
        ending = []
        for settling in one.settling.values():
            lease = self._all_leases.get(settling.queue, settling.handle)
            if lease is None:
                raise HttpError(
                    409,
                    "stale_handle",
                    f"a handle of '{settling.queue.name}' is not leased any more: roll back, and begin again",
                )
            ending.append((lease, settling.how))
        results = self._do(one.messages, ending, once)
        self._staged.end(one)
        return await self._answer(results, repeated=False)

    async def rollback(self, request: Request) -> Response:
        """Nothing that is staged happens. A transaction that is over already stays as it is."""
        await optional_object(request)
        self._staged.end(self._named(request))
        return json_response({})

    # Both

    def _do(
        self,
        messages: Sequence[Ready],
        ending: Sequence[tuple[Lease, Callable[[Delivery], None]]],
        once: Once | None,
    ) -> list[Kept]:
        """Do it, as one unit: the result of each message, and last the LSN of what queues keep of their
        deliveries.

        Raises:
            HttpError: it cannot be done; nothing was.

        """
        run = Run(self._access.broker, messages)
        run.check()
        with self._access.broker.log.unit():
            lsns = run.append()
            for lease, how in ending:
                self._all_leases.end(lease, how)
            queues = list(dict.fromkeys(lease.delivery.queue for lease, _ in ending))
            results: list[Kept] = list(zip(lsns, run.routed, strict=True))
            results.append((max((queue.promise() for queue in queues), default=0), None))
            if once is not None:
                self._idempotency.keep(once, results)
        for queue in queues:
            queue.credit_gained()
        return results

    async def _answer(self, results: list[Kept], *, repeated: bool) -> Response:
        """`results` as `_do` has them."""
        await self._access.kept(max(lsn for lsn, _ in results), "fsync")
        told = [
            {"id": f"0:{lsn}", **({} if routed is None else {"routed": routed})}
            for lsn, routed in results[:-1]
        ]
        return json_response({"results": told, "duplicate": repeated})


def _messages(vhost: Vhost, identity: Identity, value: Any) -> list[tuple[Destination, Any]]:
    """Each with its way."""
    if not isinstance(value, list):
        raise HttpError(400, "bad_field", "publish is a list of messages")
    if len(value) > _MOST:
        raise HttpError(413, "too_many_messages", f"more than {_MOST} messages in one transaction")
    found: list[tuple[Destination, Any]] = []
    for at, item in enumerate(value):
        item = dict(object_of(item))
        exchange, queue = destination(item, f"publish[{at}]")
        way = Destination(identity, vhost, exchange, queue or "", queue is not None, False)
        found.append((way, message_of(item, f"publish[{at}]")))
    return found
