"""A row of the table `traffic` as an AMQP message: where it goes, and with which properties.

What came by MQTT goes to `amq.topic` with dots for slashes, where the gateway's MQTT clients get it. A row's
own `user_id`, `expires_at` and times of the gateway are not sent: the first is the login's, the others are
of the message that was.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pika

__all__ = ["Envelope", "header_value", "message_of"]

_OURS: Final = "x-penstock-"
_TEXTS: Final = ("message_id", "reply_to", "content_type", "content_encoding", "type", "app_id")


@dataclass(frozen=True)
class Envelope:
    """Where all messages go; None: where each row's own column says."""

    exchange: str | None = None
    routing_key: str | None = None


def message_of(
    row: dict[str, Any], envelope: Envelope, producer: str, sequence: int
) -> tuple[str, str, bytes, pika.BasicProperties]:
    """Exchange, routing key, body and properties of a row (`RecordBatch.to_pylist`)."""
    import pika

    mqtt = row.get("protocol") == "mqtt"
    exchange = envelope.exchange
    if exchange is None:
        exchange = "amq.topic" if mqtt else row.get("address") or ""
    key = envelope.routing_key
    if key is None:
        key = row.get("routing_key") or ""
        if mqtt:
            key = key.replace("/", ".")
    body = row["payload"]
    if body is None:
        body = b""
    headers: dict[str, Any] = {
        header["name"]: header_value(header["type"], header["value"])
        for header in row.get("headers") or ()
        if not header["name"].startswith(_OURS)
    }
    headers["x-penstock-producer"] = producer
    headers["x-penstock-sequence"] = sequence
    fields: dict[str, Any] = {name: row[name] for name in _TEXTS if row.get(name) is not None}
    correlation = row.get("correlation_id")
    if correlation is not None:
        fields["correlation_id"] = (
            correlation if isinstance(correlation, str) else correlation.decode("latin-1")
        )
    if row.get("priority"):
        fields["priority"] = row["priority"]
    moment = row.get("event_time")
    if moment is not None:
        fields["timestamp"] = int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    properties = pika.BasicProperties(
        headers=headers, delivery_mode=1 if row.get("persistent") is False else 2, **fields
    )
    return exchange, key, body.encode() if isinstance(body, str) else body, properties


_OCTETS: Final = {
    "boolean": "t",
    "int8": "b",
    "uint8": "B",
    "int16": "s",
    "uint16": "u",
    "int32": "I",
    "uint32": "i",
    "int64": "l",
    "float": "f",
    "double": "d",
    "decimal": "D",
    "timestamp": "T",
    "array": "A",
    "table": "F",
    "void": "V",
}


def header_value(kind: str, value: bytes) -> Any:
    """The value of a header of the table, as Python has it: type name and bytes back to what they say."""
    # Not pika's decoder, which makes whole numbers of doubles.
    from pamqp.decode import embedded_value

    if kind == "string":
        return value.decode("utf-8", "surrogateescape")
    if kind == "bytes":
        return value
    return embedded_value(_OCTETS[kind].encode() + value)[1]
