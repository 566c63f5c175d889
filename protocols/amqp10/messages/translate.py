"""Message properties between AMQP 1.0 and 0-9-1: two total functions; records keep the block of 0-9-1.

    stored_from_amqp10(payload) -> Stored              a message as a record has it
    amqp10_from_stored(key, block, body) -> payload    any record for a consumer of AMQP 1.0

| AMQP 1.0 | AMQP 0-9-1 |
|---|---|
| header: durable, priority, ttl | delivery-mode, priority, expiration |
| properties: message-id, correlation-id | the same, as text; binary that is no UTF-8 stays behind |
| user-id, content-type, content-encoding | the same |
| creation-time (ms) | timestamp (s) |
| group-id | app-id |
| reply-to `/queues/:q` | reply-to `q` |
| reply-to `/exchanges/amq.topic/:key` | reply-to `/topic/<key>`, as messages of MQTT have it |
| application properties | headers |
| message annotations `x-...` | headers of the same names |
| message annotations `x-basic-type`, `x-basic-cluster-id` | type, cluster-id |
| message annotations `x-exchange`, `x-routing-key` | from the exchange and the routing key; never back |
| one data section | the body |
| any other body | the body is its sections as they came, and type is `amqp-1.0` |

The sections that would come back differently (annotations, properties, application properties, footer) are
also kept byte for byte, in the header `x-amqp10-sections`, and the record has the flag SECTIONS: consumers
of 0-9-1 do not get that header. So consumers of AMQP 1.0 get them as they were
sent; the broker's own annotations, such as `x-death`, are added. Delivery annotations end here: they are for
the next node only. Neither function raises for any well-formed message or any record: what the other side
cannot say stays behind.

Source: AMQP 1.0 part 3, section 3.2; RabbitMQ 4's conversions (mc_amqp, mc_amqpl).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from penstock.lazy_dataclass import dataclass
from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.codec.errors import Amqp10Error, DecodeError
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.amqp10.messages._storing import stored
from penstock.protocols.amqp10.messages.addresses import (
    TOPICS,
    AddressError,
    exchange_address,
    parse_address,
    queue_address,
)
from penstock.protocols.amqp10.messages.tables import SHORT_MAX, from_field, to_field, valid
from penstock.protocols.headers.delay import DELAY
from penstock.protocols.properties import _tables as t
from penstock.protocols.properties.properties import SECTIONS_HEADER, decode_properties, encode_properties
from penstock.protocols.properties.values import Table, Value
from penstock.router.names import split_key_block

__all__ = ["Stored", "amqp10_from_stored", "stored_from_amqp10", "with_annotations"]

BODY_TYPE: Final = "amqp-1.0"
"""The type of a message whose body is sections; RabbitMQ's word for it."""
_TOPIC: Final = "/topic/"
_PENSTOCK: Final = "x-penstock-"
_TTL_MAX: Final = 315_360_000_000
_KEPT: Final = (s.ANNOTATIONS, s.PROPERTIES, s.APPLICATION_PROPERTIES, s.FOOTER)
_OWN: Final = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count")
"""Beginnings of annotations that are the broker's to give."""
_RESERVED: Final = frozenset(("CC", "BCC", SECTIONS_HEADER, "x-exchange", "x-routing-key"))
_TEXTS: Final = ("message_id", "user_id", "correlation_id", "content_type", "content_encoding", "app_id")
_UNKNOWN_TO_091: Final = (
    "to",
    "subject",
    "absolute_expiry_time",
    "group_sequence",
    "reply_to_group_id",
)
_PLAIN: Final = frozenset(("headers", "delivery_mode", "priority", "expiration", "type", "cluster_id"))
"""Properties of 0-9-1 that are no field of the properties section."""
_DELIVERY_COUNT: Final = v.Symbol("x-delivery-count")
_ACQUIRED_COUNT: Final = v.Symbol("x-acquired-count")
_BASIC: Final = {"x-basic-type": "type", "x-basic-cluster-id": "cluster_id"}
_FIELDS: Final = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "app_id",
    "group_sequence",
    "reply_to_group_id",
)
"""Of the properties section, in their order, by the names of 0-9-1 where it has them."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as a record has it."""

    block: bytes
    """Its properties, as 0-9-1 has them."""
    body: bytes
    durable: bool
    priority: int
    ttl_ms: int | None
    """None: it does not expire."""
    has_priority: bool
    has_user_id: bool
    has_sections: bool
    """It is to have the flag SECTIONS."""
    delivery_time_ms: int
    delivery_delay_ms: int
    """When it is to be delivered: since the epoch, and from now; 0 = now."""
    to_topic: bool
    """Its publisher, in the sense of JMS, sent it to a topic."""
    to: Any
    """The address that the message names itself, for links to no address."""
    subject: str
    """Cut to what a routing key may have; empty: there is none."""
    has_own: bool
    """Annotations `x-penstock-...`, or `x-delay`, say more about publishing it."""


