"""Bodies of publish requests: one message or many, as JSON, JSON lines, CloudEvents, or as it is.

    application/cloudevents+json         one event; application/cloudevents-batch+json: a list of them
    anything else with ce-* headers      one event in binary mode: the body is its data
    application/json                     {"messages": [{...}, ...]}, or one {...}
    application/x-ndjson                 one {...} per line
    anything else                        one message: the body as it is, its metadata in Penstock-* headers

A message: `value` (text; other JSON is kept as JSON) or `value_b64`, and optionally `key`, `routing_key`,
`content_type`, `headers`, `message_id`, `correlation_id`, `reply_to`, `type`, `priority`, `ttl_ms`,
`timestamp`, `persistent` (true unless said otherwise), `delay_ms` or `deliver_at`, and `delay_id`.

CloudEvents: `id` is the message id, `type` the type, `time` the timestamp; all attributes are headers
`cloudEvents:NAME` (the AMQP binding of CloudEvents), data becomes the body.

Source: CloudEvents 1.0.2 JSON format, HTTP and AMQP protocol bindings.
"""

from __future__ import annotations

import base64
import binascii
import math
import time
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.headers import DELAY_ID, due_from
from penstock.protocols.http.server.messages import HttpError, Request, dumps, parsed
from penstock.protocols.http.server.numbers import whole

__all__ = ["FIELDS", "MESSAGES_MAX", "Outgoing", "message_of", "messages_of"]

MESSAGES_MAX: Final = 10_000
"""Messages of one request."""
_PREFIX: Final = "cloudEvents:"
_REQUIRED: Final = ("id", "source", "specversion", "type")
_TEXTS: Final = ("message_id", "correlation_id", "reply_to", "type")
_PROPERTIES: Final = frozenset((*_TEXTS, "content_type", "headers", "priority", "timestamp"))
FIELDS: Final = {
    *_TEXTS,
    "value",
    "value_b64",
    "key",
    "routing_key",
    "content_type",
    "headers",
    "priority",
    "ttl_ms",
    "timestamp",
    "persistent",
    "delay_ms",
    "deliver_at",
    "delay_id",
}
"""Fields of a message that is JSON."""
_METADATA: Final = {
    "penstock-routing-key": "routing_key",
    "penstock-message-id": "message_id",
    "penstock-correlation-id": "correlation_id",
    "penstock-reply-to": "reply_to",
    "penstock-type": "type",
}
_HEADER: Final = "penstock-header-"
_HEADERS: Final = {"key": "x-key", "delay_id": DELAY_ID}
"""Fields that are headers: the ordering key, by which key-shared subscriptions share out and streams are
compacted; the name of a message that waits."""
_TRACE: Final = ("traceparent", "tracestate")


@dataclass(slots=True)
class Outgoing:
    """A message to be published."""

    body: bytes
    routing_key: str | None = None
    """None: the default of the request."""
    properties: dict[str, Any] = field(default_factory=dict)
    """In AMQP's names."""
    due_ms: int = 0
    """When it is to be published, since the epoch; 0: now."""
    plain: bool = False
    """It is persistent and due now; `properties`, which others share, has nothing but the content type."""


_TEXT: Final = {"content_type": "text/plain", "delivery_mode": 2}
_PLAIN_KIND_MAX: Final = 127
"""Characters: a property has 255 bytes at most."""


def messages_of(request: Request, body: bytes) -> list[Outgoing]:
    """The messages of a request; those without a trace context of their own have the request's.

    Raises:
        HttpError: 400 `malformed` or `bad_field`, naming the message by its place; 413 `too_many_messages`.

    """
    messages = _read(request, body)
    if "traceparent" in request.headers:
        context = {name: request.headers[name] for name in _TRACE if name in request.headers}
        for message in messages:
            headers = message.properties.get("headers") or {}
            if isinstance(headers, dict) and "traceparent" not in headers:
                message.properties = {**message.properties, "headers": {**headers, **context}}
                message.plain = False
    return messages


