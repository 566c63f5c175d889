"""Message properties between AMQP 0-9-1 and MQTT 5.0: two total functions on the blocks that records keep.

    amqp091_from_mqtt5(topic, block, flags) -> (key block, properties)    MQTT messages for AMQP consumers
    mqtt5_from_amqp091(key block, properties) -> (topic, block)           AMQP messages for MQTT subscribers

"key block" and "properties" of AMQP 0-9-1 are a record's (u8 size, exchange, u8 size, routing key; the
content header from its property flags on); "block" is MQTT's property block without its length. Neither
function raises for any bytes: what cannot be read is left out.

| MQTT 5 | AMQP 0-9-1 |
|---|---|
| topic `a/b` | exchange `amq.topic`, key `a.b`; `x-mqtt-topic` when the key does not tell it |
| QoS 0 / 1, 2 | delivery-mode 1 / 2, header `x-mqtt-publish-qos` |
| RETAIN | header `x-mqtt-retain` |
| payload format | header `x-mqtt-payload-format`; content-encoding `utf-8` for 1, if there is none |
| content type | content-type |
| response topic | reply-to `/topic/<key>`, `x-reply-to-topic`; `x-mqtt-response-topic` when needed |
| response topic `$amq/queue/<name>` | reply-to `<name>` |
| correlation data | correlation-id when it is text of at most 255 bytes, else header `x-correlation-id` |
| message expiry (s) | expiration (ms) |
| user property | header: text; an array of texts for a name that repeats |
| user property `amqp-<name>` | `<name>` of message-id, timestamp, type, app-id, priority and so on |
| user property `amqp-user-id` | from user-id; never back: user-id is what a broker vouches for |
| user property `x-exchange` | from the exchange, when it is not amq.topic or the default one |

User properties that do not come back from their headers in the same order (repeated names apart, reserved
names) are also kept whole in the header `x-mqtt-user-property-order`, an array of name, value, name, value.
AMQP header values become text: numbers, booleans `true`/`false`, times in RFC 3339, void as ""; arrays of
such become repeated user properties; nested tables and bytes that are no UTF-8 stay behind (the record
keeps them for AMQP consumers).

Source: AMQP 0-9-1 section 4.2.5 with RabbitMQ's field types; MQTT 5.0 section 2.2.2; RabbitMQ 4's MQTT
mapping.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from penstock.protocols.properties.blocks import (
    FIELDS,
    Decimal,
    Fields,
    Timestamp,
    decode_block,
    decode_header,
    decode_key,
    encode_header,
    encode_text,
)
from penstock.protocols.properties.properties import SECTIONS_HEADER

__all__ = ["EXCHANGE", "amqp091_from_mqtt5", "mqtt5_from_amqp091", "routing_key_of", "topic_of"]

EXCHANGE: Final = b"amq.topic"

_PERSISTENT: Final = 2
_RETAIN: Final = 32
_EXACTLY_ONCE: Final = 512

_QUEUE_TOPIC: Final = "$amq/queue/"
_REPLY_KEY: Final = "/topic/"
_ORDER: Final = "x-mqtt-user-property-order"
# Headers with a meaning of their own; BCC is for routing and no consumer's business.
_RESERVED: Final = frozenset(
    (
        "BCC",
        "x-correlation-id",
        "x-mqtt-content-type",
        "x-mqtt-payload-format",
        "x-mqtt-publish-qos",
        "x-mqtt-response-topic",
        "x-mqtt-retain",
        "x-mqtt-topic",
        SECTIONS_HEADER,
        "x-reply-to-topic",
        _ORDER,
    )
)

_FOLDED: Final = {
    f"amqp-{name}": (name, kind)
    for _, name, kind in FIELDS
    if name in ("message-id", "timestamp", "type", "app-id", "priority", "cluster-id", "content-encoding")
}
_CARRIED: Final = (*_FOLDED.items(), ("amqp-user-id", ("user-id", "s")))


# Names


def routing_key_of(topic: bytes) -> bytes:
    """The routing key of a topic: dots for slashes, at most 255 bytes (cut between characters)."""
    key = topic.replace(b"/", b".")
    if len(key) > 255:
        key = key[:255].decode("utf-8", "ignore").encode()
    return key


def topic_of(routing_key: bytes) -> bytes | None:
    """The topic of a routing key: slashes for dots; None when MQTT cannot say it."""
    topic = routing_key.replace(b".", b"/")
    if not topic or b"+" in topic or b"#" in topic or b"\0" in topic:
        return None
    try:
        topic.decode()
    except UnicodeDecodeError:
        return None
    return topic


# MQTT -> AMQP


def amqp091_from_mqtt5(topic: bytes, block: bytes, flags: int) -> tuple[bytes, bytes]:
    """The view of an AMQP consumer on a message published over MQTT.

    Args:
        topic: The record's key.
        block: The record's properties.
        flags: The record's flags (PERSISTENT, RETAIN, EXACTLY_ONCE are looked at).

    Returns:
        (key block, properties) as a record that came over AMQP would have them.

    """
    key = routing_key_of(topic)
    headers: dict[bytes, Any] = {}
    fields: Fields = {"headers": headers, "delivery-mode": 2 if flags & _PERSISTENT else 1}
    headers[b"x-mqtt-publish-qos"] = 0 if not flags & _PERSISTENT else 2 if flags & _EXACTLY_ONCE else 1
    if flags & _RETAIN:
        headers[b"x-mqtt-retain"] = True
    if key.replace(b".", b"/") != topic:
        headers[b"x-mqtt-topic"] = topic
    found, users = decode_block(block)
    if 0x01 in found:
        headers[b"x-mqtt-payload-format"] = found[0x01] & 1
    if 0x02 in found:
        fields["expiration"] = str(found[0x02] * 1000).encode()
    content_type = found.get(0x03)
    if content_type is not None:
        if len(content_type) <= 255:
            fields["content-type"] = content_type
        else:
            headers[b"x-mqtt-content-type"] = content_type
    if 0x08 in found:
        _reply_to(found[0x08], fields, headers)
    correlation = found.get(0x09)
    if correlation is not None:
        if len(correlation) <= 255 and _is_text(correlation):
            fields["correlation-id"] = correlation
        else:
            headers[b"x-correlation-id"] = bytearray(correlation)
    if users:
        _put_users(users, fields, headers)
    if found.get(0x01) == 1:
        fields.setdefault("content-encoding", b"utf-8")
    key_block = bytes((len(EXCHANGE),)) + EXCHANGE + bytes((len(key),)) + key
    return key_block, encode_header(fields)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _reply_to(response_topic: bytes, fields: Fields, headers: dict[bytes, Any]) -> None:
    queue = _QUEUE_TOPIC.encode()
    if response_topic.startswith(queue) and len(response_topic) - len(queue) <= 255:
        fields["reply-to"] = response_topic[len(queue) :]
        # A queue may have a name that reads like a topic's.
        if fields["reply-to"].startswith(_REPLY_KEY.encode()) or not fields["reply-to"]:
            headers[b"x-mqtt-response-topic"] = response_topic
        return
    key = response_topic.replace(b"/", b".")
    headers[b"x-reply-to-topic"] = key
    if key.replace(b".", b"/") != response_topic:
        headers[b"x-mqtt-response-topic"] = response_topic
    if len(_REPLY_KEY) + len(key) <= 255:
        fields["reply-to"] = _REPLY_KEY.encode() + key


def _put_users(users: list[tuple[bytes, bytes]], fields: Fields, headers: dict[bytes, Any]) -> None:
    """User properties as headers, and whole when the headers do not tell them."""
    for name, value in users:
        text = name.decode("utf-8", "replace")
        if text in _FOLDED and _fold(text, value, fields):
            continue
        if len(name) > 255 or text in _RESERVED:
            continue
        if name in headers:
            held = headers[name]
            if isinstance(held, list):
                held.append(value)
            else:
                headers[name] = [held, value]
        else:
            headers[name] = value
    if _users_of(fields, headers, None) != users:
        headers[_ORDER.encode()] = [part for pair in users for part in pair]


def _fold(name: str, value: bytes, fields: Fields) -> bool:
    """Put a user property into the AMQP property it stands for; False when it does not fit there."""
    field, kind = _FOLDED[name]
    if field in fields:
        return False
    if kind == "s":
        if len(value) > 255:
            return False
        fields[field] = value
        return True
    if not value.isdigit() or len(value) > 20:
        return False
    number = int(value)
    if str(number).encode() != value or number > (255 if kind == "o" else 2**64 - 1):
        return False
    fields[field] = number
    return True


# AMQP -> MQTT


def mqtt5_from_amqp091(key_block: bytes, properties: bytes) -> tuple[bytes | None, bytes]:
    """The view of an MQTT subscriber on a message published over AMQP.

    Args:
        key_block: The record's key block.
        properties: The record's properties.

    Returns:
        (topic, block); the topic is None when the routing key cannot be said as one (empty, with a
        wildcard, not UTF-8), and then the message is not for MQTT.

    """
    exchange, routing_key = decode_key(key_block)
    topic = None if routing_key is None else topic_of(routing_key)
    if topic is None:
        return None, b""
    fields = decode_header(properties)
    headers: dict[bytes, Any] = fields.get("headers", {})
    block = bytearray()
    payload_format = headers.get(b"x-mqtt-payload-format")
    if type(payload_format) is int and payload_format in (0, 1):
        block += bytes((0x01, payload_format))
    expiration = fields.get("expiration", b"")
    if expiration.isdigit() and len(expiration) <= 15:
        block += b"\x02" + min(-(-int(expiration) // 1000), 2**32 - 1).to_bytes(4, "big")
    content_type = fields.get("content-type", headers.get(b"x-mqtt-content-type"))
    if isinstance(content_type, bytes):
        block += b"\x03" + encode_text(content_type.decode("utf-8", "replace"))
    response_topic = _response_topic(fields, headers)
    if response_topic:
        block += b"\x08" + len(response_topic).to_bytes(2, "big") + response_topic
    correlation = fields.get("correlation-id", headers.get(b"x-correlation-id"))
    if isinstance(correlation, bytes | bytearray) and len(correlation) <= 65535:
        block += b"\x09" + len(correlation).to_bytes(2, "big") + correlation
    for name, value in _users_of(fields, headers, exchange):
        block += b"\x26" + encode_text(name.decode("utf-8", "replace"))
        block += encode_text(value.decode("utf-8", "replace"))
    return topic, bytes(block)


def _response_topic(fields: Fields, headers: dict[bytes, Any]) -> bytes | None:
    exact = headers.get(b"x-mqtt-response-topic")
    dotted = headers.get(b"x-reply-to-topic")
    reply_to = fields.get("reply-to", b"")
    if isinstance(exact, bytes):
        topic = exact
    elif isinstance(dotted, bytes):
        topic = dotted.replace(b".", b"/")
    elif reply_to.startswith(_REPLY_KEY.encode()):
        topic = reply_to[len(_REPLY_KEY) :].replace(b".", b"/")
    elif reply_to:
        topic = _QUEUE_TOPIC.encode() + reply_to
    else:
        return None
    # The same rules as for the topic of a PUBLISH, control characters included.
    if not topic or len(topic) > 65535 or b"+" in topic or b"#" in topic or not _is_text(topic):
        return None
    if any(letter < " " or "\x7f" <= letter < "\xa0" for letter in topic.decode()):
        return None
    return topic


def _users_of(fields: Fields, headers: dict[bytes, Any], exchange: bytes | None) -> list[tuple[bytes, bytes]]:
    """The user properties that fields and headers stand for, in their order."""
    users: list[tuple[bytes, bytes]] = []
    order = headers.get(_ORDER.encode())
    if isinstance(order, list) and len(order) % 2 == 0 and all(isinstance(part, bytes) for part in order):
        users.extend(zip(order[::2], order[1::2], strict=True))
    told = {name for name, _ in users}
    for name, value in headers.items():
        if name not in told and name.decode("utf-8", "replace") not in _RESERVED:
            for item in value if isinstance(value, list) else (value,):
                text = _text(item)
                if text is not None:
                    users.append((name, text))
    for user_name, (field, _) in _CARRIED:
        if field not in fields or user_name.encode() in told:
            continue
        value = fields[field]
        if field == "content-encoding" and value == b"utf-8" and headers.get(b"x-mqtt-payload-format") == 1:
            continue
        users.append((user_name.encode(), value if isinstance(value, bytes) else str(value).encode()))
    if exchange and exchange != EXCHANGE and b"x-exchange" not in told and b"x-exchange" not in headers:
        users.append((b"x-exchange", exchange))
    return users


def _text(value: Any) -> bytes | None:
    """A header value as text; None when it has none."""
    if isinstance(value, bytes):
        return value if _is_text(value) else None
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, Timestamp):
        try:
            return datetime.fromtimestamp(value, UTC).isoformat().replace("+00:00", "Z").encode()
        except (OverflowError, ValueError, OSError):
            return str(int(value)).encode()
    if isinstance(value, Decimal):
        scale, number = value
        digits = str(abs(number)).rjust(scale + 1, "0")
        point = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
        return (("-" if number < 0 else "") + point).encode()
    if isinstance(value, int | float):
        return str(value).encode()
    return None
