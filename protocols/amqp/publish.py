"""Publishes that Python must look at: headers exchanges, CC and BCC, direct replies, transactions.

The kernel hands over a whole message it did not append. What it would have refused is refused here with
RabbitMQ's words; the rest is appended with the same record fields: at once, or at the commit of its
transaction. `check` looks at the message alone, `routed` at the exchanges, `append` changes something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.log_core._batch import PERSISTENT
from penstock.protocols.amqp.channel import Channel
from penstock.protocols.amqp.errors import soft, type_name
from penstock.protocols.amqp.properties import decode_properties, with_reply_to, without_header
from penstock.protocols.amqp.values import Table, Value
from penstock.router._routes import Route
from penstock.router.names import ENC_AMQP091, join_key_block, split_key_block, wire
from penstock.router.publishing import union
from penstock.router.replies import REPLY_TO, is_reply_key

__all__ = ["Message", "append", "check", "publish", "routed"]

_EXPIRATION_MAX: Final = 2**32 - 1
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
    route = routed(channel, message)
    if channel.transaction is not None:
        channel.transaction.publish(message)
        return
    lsn = append(channel, message, route)
    if channel.core.confirming:
        channel.session.codec.expect_confirm(channel.core, lsn, message.persistent and route.durable)


def check(channel: Channel, key: bytes, bits: int, block: bytes, body: bytes) -> Message:
    """Look at the message alone. Raises AmqpError and TableError, see `publish`."""
    properties = decode_properties(block)
    headers = properties.get("headers", {})
    assert isinstance(headers, dict)
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
    return Message(keys, bool(bits & _MANDATORY), block, body, headers, persistent, priority, ttl_ms)


def routed(channel: Channel, message: Message) -> Route:
    """Where the message goes now. Raises RoutingError."""
    routes = []
    for key in message.keys:
        route = channel.vhost.route(channel.actor.identity, ENC_AMQP091, key, message.headers)
        if route.error is not None:
            raise route.error
        routes.append(route)
    return union(routes)


def append(channel: Channel, message: Message, route: Route) -> int:
    """Append the message, and return it when it is mandatory and goes nowhere. Its LSN.

    Direct replies are delivered instead, and are in no log: the LSN is the last one. As in RabbitMQ they
    count as going nowhere.
    """
    key = message.keys[0]
    appender = channel.session.log.appender
    addresses = [part[2:] for part in message.keys if part[0] == 0 and is_reply_key(part[2:])]
    for address in addresses:
        channel.vhost.replies.deliver(address, key, message.block, message.body)
    if addresses and not route.routed:
        lsn = appender.next_lsn - 1
    else:
        lsn = appender.append_record(
            route.lp,
            route.target,
            key,
            message.block,
            message.body,
            PERSISTENT if message.persistent else 0,
            message.priority,
            ENC_AMQP091,
            message.ttl_ms,
        )
    if message.mandatory and not route.routed:
        channel.core.encode_return(312, b"NO_ROUTE", key, message.block, message.body)
    return lsn


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
                text = copy if isinstance(copy, str) else copy.decode("utf-8", "surrogateescape")
                keys.append(join_key_block(parts[0], text))
    return tuple(dict.fromkeys(keys))


def _ttl(expiration: Value) -> int:
    """The milliseconds of an expiration property; 0 = none."""
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
    elif len(digits) > 10 or int(digits) > _EXPIRATION_MAX:
        why = f"{{value_too_large,{digits}}}"
    else:
        return max(int(digits), 1)
    raise soft(406, f"invalid expiration '{expiration}': {why}")


def _check_user(channel: Channel, user_id: Value) -> None:
    name = channel.actor.identity.username
    if isinstance(user_id, str) and user_id != name:
        raise soft(406, f"user_id property set to '{user_id}' but authenticated user was '{name}'")