def _read(request: Request, body: bytes) -> list[Outgoing]:
    kind = request.headers.get("content-type", "application/octet-stream")
    media = kind.partition(";")[0].strip().lower()
    if "ce-specversion" in request.headers and not media.startswith("application/cloudevents"):
        return [_binary_event(request.headers, kind, body)]
    match media:
        case "application/json":
            value = parsed(body)
            items = value["messages"] if isinstance(value, dict) and "messages" in value else [value]
            if not isinstance(items, list):
                raise _bad("messages", "messages is a list")
            return [_any_of(item, at) for at, item in enumerate(_bounded(items))]
        case "application/x-ndjson":
            lines = [line for line in body.split(b"\n") if line and not line.isspace()]
            return [_any_of(parsed(line), at) for at, line in enumerate(_bounded(lines))]
        case "application/cloudevents+json":
            return [_event(parsed(body), 0)]
        case "application/cloudevents-batch+json":
            value = parsed(body)
            if not isinstance(value, list):
                raise _bad("", "a batch of CloudEvents is a list")
            return [_event(item, at) for at, item in enumerate(_bounded(value))]
    return [_raw(request.headers, kind, body)]


def _bounded(items: list[Any]) -> list[Any]:
    if len(items) > MESSAGES_MAX:
        raise HttpError(413, "too_many_messages", f"more than {MESSAGES_MAX} messages in one request")
    return items


def _bad(name: str, detail: str) -> HttpError:
    return HttpError(400, "bad_field", f"{name}: {detail}" if name else detail)


def _any_of(item: Any, at: int) -> Outgoing:
    """The message number `at` of a request. Raises HttpError 400."""
    if type(item) is dict and len(item) == 1 and type(value := item.get("value")) is str:
        return Outgoing(value.encode("utf-8", "surrogatepass"), None, _TEXT, 0, True)
    return message_of(item, f"messages[{at}]")


def message_of(item: Any, where: str) -> Outgoing:
    """A message that is a JSON object, which is called `where`. Raises HttpError 400."""
    if not isinstance(item, dict):
        raise _bad(where, "a message is a JSON object")
    if not FIELDS.issuperset(item):
        unknown = sorted(set(item) - FIELDS)
        raise _bad(f"{where}.{unknown[0]}", f"there is no such field; there are {', '.join(sorted(FIELDS))}")
    if ("value" in item) == ("value_b64" in item):
        raise _bad(where, "either value or value_b64 is needed")
    properties: dict[str, Any] = {}
    if "value_b64" in item:
        body = _decoded(item["value_b64"], f"{where}.value_b64")
    elif isinstance(item["value"], str):
        body = item["value"].encode("utf-8", "surrogatepass")
        properties["content_type"] = "text/plain"
    else:
        body = dumps(item["value"])
        properties["content_type"] = "application/json"
    for name, value in item.items():
        if name in _PROPERTIES and value is not None:
            properties[name] = value
    for name in _HEADERS:
        if item.get(name) is not None:
            _set_header(properties, name, item[name], where)
    properties["delivery_mode"] = 2 if item.get("persistent", True) else 1
    if item.get("ttl_ms") is not None:
        properties["expiration"] = _ttl(item["ttl_ms"], f"{where}.ttl_ms")
    key = item.get("routing_key")
    if key is not None and not isinstance(key, str):
        raise _bad(f"{where}.routing_key", "not a string")
    outgoing = Outgoing(body, key, properties)
    if "delay_ms" in item or "deliver_at" in item:
        outgoing.due_ms = _due(item.get("delay_ms"), item.get("deliver_at"), where)
    return outgoing


def _set_header(properties: dict[str, Any], name: str, value: Any, where: str) -> None:
    """The value of a field that a header gives."""
    headers = properties.get("headers") or {}
    if not isinstance(value, str) or not isinstance(headers, dict):
        raise _bad(f"{where}.{name}", "text, beside headers that are an object")
    properties["headers"] = {**headers, _HEADERS[name]: value}


