"""Messages of clients on their way into the log: checked first, then appended, or kept until they are due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import PERSISTENT, SECTIONS
from penstock.protocols.amqp10.channel.refusals import LinkError
from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.codec.performatives import Accepted, Error, Rejected, Released
from penstock.protocols.amqp10.messages.translate import Stored, stored_from_amqp10
from penstock.protocols.headers import delay, firehose
from penstock.protocols.headers.half import HALF_HEADERS, Decided, decide, half_of
from penstock.protocols.headers.half import Prepared as HalfPrepared
from penstock.protocols.headers.half import prepare as keep_half
from penstock.protocols.headers.producer import numbered
from penstock.protocols.properties.editing import message_headers
from penstock.protocols.properties.properties import decode_properties
from penstock.router.arguments import MessageHeaders
from penstock.router.messages.delay_names import delay_name
from penstock.router.messages.delayed import HORIZON_MS
from penstock.router.messages.half import HalfMessage
from penstock.router.names import ENC_AMQP091, key_blocks_at, split_key_block
from penstock.router.publishing.once import Once
from penstock.router.publishing.publishing import Published
from penstock.router.routes._routes import Route

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.channel import Channel
    from penstock.protocols.amqp10.session.session import Session
    from penstock.router.publishing.refused_numbers import RefusedNumbers
    from penstock.router.rows import ProducerName

__all__ = ["Prepared", "Way", "append", "prepare", "resolve", "take_half"]

_TTL_MAX: Final = 2**32 - 2


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message that its user may send."""

    key: bytes
    stored: Stored
    due_ms: int = 0
    """When it is to go its way, since the epoch; 0 = now."""
    numbered: tuple[ProducerName, int] | None = None
    """The named producer it comes from, and its number."""
    half: HalfPrepared | Decided | None = None
    """Its part in half messages."""
    name: bytes | None = None
    """The key of its name while it is delayed."""
    cancels: bytes | None = None
    """The key of the name of the delayed message that it cancels; it goes nowhere itself."""
    delay_ms: int = 0
    """How long exchanges that delay hold it; 0: they do not."""
    held: Stored | None = None
    """The messages that they hold then."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where a message goes."""

    route: Route
    held: tuple[bytes, ...] = ()
    """The key blocks by which exchanges that delay publish it later."""


def prepare(session: Session, key: bytes, stored: Stored, payload: bytes) -> Prepared:
    """Check a message to a key block; `payload`: its bytes.

    Raises:
        LinkError: its user-id is another's, or it is due too late.
        HeaderRefused: an annotation of ours has a wrong value, or a delay is too long.

    """
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
    if not stored.has_own:
        return Prepared(key, stored, due_ms)
    headers = _headers(stored)
    number = numbered(session.vhost.name, session.identity.username, headers)
    half = half_of(headers)
    due = delay.due_ms(headers, session.broker.log.wall_ms())
    if due and due_ms:
        raise LinkError("amqp:invalid-field", "a delivery has one time; x-opt-delivery-... says another one")
    due_ms = due or due_ms
    name, cancelled = delay.names(headers)
    wait_ms = 0 if due_ms else delay.delay_ms(headers)
    if half is not None:
        if due_ms or wait_ms or name is not None:
            raise LinkError("amqp:not-allowed", "a half message has no delay")
        return Prepared(key, stored, numbered=number, half=half)
    held = None
    if not headers.keys().isdisjoint(delay.OWN):
        stored = stored_from_amqp10(payload, without=delay.OWN)
    if wait_ms:
        # As it comes later, so that no other exchange delays it again.
        held = stored_from_amqp10(payload, without=delay.OWN, changed={v.Symbol(delay.DELAY): -wait_ms})
    vhost, exchange = session.vhost.name, _exchange(key)
    return Prepared(
        key,
        stored,
        due_ms,
        number,
        name=None if name is None else delay_name(vhost, exchange, name),
        cancels=None if cancelled is None else delay_name(vhost, exchange, cancelled),
        delay_ms=wait_ms,
        held=held,
    )


def _headers(stored: Stored) -> MessageHeaders:
    """The headers of a message, for exchanges that look at them."""
    return message_headers(decode_properties(stored.block, entries=len(stored.block)))


def resolve(session: Session, message: Prepared) -> Way:
    """The way of a message as it is now. Raises RoutingError: it may not go there."""
    route = session.table.route(message.key)
    holders: list[str] | None = [] if message.delay_ms else None
    if route.per_message:
        headers = _headers(message.stored)
        route = session.vhost.route(session.identity, ENC_AMQP091, message.key, headers, holders)
    if route.error is not None:
        assert isinstance(route.error, PenstockError)
        raise route.error
    return Way(route, key_blocks_at(holders, (message.key,)) if holders else ())


