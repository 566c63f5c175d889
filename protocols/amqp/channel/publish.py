"""Publishes that Python must look at: headers exchanges, CC and BCC, delays, direct replies, transactions,
messages that MQTT clients are to find retained.

The kernel hands over a whole message it did not append. A message that it would refuse is refused here with
RabbitMQ's words; the rest is appended with the same record fields: at once, or at the commit of its
transaction. `check` looks at the message alone, `routed` at the exchanges, `append` changes something.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import PERSISTENT, RETAIN
from penstock.protocols.amqp.channel.channel import Channel
from penstock.protocols.amqp.codec.errors import soft, type_name
from penstock.protocols.amqp.codec.properties import decode_properties, message_headers
from penstock.protocols.headers import firehose
from penstock.protocols.headers.delay import delay_ms, due_ms, names, served, undelayed
from penstock.protocols.headers.half import HALF_HEADERS, Decided, Prepared, decide, half_of, prepare
from penstock.protocols.headers.producer import numbered
from penstock.protocols.properties.editing import with_reply_to, without_header
from penstock.protocols.properties.translate import EXCHANGE, topic_of
from penstock.protocols.properties.values import Table, Value
from penstock.router.errors import HalfUnknown, NotFound, TooManyHalves
from penstock.router.messages.delay_names import delay_name
from penstock.router.messages.half import HalfMessage
from penstock.router.messages.retained import RetainedMessage
from penstock.router.names import ENC_AMQP091, join_key_block, key_blocks_at, split_key_block, text, wire
from penstock.router.publishing.direct_replies import REPLY_TO
from penstock.router.publishing.once import Once
from penstock.router.publishing.publishing import Published
from penstock.router.routes._routes import Route
from penstock.router.rows import ProducerName

__all__ = ["Message", "Way", "append", "check", "publish", "routed"]

_EXPIRATION_MAX: Final = 315_360_000_000
"""Ten years in milliseconds, RabbitMQ's bound."""
_TTL_MAX: Final = 2**32 - 2
"""The longest that a record can say, 49 days; longer ones expire by their queue's rule only."""
_MANDATORY: Final = 1


@dataclass(frozen=True, slots=True)
class Message:
    """A message that may be published."""

    keys: tuple[bytes, ...]
    """The key blocks it is routed by, each once: its own, and one for each entry of CC and BCC."""
    mandatory: bool
    block: bytes
    """Its properties as consumers get them."""
    body: bytes
    headers: Table
    persistent: bool
    priority: int
    ttl_ms: int
    due_ms: int = 0
    """When it is published, ms since the epoch; 0 = now."""
    delay_ms: int = 0
    """How long exchanges that delay hold it; 0: they do not."""
    numbered: tuple[ProducerName, int] | None = None
    """The named producer it comes from, and its number."""
    retained_as: bytes | None = None
    """The topic under which MQTT clients find it retained."""
    name: bytes | None = None
    """The key of its name while it is delayed."""
    half: Prepared | Decided | None = None
    """Its part in half messages."""
    cancels: bytes | None = None
    """The key of the name of the delayed message that it cancels; it goes nowhere itself."""

    @property
    def size(self) -> int:
        """Bytes that it holds in memory, roughly."""
        return len(self.body) + len(self.block) + 512


def publish(channel: Channel, key: bytes, bits: int, block: bytes, body: bytes) -> None:
    """Append the message, or keep it for the commit of its transaction.

    Raises:
        AmqpError: a property RabbitMQ refuses, or the transaction is too large.
        RoutingError: the exchange refuses it.
        TableError: headers with too many entries.

    """
    message = check(channel, key, bits, block, body)
    if message.half is not None:
        _half(channel, message, message.half)
        return
    way = routed(channel, message)
    if channel.transaction is not None:
        channel.transaction.publish(message)
        return
    published = append(channel, message, way)
    if channel.core.confirming:
        codec = channel.session.codec
        if published.refused:
            codec.expect_refusal(channel.core)
        else:
            kept = message.retained_as is not None or message.cancels is not None
            synced = (message.persistent and way.durable) or kept
            codec.expect_confirm(channel.core, published.lsn, synced)


def _half(channel: Channel, message: Message, half: Prepared | Decided) -> None:
    """Keep the message for a decision, or decide about one that is kept."""
    if channel.transaction is not None:
        raise soft(
            406, "half messages have no part in transactions of a channel; use a channel with confirms"
        )
    if message.due_ms or message.delay_ms or message.name is not None or len(message.keys) != 1:
        raise soft(406, "a half message has no delay and no copies")
    codec, vhost, identity = channel.session.codec, channel.vhost, channel.actor.identity
    try:
        if isinstance(half, Decided):
            lsn = decide(vhost, identity, half)
        else:
            route = routed(channel, message).route
            if message.mandatory and not route.routed:
                raise NotFound("queue", text(message.keys[0][2:]), channel.vhost.name)
            flags = PERSISTENT if message.persistent else 0
            block = message.block
            for name in HALF_HEADERS:
                block = without_header(block, name)
            kept = HalfMessage(block, message.body, flags, message.priority, message.ttl_ms)
            lsn = prepare(vhost, identity, half, message.keys[0], kept)
    except (HalfUnknown, TooManyHalves):
        if not channel.core.confirming:
            raise
        codec.expect_refusal(channel.core)
        return
    if channel.core.confirming:
        codec.expect_confirm(channel.core, lsn, True)