# AMQP 1.0 -> 0-9-1


def quickly_stored(payload: bytes) -> Stored | None:
    """As `stored_from_amqp10`, without `to`, `subject`, `to_topic`; None: that is to look at the message."""
    found = stored(payload)
    if found is None:
        return None
    block, body, durable, has_sections, priority, ttl_ms, user, when_ms, delay_ms = found
    return Stored(
        block=block,
        body=body,
        durable=durable,
        priority=priority,
        ttl_ms=ttl_ms or None,
        has_priority=True,
        has_user_id=user is not None,
        has_sections=has_sections,
        delivery_time_ms=when_ms,
        delivery_delay_ms=delay_ms,
        to_topic=False,
        to=None,
        subject="",
        has_own=False,
    )


def stored_from_amqp10(
    payload: bytes, *, without: Collection[str] = (), changed: Mapping[Any, Any] | None = None
) -> Stored:
    """The record of a message, but for annotations of these names, and with those that are `changed`.

    Raises DecodeError: the bytes are no message.
    """
    message = s.parse_message(payload)
    if without or changed:
        kept_ones = {name: value for name, value in message.annotations.items() if name not in without}
        message.annotations = kept_ones = kept_ones | dict(changed or {})
        message.raw[s.ANNOTATIONS] = s.encode_section(s.ANNOTATIONS, kept_ones)
    durable, priority, ttl = _header(message.header)
    fields: dict[str, Any] = dict(zip(_FIELDS, message.properties, strict=False))
    if len(message.properties) > len(_FIELDS):
        raise DecodeError("a section properties:list with more than its fields")
    headers: Table = {}
    properties: Table = {"delivery_mode": 2 if durable else 1}
    if message.header[1:2] not in ([], [None]):
        properties["priority"] = priority
    if ttl is not None:
        properties["expiration"] = str(ttl)
    for name in _TEXTS if fields else ():
        _put(properties, name, _text(fields.get(name)))
    _put(properties, "reply_to", _reply_to_091(fields.get("reply_to")))
    created = fields.get("creation_time")
    if type(created) is v.Timestamp and created >= 0:
        properties["timestamp"] = created // 1000
    for key, value in message.annotations.items():
        name = str(key)
        if name in _BASIC:
            _put(properties, _BASIC[name], _text(value))
        elif name.startswith("x-"):
            _put_header(headers, name, value)
    for key, value in message.application_properties.items():
        if isinstance(key, str) and not key.startswith("x-"):
            _put_header(headers, key, value)
    body = message.data
    if body is None:
        body = message.body
        properties["type"] = BODY_TYPE
    if headers:
        properties["headers"] = headers
    kept = {code: raw for code, raw in message.raw.items() if code in _KEPT}
    has_sections = bool(kept) and (
        any(fields.get(name) is not None for name in _UNKNOWN_TO_091)
        or kept
        != {code: s.encode_section(code, value) for code, value in _views(properties, headers).items()}
    )
    if has_sections:
        headers[SECTIONS_HEADER] = t.ByteArray(b"".join(kept.values()))
        properties["headers"] = headers
    return Stored(
        encode_properties(properties),
        body,
        durable,
        priority,
        ttl,
        "priority" in properties,
        fields.get("user_id") is not None,
        has_sections,
        _ms(message.annotations, "x-opt-delivery-time"),
        _ms(message.annotations, "x-opt-delivery-delay"),
        message.annotations.get("x-opt-jms-dest") in (1, 3),
        fields.get("to"),
        (_text(fields.get("subject")) or "").encode()[:SHORT_MAX].decode("utf-8", "ignore"),
        DELAY in headers or any(name.startswith(_PENSTOCK) for name in headers),
    )


def _ms(annotations: dict[Any, Any], name: str) -> int:
    value = annotations.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DecodeError(f"the annotation {name} is a number of milliseconds")
    return max(int(value), 0)