def _due(delay_ms: Any, deliver_at: Any, where: str) -> int:
    """When it is due; `deliver_at` is a time in RFC 3339 with its zone, or milliseconds since the epoch."""
    names = (f"{where}.delay_ms", f"{where}.deliver_at")
    if isinstance(deliver_at, str):
        try:
            moment = datetime.fromisoformat(deliver_at)
            if moment.tzinfo is None:
                raise ValueError
            deliver_at = math.ceil(moment.timestamp() * 1000)
        except (ValueError, OverflowError) as error:
            raise _bad(names[1], "a time with its zone, such as 2026-01-02T03:04:05Z") from error
    return due_from(delay_ms, deliver_at, time.time_ns() // 1_000_000, names)


def _ttl(value: Any, where: str) -> str:
    ttl_ms = whole(value)
    if ttl_ms is None or not 0 <= ttl_ms < 2**32:
        raise _bad(where, "milliseconds, a whole number below 2^32")
    return str(ttl_ms)


def _decoded(text: Any, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise _bad(where, "not base64") from error


def _event(event: Any, at: int) -> Outgoing:
    """An event in structured mode."""
    where = f"events[{at}]"
    if not isinstance(event, dict):
        raise _bad(where, "an event is a JSON object")
    attributes = {name: value for name, value in event.items() if name not in ("data", "data_base64")}
    kind = event.get("datacontenttype", "application/json")
    if "data_base64" in event:
        body = _decoded(event["data_base64"], f"{where}.data_base64")
    elif isinstance(event.get("data"), str) and "json" not in str(kind):
        body = event["data"].encode("utf-8", "surrogatepass")
    else:
        body = dumps(event["data"]) if "data" in event else b""
    attributes.pop("datacontenttype", None)
    return _of_attributes(attributes, str(kind), body, where)


def _binary_event(headers: Mapping[str, str], kind: str, body: bytes) -> Outgoing:
    attributes = {name[3:]: value for name, value in headers.items() if name.startswith("ce-")}
    return _of_attributes(attributes, kind, body, "event")


def _of_attributes(attributes: Mapping[str, Any], kind: str, body: bytes, where: str) -> Outgoing:
    for name in _REQUIRED:
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise _bad(f"{where}.{name}", "a CloudEvent needs it, as text")
    if not attributes["specversion"].startswith("1."):
        raise _bad(f"{where}.specversion", "only 1.x is known here")
    properties: dict[str, Any] = {
        "content_type": kind,
        "delivery_mode": 2,
        "headers": {f"{_PREFIX}{name}": value for name, value in attributes.items()},
    }
    for name, field_ in (("id", "message_id"), ("type", "type")):
        if len(attributes[name].encode()) <= 255:
            properties[field_] = attributes[name]
    try:
        properties["timestamp"] = int(datetime.fromisoformat(str(attributes["time"])).timestamp())
    except (KeyError, ValueError, OverflowError):
        pass  # without a time, or one that is none: the header has what was sent
    key = attributes.get("partitionkey")
    return Outgoing(body, key if isinstance(key, str) else None, properties)


def _whole(text: str | None) -> int | str | None:
    """A number if it is one."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else text


def _raw(headers: Mapping[str, str], kind: str, body: bytes) -> Outgoing:
    properties: dict[str, Any] = {"content_type": kind, "delivery_mode": 2}
    outgoing = Outgoing(body, None, properties)
    for name, field_ in _METADATA.items():
        if name in headers:
            if field_ == "routing_key":
                outgoing.routing_key = headers[name]
            else:
                properties[field_] = headers[name]
    if "penstock-ttl-ms" in headers:
        text = headers["penstock-ttl-ms"]
        is_number = text.isascii() and text.isdigit() and len(text) <= 10
        properties["expiration"] = _ttl(int(text) if is_number else None, "Penstock-Ttl-Ms")
    delay, at = (headers.get(f"penstock-{name}") for name in ("delay-ms", "deliver-at"))
    outgoing.due_ms = _due(_whole(delay), _whole(at), "Penstock")
    own = {name[len(_HEADER) :]: value for name, value in headers.items() if name.startswith(_HEADER)}
    if own:
        properties["headers"] = own
    for field_ in _HEADERS:
        name = f"penstock-{field_.replace('_', '-')}"
        if name in headers:
            _set_header(properties, field_, headers[name], "Penstock")
    outgoing.plain = len(properties) == 2 and not outgoing.due_ms and len(kind) <= _PLAIN_KIND_MAX
    return outgoing