def check(channel: Channel, key: bytes, bits: int, block: bytes, body: bytes) -> Message:
    """Look at the message alone. Raises AmqpError and TableError, see `publish`."""
    properties = decode_properties(block)
    headers = message_headers(properties)
    ttl_ms = _ttl(properties.get("expiration"))
    _check_user(channel, properties.get("user_id"))
    if properties.get("reply_to") == REPLY_TO:
        if channel.replies is None:
            raise soft(406, "fast reply consumer does not exist")
        block = with_reply_to(block, channel.replies.name)
    keys = _keys(key, headers)
    if "BCC" in headers:
        # A blind copy is for routing and not for consumers.
        del headers["BCC"]
        block = without_header(block, "BCC")
    persistent = properties.get("delivery_mode") == 2
    priority = properties.get("priority", 0)
    assert isinstance(priority, int)
    due = due_ms(headers, channel.session.log.wall_ms())
    name, cancelled = names(headers)
    block = undelayed(block, headers)
    delay = 0 if due else delay_ms(headers)
    retained_as = _retained_as(key) if headers.get("x-mqtt-retain") is True else None
    mandatory = bool(bits & _MANDATORY)
    number = numbered(channel.vhost.name, channel.actor.identity.username, headers)
    what = (keys, mandatory, block, body, headers, persistent, priority, ttl_ms)
    ids = (_delay_name(channel, key, name), _delay_name(channel, key, cancelled))
    half = half_of(headers)
    return Message(*what, due, delay, number, retained_as, ids[0], half, ids[1])


def _delay_name(channel: Channel, key: bytes, name: str | None) -> bytes | None:
    return None if name is None else delay_name(channel.vhost.name, _exchange(key), name)


def _exchange(key: bytes) -> str:
    parts = split_key_block(key)
    assert parts is not None  # the kernel made it of two short strings
    return parts[0]


@dataclass(frozen=True, slots=True)
class Way:
    """Where a message goes."""

    route: Route
    """Now; of one that is delayed altogether, and of a mandatory one: where it would go."""
    held: tuple[bytes, ...] = ()
    """The key blocks by which it is published when it is due."""
    due_ms: int = 0

    @property
    def durable(self) -> bool:
        """Whether something durable gets it: what is delayed is always kept."""
        return self.route.durable or bool(self.held)


def routed(channel: Channel, message: Message) -> Way:
    """Where the message goes. Raises RoutingError."""
    names: list[str] | None = [] if message.delay_ms else None
    key, *copies = message.keys
    route = channel.vhost.route(channel.actor.identity, ENC_AMQP091, key, message.headers, names, copies)
    if route.error is not None:
        raise route.error
    if message.due_ms:
        return Way(route, message.keys, message.due_ms)
    if not names:
        return Way(route)
    held = key_blocks_at(names, message.keys)
    return Way(route, held, channel.session.log.wall_ms() + message.delay_ms + 1)


def append(channel: Channel, message: Message, way: Way) -> Published:
    """Append the message, and return it when it is mandatory and goes nowhere.

    Direct replies are delivered instead, and are in no log: the LSN is the last one. As in RabbitMQ they
    count as going nowhere. A message that was sent before is not appended: the LSN is the one of then.
    """
    published = _append_once(channel, message, way)
    if channel.vhost.firehose.is_on and not published.repeated:
        firehose.published(channel.place(), message.keys, message.block, message.body, way.route)
    return published


def _append_once(channel: Channel, message: Message, way: Way) -> Published:
    """Append it, unless its producer sent it before, or its exchange knows its deduplication header."""
    exchange = channel.vhost.exchanges.get(_exchange(message.keys[0]))
    once = Once(message.numbered, channel.unsent if channel.core.confirming else None, exchange)
    return once.append(
        channel.session.log,
        way.route,
        message.headers,
        len(message.body),
        lambda: _append(channel, message, way),
    )


def _append(channel: Channel, message: Message, way: Way) -> Published:
    vhost, identity = channel.vhost, channel.actor.identity
    delayed = vhost.broker.delayed
    if message.cancels is not None:
        cancelled = delayed.cancel_named(vhost, identity, message.cancels)
        if message.mandatory and not cancelled:
            channel.core.encode_return(312, b"NO_ROUTE", message.keys[0], message.block, message.body)
        return Published(channel.session.log.appender.next_lsn - 1, way.route)
    if message.name is None:
        return _append_in_time(channel, message, way)
    with channel.session.log.unit():
        delayed.cancel_named(vhost, identity, message.name)
        return _append_in_time(channel, message, way)


