"""POST .../transactions: messages published and deliveries acknowledged as one atomic unit of the log.

    {"publish": [{"exchange": X, "routing_key": K, "value": ...} | {"queue": Q, "value": ...}, ...],
     "ack": [{"queue": Q, "handles": [...]} | {"stream": S, "subscription": N, "handles": [...]}, ...]}

So what was made of a message and its acknowledgement are kept together or not at all: work is neither lost
nor done twice, whatever breaks. Everything is looked at before anything happens: a stale handle, an exchange
that is not there, a queue that is full refuse the whole. With `Idempotency-Key` the transaction may be sent
again: it happens once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.log_core._batch import AMQP091
from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.bodies import Outgoing, message_of
from penstock.protocols.http.data.fields import object_of
from penstock.protocols.http.data.idempotency import Idempotency
from penstock.protocols.http.data.leases import Lease, Leases, settle
from penstock.protocols.http.messages import BODY_MAX, HttpError, Request, Response, json_response, parsed
from penstock.router.names import join_key_block

if TYPE_CHECKING:
    from penstock.router.identity import Identity
    from penstock.router.vhost import Vhost
    from penstock.subscriptions.queue import Queue

__all__ = ["Transactions"]

_MOST: Final = 1000
"""Messages and handles of one transaction, each."""


class Transactions:
    """The handler."""

    def __init__(self, access: Access, leases: Leases, idempotency: Idempotency) -> None:
        self._access = access
        self._all_leases = leases
        self._idempotency = idempotency

    async def commit(self, request: Request) -> Response:
        """Do it."""
        access = self._access
        vhost, identity = access.vhost(request), access.identity(request)
        raw = await request.body(BODY_MAX)
        body = object_of(parsed(raw))
        if unknown := sorted(set(body) - {"publish", "ack"}):
            raise HttpError(400, "bad_field", f"{unknown[0]}: there is no such field; there are publish, ack")
        key = request.headers.get("idempotency-key", "")
        once = self._idempotency.once(key, vhost.name, identity.username, request.target, raw)
        lsns = self._idempotency.known(once) if once is not None else None
        if repeated := lsns is not None:
            assert lsns is not None
        else:
            messages = _messages(body.get("publish", []))
            if messages:
                # What only settles makes room, and is never refused.
                access.accepting(vhost)
            leases = self._leases(request, body.get("ack", []))
            for exchange, message in messages:
                self._check(vhost, identity, exchange, message)
            lsns = []
            with access.broker.log.unit():
                for exchange, message in messages:
                    lsns.append(self._publish(vhost, identity, exchange, message))
                for lease in leases:
                    self._all_leases.end(lease, settle)
                queues = list(dict.fromkeys(lease.taken.queue for lease in leases))
                for queue in queues:
                    lsns.append(queue.persist())
                if once is not None:
                    self._idempotency.keep(once, lsns)
            for queue in queues:
                queue.credit_gained()
        await access.kept(max(lsns, default=0), "fsync")
        count = len(body.get("publish", []))
        return json_response({"results": [{"id": f"0:{lsn}"} for lsn in lsns[:count]], "duplicate": repeated})

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
        """What an item of `ack` was pulled from, and its handles."""
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

    def _check(self, vhost: Vhost, identity: Identity, exchange: str, message: Outgoing) -> None:
        """Raises HttpError: it cannot be published."""
        try:
            key = join_key_block(exchange, message.routing_key or "")
            headers = message.properties.get("headers") or {}
            route = vhost.route(identity, AMQP091, key, headers)
            if route.error is not None:
                raise route.error
        except PenstockError as error:
            raise self._access.app.translate(error) from error
        except ValueError as error:
            raise HttpError(400, "bad_field", f"publish: routing_key: {error}") from error
        if any(guard.queue.refuses(len(message.body)) for guard in route.guards):
            raise HttpError(422, "queue_full", "a queue that a message was to go to is full")

    def _publish(self, vhost: Vhost, identity: Identity, exchange: str, message: Outgoing) -> int:
        return self._access.messages.publish(
            vhost,
            identity,
            exchange,
            message.routing_key or "",
            message.properties,
            message.body,
            due_ms=message.due_ms,
        ).lsn


def _messages(value: Any) -> list[tuple[str, Outgoing]]:
    """(exchange, message) of each."""
    if not isinstance(value, list):
        raise HttpError(400, "bad_field", "publish is a list of messages")
    if len(value) > _MOST:
        raise HttpError(413, "too_many_messages", f"more than {_MOST} messages in one transaction")
    found: list[tuple[str, Outgoing]] = []
    for at, item in enumerate(value):
        item = dict(object_of(item))
        exchange, queue = item.pop("exchange", None), item.pop("queue", None)
        if (exchange is None) == (queue is None) or not isinstance(exchange or queue or "", str):
            raise HttpError(400, "bad_field", f"publish[{at}]: either exchange or queue is needed")
        message = message_of(item, f"publish[{at}]")
        if queue is not None:
            message.routing_key = queue
        found.append(("" if exchange in (None, "amq.default") else exchange, message))
    return found