def _header(header: list[Any]) -> tuple[bool, int, int | None]:
    durable, priority, ttl = (header + [None] * 3)[:3]
    if durable is not None and type(durable) is not bool:
        raise DecodeError("durable of the header is not a boolean")
    if priority is not None and type(priority) is not v.UByte:
        raise DecodeError("priority of the header is not an ubyte")
    if ttl is not None and type(ttl) is not v.UInt:
        raise DecodeError("ttl of the header is not an uint")
    return durable is True, 4 if priority is None else int(priority), None if ttl is None else int(ttl)


def _put(properties: Table, name: str, text: str | None) -> None:
    if text is not None and len(text.encode("utf-8", "surrogateescape")) <= SHORT_MAX:
        properties[name] = text


def _text(value: Any) -> str | None:
    """A property as text; None: it has none."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return str(int(value)) if type(value) is v.ULong else None


def _reply_to_091(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        place = parse_address(value) if value.startswith("/") else None
    except AddressError:
        place = None
    if place is None or place.subscription:
        return str(value)
    if place.is_queue:
        return place.routing_key
    return _TOPIC + place.routing_key if place.exchange == TOPICS else str(value)


def _put_header(headers: Table, name: str, value: Any) -> None:
    if name in _RESERVED or name.startswith(_OWN) or len(name.encode()) > SHORT_MAX:
        return
    try:
        headers[name] = to_field(value)
    except ValueError:
        return  # it has no words for it: the sections are kept as they are


# 0-9-1 -> AMQP 1.0

_FIRST_DURABLE: Final = s.encode_section(s.HEADER, [True, None, None, True, v.UInt(0)])
_FIRST_TRANSIENT: Final = s.encode_section(s.HEADER, [False, None, None, True, v.UInt(0)])
"""Headers of messages that are delivered for the first time, and say no more."""


def amqp10_from_stored(
    key_block: bytes,
    block: bytes,
    body: bytes,
    *,
    sections: bool = False,
    delivery_count: int = 0,
    acquired: int | None = None,
    counts: bool = False,
    ttl_ms: int | None = None,
    offset: int | None = None,
    added: Mapping[Any, Any] | None = None,
) -> bytes:
    """The payload of a transfer: a record's key block, properties and body as AMQP 1.0 has them.

    `sections`: the record has the flag SECTIONS. Without it, the header of that name is a publisher's own and
    counts for nothing. `delivery_count`: deliveries before that failed; `acquired`: all deliveries before
    (None: these are the same); `counts`: annotations tell of both. `ttl_ms`: the time that is left of its
    expiration. `offset`: its place in a stream. `added`: annotations that take the place of its own.
    """
    properties, headers, kept = _read(block, sections)
    if kept is None:
        views = _views(properties, headers)
        annotations = views.pop(s.ANNOTATIONS, {})
    else:
        own = {name: value for name, value in headers.items() if name.startswith(_OWN)}
        annotations = kept.annotations | _views({}, own).get(s.ANNOTATIONS, {})
    origin, origin_section = _origin(key_block)
    acquired = delivery_count if acquired is None else acquired
    if added:
        annotations = annotations | dict(added)
    if counts:
        annotations = annotations | {_DELIVERY_COUNT: delivery_count, _ACQUIRED_COUNT: acquired}
    if offset is not None:
        annotations = annotations | {v.Symbol("x-stream-offset"): offset}
    if annotations:
        origin_section = s.encode_section(s.ANNOTATIONS, annotations | origin)
    raw = _header_section(properties, delivery_count, acquired, ttl_ms) + origin_section
    if kept is None:
        raw += b"".join(s.encode_section(code, value) for code, value in views.items())
    else:
        raw += b"".join(kept.raw.get(code, b"") for code in (s.PROPERTIES, s.APPLICATION_PROPERTIES))
    raw += _body(properties, body)
    return raw if kept is None else raw + kept.raw.get(s.FOOTER, b"")


def _read(block: bytes, sections: bool) -> tuple[dict[str, Any], Table, s.Message | None]:
    """Properties, their headers without our own, and the sections kept, if the record has that flag."""
    try:
        properties = decode_properties(block, entries=len(block))
    except t.TableError:
        properties = {}
    found = properties.get("headers")
    headers: Table = dict(found) if isinstance(found, dict) else {}
    found = headers.pop(SECTIONS_HEADER, None)
    kept = _kept(found) if sections else None
    return properties, headers, kept


def with_annotations(block: bytes, added: Mapping[Any, Any], *, sections: bool) -> bytes:
    """The properties of a record with annotations that take the place of its own.

    The record has the flag SECTIONS then; `sections`: it had it before.
    """
    properties, headers, kept = _read(block, sections)
    if kept is None:
        views = _views(properties, headers)
        raw = {code: s.encode_section(code, value) for code, value in views.items()}
        known = views.get(s.ANNOTATIONS, {})
        annotations = {name: value for name, value in known.items() if not name.startswith(_OWN)}
    else:
        raw, annotations = kept.raw, kept.annotations
    raw[s.ANNOTATIONS] = s.encode_section(s.ANNOTATIONS, annotations | dict(added))
    for key, value in added.items():
        if str(key).startswith("x-") and str(key) not in _BASIC:
            _put_header(headers, str(key), value)
    headers[SECTIONS_HEADER] = t.ByteArray(b"".join(raw[code] for code in _KEPT if code in raw))
    properties["headers"] = headers
    return encode_properties(properties)


@lru_cache(maxsize=1024)
def _origin(key_block: bytes) -> tuple[dict[v.Symbol, str], bytes]:
    """The annotations that say where a message was sent to, and their section."""
    parts = split_key_block(key_block)
    if parts is None:
        return {}, s.encode_section(s.ANNOTATIONS, {})
    origin = {
        v.Symbol("x-exchange"): valid(parts[0]),
        v.Symbol("x-routing-key"): valid(parts[1].decode("utf-8", "replace")),
    }
    return origin, s.encode_section(s.ANNOTATIONS, origin)


def _kept(raw: Value) -> s.Message | None:
    """The sections that were kept; None: none were, or not by us."""
    if not isinstance(raw, bytes):
        return None
    try:
        message = s.parse_message(bytes(raw))
    except Amqp10Error:
        return None
    return message if set(message.raw) <= set(_KEPT) and not message.body else None


def _body(properties: Table, body: bytes) -> bytes:
    if properties.get("type") == BODY_TYPE:
        try:
            message = s.parse_message(body)
        except Amqp10Error:
            message = None
        if message is not None and message.body == body:
            return body
    return s.encode_section(s.DATA, body)


def _header_section(properties: Table, delivery_count: int, acquired: int, ttl_ms: int | None) -> bytes:
    durable, priority = properties.get("delivery_mode") == 2, properties.get("priority")
    first = not (delivery_count or acquired)
    if first and ttl_ms is None and priority is None and "expiration" not in properties:
        return _FIRST_DURABLE if durable else _FIRST_TRANSIENT
    fields: list[Any] = [durable, None, None, None, None]
    if isinstance(priority, int):
        fields[1] = v.UByte(priority)
    expiration = properties.get("expiration")
    if isinstance(expiration, str) and expiration.isascii() and expiration.isdigit():
        fields[2] = v.UInt(min(int(expiration[:12]), 2**32 - 1))
    if ttl_ms is not None:
        fields[2] = v.UInt(min(ttl_ms, 2**32 - 1))
    fields[3] = acquired == 0
    fields[4] = v.UInt(min(delivery_count, 2**32 - 1))
    return s.encode_section(s.HEADER, fields)


def _views(properties: Table, headers: Table) -> dict[int, Any]:
    """The sections that properties of 0-9-1 stand for, those that are not empty."""
    annotations: dict[v.Symbol, Any] = {}
    for name, field in _BASIC.items():
        if field in properties and (field, properties[field]) != ("type", BODY_TYPE):
            annotations[v.Symbol(name)] = valid(properties[field])
    application: dict[str, Any] = {}
    for name, value in headers.items():
        if name in _RESERVED:
            continue
        if name.startswith("x-") and name.isascii():
            annotations[v.Symbol(name)] = from_field(value)
        elif not isinstance(value, list | dict):
            application[valid(name)] = from_field(value)
    fields: list[Any] = []
    if not _PLAIN.issuperset(properties):
        fields = [_field_10(properties, name) for name in _FIELDS]
        while fields and fields[-1] is None:
            fields.pop()
    made = {s.ANNOTATIONS: annotations, s.PROPERTIES: fields, s.APPLICATION_PROPERTIES: application}
    return {code: value for code, value in made.items() if value}


def _field_10(properties: Table, name: str) -> Any:
    if name == "creation_time":
        value = properties.get("timestamp")
        return v.Timestamp(min(value, 2**53) * 1000) if isinstance(value, int) else None
    value = properties.get(name)
    if not isinstance(value, str):
        return None
    if name == "reply_to":
        if value.startswith(_TOPIC):
            return exchange_address(TOPICS, value[len(_TOPIC) :])
        return value if value.startswith("/") else queue_address(value)
    if name == "user_id":
        return value.encode("utf-8", "surrogateescape")
    if name in ("content_type", "content_encoding"):
        return v.Symbol(value) if value.isascii() else None
    return valid(value)
