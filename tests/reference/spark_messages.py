"""The frames of a row as an AMQP publish, written for reading: the oracle of Spark's sink.

`publish` takes a row of the table `traffic` (as `RecordBatch.to_pylist` gives it) that AMQP can say.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Any

LETTERS = {
    "string": "S",
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
    "bytes": "x",
    "void": "V",
}
FIELDS = (
    (15, "content_type"),
    (14, "content_encoding"),
    (13, "headers"),
    (12, "persistent"),
    (11, "priority"),
    (10, "correlation_id"),
    (9, "reply_to"),
    (7, "message_id"),
    (6, "event_time"),
    (5, "type"),
    (3, "app_id"),
)


def publish(
    row: dict[str, Any], producer: str, sequence: int, frame_max: int, exchange: str | None, key: str | None
) -> bytes:
    """Method, header and body frames."""
    mqtt = row.get("protocol") == "mqtt"
    if exchange is None:
        exchange = "amq.topic" if mqtt else row.get("address") or ""
    if key is None:
        key = row.get("routing_key") or ""
        key = key.replace("/", ".") if mqtt else key
    body = row.get("payload") or b""
    flags, block = 0, b""
    for bit, name in FIELDS:
        value = field(row, name, producer, sequence)
        if value is not None:
            flags |= 1 << bit
            block += value
    size = frame_max - 8
    return b"".join(
        [
            frame(1, struct.pack(">HHH", 60, 40, 0) + short(exchange) + short(key) + b"\0"),
            frame(2, struct.pack(">HHQH", 60, 0, len(body), flags) + block),
            *(frame(3, body[at : at + size]) for at in range(0, len(body), size)),
        ]
    )


def field(row: dict[str, Any], name: str, producer: str, sequence: int) -> bytes | None:
    """One property; None: the message has it not."""
    value = row.get(name)
    if name == "headers":
        entries = [h for h in value or () if not h["name"].startswith("x-penstock-")]
        ours = [
            short("x-penstock-producer") + b"S" + long(producer.encode()),
            short("x-penstock-sequence") + b"l" + struct.pack(">q", sequence),
        ]
        return long(b"".join([header(entry) for entry in entries] + ours))
    if name == "persistent":
        return b"\1" if value is False else b"\2"
    if name == "priority":
        return bytes([value]) if value else None
    if value is None:
        return None
    if name == "event_time":
        # Not by a float, which has no room for the microseconds of times that are far away.
        return struct.pack(">Q", (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1))
    return short(value)


def header(entry: dict[str, Any]) -> bytes:
    """Name, letter and value."""
    value = entry["value"] or b""
    sized = long(value) if entry["type"] in ("string", "bytes") else value
    return short(entry["name"]) + LETTERS[entry["type"]].encode() + sized


def frame(kind: int, payload: bytes) -> bytes:
    """On channel 1."""
    return struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"


def short(text: str | bytes) -> bytes:
    """A short string."""
    data = text.encode() if isinstance(text, str) else text
    return bytes([len(data)]) + data


def long(data: bytes) -> bytes:
    """A long string, or a table."""
    return struct.pack(">I", len(data)) + data