def _append_in_time(channel: Channel, message: Message, way: Way) -> Published:
    if not way.held:
        return _append_now(channel, message, way.route)
    if channel.vhost.refuses:
        return Published(channel.session.log.appender.next_lsn - 1, way.route, refused=True)
    now = way.route
    if message.delay_ms and message.mandatory and not now.routed:
        # Where it would go if it were not held.
        now = routed(channel, replace(message, delay_ms=0)).route
    if message.mandatory and not now.routed:
        channel.core.encode_return(312, b"NO_ROUTE", message.keys[0], message.block, message.body)
        return Published(channel.session.log.appender.next_lsn - 1, way.route)
    published = Published(0, way.route)
    if message.delay_ms and way.route.routed:
        published = _append_now(channel, message, way.route)
    lsn = channel.vhost.broker.delayed.schedule(
        channel.vhost.name,
        way.due_ms,
        ENC_AMQP091,
        message.keys[0],
        served(message.block, message.delay_ms) if message.delay_ms else message.block,
        message.body,
        starts=way.held,
        flags=PERSISTENT if message.persistent else 0,
        priority=message.priority,
        ttl_ms=message.ttl_ms,
        name=message.name,
        keys=message.keys,
    )
    return Published(lsn, way.route, published.refused)


def _append_now(channel: Channel, message: Message, route: Route) -> Published:
    key = message.keys[0]
    appender = channel.session.log.appender
    is_reply = channel.vhost.replies.deliver(message.keys, message.block, message.body)
    if is_reply and not route.routed:
        published = Published(appender.next_lsn - 1, route)
    else:
        published = channel.vhost.publishing.append(
            route,
            key,
            message.block,
            message.body,
            (PERSISTENT if message.persistent else 0) | (RETAIN if message.retained_as is not None else 0),
            message.priority,
            ENC_AMQP091,
            message.ttl_ms,
        )
        if message.retained_as is not None and not published.refused:
            published = replace(published, lsn=max(published.lsn, _retain(channel, message)))
    if not route.routed and not message.mandatory:
        channel.core.dropped += 1
    elif not route.routed:
        channel.core.returned += 1
        channel.core.encode_return(312, b"NO_ROUTE", key, message.block, message.body)
    return published


def _retained_as(key: bytes) -> bytes | None:
    """The topic that MQTT knows the key by; None: it is no topic, or not on MQTT's exchange."""
    return topic_of(key[2 + key[0] :]) if key[1 : 1 + key[0]] == EXCHANGE else None


def _retain(channel: Channel, message: Message) -> int:
    """Make it the topic's retained message, or remove that for an empty body. The LSN to wait for."""
    assert message.retained_as is not None
    now_ms = channel.session.log.now_ms()
    return channel.vhost.retained.set(
        RetainedMessage(
            topic=message.retained_as,
            enc=ENC_AMQP091,
            props=message.block,
            body=message.body,
            flags=PERSISTENT if message.persistent else 0,
            priority=message.priority,
            stored_ms=now_ms,
            expires_ms=now_ms + message.ttl_ms if message.ttl_ms else 0,
        )
    )


def _keys(key: bytes, headers: Table) -> tuple[bytes, ...]:
    """The key block, and one for each key in CC and BCC."""
    parts = split_key_block(key)
    assert parts is not None  # the kernel made it of two short strings
    keys = [key]
    for name in ("CC", "BCC"):
        copies = headers.get(name)
        if copies is None:
            continue
        if not isinstance(copies, list):
            what = type_name(copies)
            raise soft(406, f'invalid message: {{unacceptable_type_in_header,"{name}",{what}}}')
        for copy in copies:
            if isinstance(copy, str | bytes) and len(wire(copy) if isinstance(copy, str) else copy) <= 255:
                keys.append(join_key_block(parts[0], copy if isinstance(copy, str) else text(copy)))
    return tuple(dict.fromkeys(keys))


def _ttl(expiration: Value) -> int:
    """The milliseconds of an expiration property as a record has them: 0 = none, 1 = over at once."""
    if expiration is None:
        return 0
    assert isinstance(expiration, str)
    sign = expiration[:1] == "-"
    digits = expiration[1:] if expiration[:1] in ("-", "+") else expiration
    count = next((i for i, char in enumerate(digits) if char not in "0123456789"), len(digits))
    if count == 0:
        why = "no_integer"
    elif count < len(digits):
        why = f'{{leftover_string,"{digits[count:]}"}}'
    elif sign:
        why = f"{{value_negative,-{int(digits[:20])}}}"
    elif len(digits) > 12 or int(digits) > _EXPIRATION_MAX:
        why = f"{{value_too_large,{digits}}}"
    else:
        return max(int(digits), 1) if int(digits) <= _TTL_MAX else 0
    raise soft(406, f"invalid expiration '{expiration}': {why}")


def _check_user(channel: Channel, user_id: Value) -> None:
    identity = channel.actor.identity
    name = identity.username
    if isinstance(user_id, str) and user_id != name and "impersonator" not in identity.tags:
        raise soft(406, f"user_id property set to '{user_id}' but authenticated user was '{name}'")
