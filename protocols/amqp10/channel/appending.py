"""Messages of clients on their way into the log: checked first, then appended, or kept until they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import PERSISTENT, SECTIONS
from penstock.protocols.amqp10.channel.refusals import LinkError
from penstock.protocols.amqp10.codec.performatives import Accepted, Error, Rejected, Released
from penstock.protocols.amqp10.messages.translate import Stored
from penstock.protocols.properties.properties import decode_properties
from penstock.router.arguments import MessageHeaders
from penstock.router.messages.delayed import HORIZON_MS
from penstock.router.names import ENC_AMQP091
from penstock.router.routes._routes import Route

if TYPE_CHECKING:
    from penstock.protocols.amqp10.session.session import Session

__all__ = ["Prepared", "append", "prepare", "resolve"]

_TTL_MAX: Final = 2**32 - 2


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message that its user may send."""

    key: bytes
    stored: Stored
    due_ms: int
    """When it is to go its way, since the epoch; 0 = now."""


def prepare(session: Session, key: bytes, stored: Stored) -> Prepared:
    """Check a message to a key block. Raises LinkError: its user-id is another's, or it is due too late."""
    if stored.has_user_id:
        user = _headers(stored).properties.get("user_id")
        if user is not None and user != session.identity.username:
            if "impersonator" not in session.identity.tags:
                raise LinkError("amqp:unauthorized-access", f"user-id '{user!s}' is not who logged in")
    due_ms = 0
    if stored.delivery_time_ms or stored.delivery_delay_ms:
        now_ms = session.broker.log.wall_ms()
        # The millisecond under way is not over: with one more nothing is early.
        due_ms = max(stored.delivery_time_ms, now_ms + stored.delivery_delay_ms) + 1
        if due_ms > now_ms + HORIZON_MS:
            raise LinkError("amqp:invalid-field", "a delivery is due within 100 years")
        due_ms = due_ms if due_ms > now_ms + 1 else 0
    return Prepared(key, stored, due_ms)


def _headers(stored: Stored) -> MessageHeaders:
    """The headers of a message, for exchanges that look at them."""
    properties = decode_properties(stored.block, entries=len(stored.block))
    found = properties.get("headers")
    return MessageHeaders(found if isinstance(found, dict) else {}, properties)


def resolve(session: Session, message: Prepared) -> Route:
    """The way of a message as it is now. Raises RoutingError: it may not go there."""
    route = session.table.route(message.key)
    if route.per_message:
        headers = _headers(message.stored)
        route = session.vhost.route(session.identity, ENC_AMQP091, message.key, headers)
    if route.error is not None:
        assert isinstance(route.error, PenstockError)
        raise route.error
    return route


def append(session: Session, message: Prepared) -> tuple[Any, int, bool]:
    """The outcome, and the LSN that it waits for: written, or synced. Raises RoutingError."""
    stored, ttl = message.stored, message.stored.ttl_ms
    flags = (PERSISTENT if stored.durable else 0) | (SECTIONS if stored.has_sections else 0)
    priority = stored.priority if stored.has_priority else 0
    ttl_ms = max(ttl, 1) if ttl is not None and ttl <= _TTL_MAX else 0
    session.published += 1
    if message.due_ms:
        if not resolve(session, message).routed:
            return Released(), 0, False
        if session.vhost.refuses:
            return Rejected(Error("amqp:resource-limit-exceeded", "the vhost's quota is used up")), 0, False
        lsn = session.broker.delayed.schedule(
            session.vhost.name,
            message.due_ms,
            ENC_AMQP091,
            message.key,
            stored.block,
            stored.body,
            flags=flags,
            priority=priority,
            ttl_ms=ttl_ms,
        )
        return Accepted(), lsn, stored.durable
    route = resolve(session, message)
    replies = session.vhost.replies
    if replies.waits_at(message.key):
        replies.deliver((message.key,), stored.block, stored.body, sections=stored.has_sections)
        return Accepted(), 0, False
    published = session.vhost.publishing.append(
        route, message.key, stored.block, stored.body, flags, priority, ENC_AMQP091, ttl_ms
    )
    session.schedule()
    if published.refused:
        return Rejected(Error("amqp:resource-limit-exceeded", "a queue is full")), 0, False
    if not route.routed:
        return Released(), 0, False
    return Accepted(), published.lsn, stored.durable and route.durable