def append(
    channel: Channel, message: Prepared, unsent: RefusedNumbers | None = None
) -> tuple[Any, int, bool]:
    """The outcome, and the LSN that it waits for: written, or synced. Raises RoutingError.

    `unsent`: numbers that were refused, where the sender hears of that.
    """
    session, stored = channel.session, message.stored
    way = resolve(session, message)
    route = way.route
    session.published += 1
    if message.cancels is not None:
        if not session.broker.delayed.cancel_named(session.vhost, session.identity, message.cancels):
            return Released(), 0, False
        return Accepted(), session.broker.log.appender.next_lsn - 1, True
    exchange = session.vhost.exchanges.get(_exchange(message.key))
    if message.numbered is None and (exchange is None or exchange.seen is None):
        published = _append(session, message, way)
    else:
        published = Once(message.numbered, unsent, exchange).append(
            session.broker.log,
            route,
            _headers(stored),
            len(stored.body),
            lambda: _append(session, message, way),
        )
    if session.vhost.firehose.is_on and not published.repeated:
        firehose.published(
            channel.place(), (message.key,), stored.block, stored.body, route, sections=stored.has_sections
        )
    session.schedule()
    if published.refused:
        return Rejected(Error("amqp:resource-limit-exceeded", "a queue is full")), 0, False
    if not (route.routed or published.replied or published.repeated or published.waits):
        return Released(), 0, False
    durable = stored.durable and (route.durable or published.waits)
    return Accepted(), published.lsn, durable


def _append(session: Session, message: Prepared, way: Way) -> Published:
    if message.name is None:
        return _append_in_time(session, message, way)
    with session.broker.log.unit():
        session.broker.delayed.cancel_named(session.vhost, session.identity, message.name)
        return _append_in_time(session, message, way)


def _append_in_time(session: Session, message: Prepared, way: Way) -> Published:
    if not (message.due_ms or way.held):
        return _append_now(session, message, way.route)
    vhost, log, route = session.vhost, session.broker.log, way.route
    if vhost.refuses:
        return Published(log.appender.next_lsn - 1, route, refused=route.routed or bool(way.held))
    starts: tuple[bytes, ...] = ()
    if message.due_ms:
        stored, due_ms = message.stored, message.due_ms
        if not route.routed:
            return Published(log.appender.next_lsn - 1, route)
    else:
        assert message.held is not None
        stored, due_ms, starts = message.held, log.wall_ms() + message.delay_ms + 1, way.held
        if route.routed and (published := _append_now(session, message, route)).refused:
            return published
    lsn = session.broker.delayed.schedule(
        vhost.name,
        due_ms,
        ENC_AMQP091,
        message.key,
        stored.block,
        stored.body,
        starts=starts,
        flags=_flags(stored),
        priority=_priority(stored),
        ttl_ms=_ttl_ms(stored),
        name=message.name,
    )
    return Published(lsn, route, waits=True)


def _append_now(session: Session, message: Prepared, route: Route) -> Published:
    stored = message.stored
    flags, priority, ttl_ms = _flags(stored), _priority(stored), _ttl_ms(stored)
    vhost, block, body = session.vhost, stored.block, stored.body
    if vhost.replies.waits_at(message.key):
        vhost.replies.deliver((message.key,), block, body, sections=stored.has_sections)
        return Published(0, route, replied=True)
    return vhost.publishing.append(route, message.key, block, body, flags, priority, ENC_AMQP091, ttl_ms)


def take_half(session: Session, message: Prepared, payload: bytes) -> tuple[Any, int, bool]:
    """Keep the message for a decision, or decide about one that is kept: as `append`, which it does not do.

    Raises RoutingError.
    """
    half, identity = message.half, session.identity
    assert half is not None
    if isinstance(half, Decided):
        return Accepted(), decide(session.vhost, identity, half), True
    if not resolve(session, message).route.routed:
        return Released(), 0, False
    stored = stored_from_amqp10(payload, without=HALF_HEADERS)
    kept = HalfMessage(stored.block, stored.body, _flags(stored), _priority(stored), _ttl_ms(stored))
    return Accepted(), keep_half(session.vhost, identity, half, message.key, kept), True


def _exchange(key: bytes) -> str:
    parts = split_key_block(key)
    assert parts is not None  # it was made of two short strings
    return parts[0]


def _flags(stored: Stored) -> int:
    return (PERSISTENT if stored.durable else 0) | (SECTIONS if stored.has_sections else 0)


def _priority(stored: Stored) -> int:
    return stored.priority if stored.has_priority else 0


def _ttl_ms(stored: Stored) -> int:
    """As a record has it: 0 = it does not expire."""
    ttl = stored.ttl_ms
    return max(ttl, 1) if ttl is not None and ttl <= _TTL_MAX else 0
