"""Messages as the body and the headers of a webhook request.

    cloudevents-binary      the message's body; its attributes as ce-* headers
    cloudevents-structured  one event as JSON
    cloudevents-batch       a list of events
    json                    a list of messages, as a pull shows them
    raw                     the message's body; its properties as penstock-* headers, as a publish takes them

An event's id is the message id, or the message's place in the log. A message that came as an event (headers
cloudEvents:NAME) goes out as it came; other messages get source, type, subject, time and content type.

Source: CloudEvents 1.0.2, HTTP protocol binding (percent encoding in 3.1.3.2) and JSON format.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.messages import HttpError, dumps, parsed

if TYPE_CHECKING:
    from penstock.protocols.http.shared.traffic import Shown
    from penstock.protocols.http.webhooks.settings import Format

__all__ = ["ID_HEADER", "Outgoing", "encode", "id_of", "value_of"]

_PREFIX: Final = "cloudEvents:"
ID_HEADER: Final = "x-penstock-webhook-id"
"""In a dead letter: what it was called when it was sent."""
_TRACE: Final = ("traceparent", "tracestate")
# RFC 3986's reserved characters may stand as they are; what CloudEvents wants encoded is in neither set.
_PLAIN: Final = "!#$&'()*+,/:;=?@[]-._~<>\\^`{|}"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to be sent."""

    lsn: int
    ts_ms: int
    """When it was published."""
    queue: str
    vhost: str
    message: Shown


def id_of(outgoing: Outgoing) -> str:
    """The identity of a message, the same at every attempt: its id, or its place in the log."""
    message_id = _headers(outgoing).get(ID_HEADER) or outgoing.message.properties.get("message_id")
    # A dot would make what is signed ambiguous.
    if isinstance(message_id, str) and message_id.isascii() and message_id.isprintable():
        if 0 < len(message_id) <= 128 and not set(message_id) & {".", " "}:
            return message_id
    return f"0:{outgoing.lsn}"


def encode(kind: Format, messages: Sequence[Outgoing]) -> tuple[dict[str, str], bytes]:
    """The headers, content-type among them, and the body of a request."""
    match kind:
        case "cloudevents-binary":
            return _binary(messages[0])
        case "cloudevents-structured":
            headers = {"content-type": "application/cloudevents+json; charset=utf-8"}
            return {**headers, **_trace(messages[0])}, dumps(_event(messages[0]))
        case "cloudevents-batch":
            headers = {"content-type": "application/cloudevents-batch+json; charset=utf-8"}
            return headers, dumps([_event(one) for one in messages])
        case "json":
            return {"content-type": "application/json"}, dumps([_plain(one) for one in messages])
        case "raw":
            return _raw(messages[0])


def _headers(outgoing: Outgoing) -> Mapping[str, Any]:
    headers = outgoing.message.properties.get("headers")
    return headers if isinstance(headers, Mapping) else {}


def _trace(outgoing: Outgoing) -> dict[str, str]:
    """The trace context, never rewritten."""
    headers = _headers(outgoing)
    values = {name: headers.get(name, headers.get(f"{_PREFIX}{name}")) for name in _TRACE}
    return {name: escaped(value) for name, value in values.items() if isinstance(value, str)}


def _attributes(outgoing: Outgoing) -> dict[str, Any]:
    message = outgoing.message
    properties, headers = message.properties, _headers(outgoing)
    own = {name[len(_PREFIX) :]: value for name, value in headers.items() if name.startswith(_PREFIX)}
    if "id" in own and "source" in own and "type" in own:
        attributes = {name: value for name, value in own.items() if _is_name(name)}
        attributes["specversion"] = "1.0"
    else:
        time = datetime.fromtimestamp(outgoing.ts_ms / 1000, UTC).isoformat(timespec="milliseconds")
        attributes = {
            "specversion": "1.0",
            "id": id_of(outgoing),
            "source": f"/vhosts/{quote(outgoing.vhost, safe='')}/queues/{quote(outgoing.queue, safe='')}",
            "type": str(properties.get("type") or "penstock.message"),
            "time": time.replace("+00:00", "Z"),
        }
        if message.routing_key:
            attributes["subject"] = message.routing_key
        attributes.update({name: value for name in _TRACE if (value := headers.get(name))})
    kind = properties.get("content_type")
    if kind:
        attributes["datacontenttype"] = kind
    return attributes


def _is_name(name: str) -> bool:
    return 0 < len(name) <= 40 and name.isascii() and name.isalnum() and name == name.lower()


def _binary(outgoing: Outgoing) -> tuple[dict[str, str], bytes]:
    attributes = _attributes(outgoing)
    headers = {"content-type": escaped(attributes.pop("datacontenttype", "application/octet-stream"))}
    headers.update({f"ce-{name}": escaped(_text(value)) for name, value in attributes.items()})
    headers.update(_trace(outgoing))
    return headers, outgoing.message.body


def _event(outgoing: Outgoing) -> dict[str, Any]:
    event = _attributes(outgoing)
    body = outgoing.message.body
    if not body:
        return event
    media = str(event.get("datacontenttype", "")).partition(";")[0].strip().lower()
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        event["data_base64"] = base64.b64encode(body).decode("ascii")
        return event
    if media == "application/json" or media.endswith("+json"):
        try:
            event["data"] = parsed(body)
        except HttpError:
            event["data_base64"] = base64.b64encode(body).decode("ascii")
    else:
        event["data"] = text
        event.setdefault("datacontenttype", "text/plain")
    return event


def _plain(outgoing: Outgoing) -> dict[str, Any]:
    message = outgoing.message
    properties = dict(message.properties)
    item: dict[str, Any] = {
        "id": id_of(outgoing),
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "published_at": outgoing.ts_ms,
        "headers": properties.pop("headers", {}),
        **properties,
    }
    return {**item, **value_of(message.body)}


def value_of(body: bytes) -> dict[str, str]:
    """A body in JSON: as text where it is."""
    try:
        return {"value": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"value_b64": base64.b64encode(body).decode("ascii")}


def _raw(outgoing: Outgoing) -> tuple[dict[str, str], bytes]:
    message = outgoing.message
    properties = message.properties
    headers = {"content-type": escaped(str(properties.get("content_type") or "application/octet-stream"))}
    texts: dict[str, Any] = {"routing-key": message.routing_key}
    texts.update({name.replace("_", "-"): properties.get(name) for name in _RAW})
    headers.update({f"penstock-{name}": escaped(str(value)) for name, value in texts.items() if value})
    for name, value in _headers(outgoing).items():
        if isinstance(value, str | int | float) and name.replace("-", "").isalnum() and name.isascii():
            headers[f"penstock-header-{name.lower()}"] = escaped(_text(value))
    headers.update(_trace(outgoing))
    return headers, message.body


_RAW: Final = ("message_id", "correlation_id", "reply_to", "type")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def escaped(text: str) -> str:
    """Text as the value of a header: percent-encoded where it is not printable ASCII, or a quote, % or space
    at its ends would be lost."""
    if text.isascii() and text.isprintable() and not set(text) & {'"', "%"} and text == text.strip():
        return text
    return quote(text.encode("utf-8", "surrogateescape"), safe=_PLAIN)
