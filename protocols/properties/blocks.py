"""Properties as publishers encode them, taken apart and put together.

They are AMQP 0-9-1's content header, from its property flags on, and MQTT 5.0's property block of a PUBLISH,
without its length. For messages that cross the protocols; what stays in its own is copied as it is.
Reading raises nothing for any bytes: what comes behind the first unreadable one is left out.

Source: AMQP 0-9-1 sections 4.2.5 and 4.2.6.1 with RabbitMQ's field types; MQTT 5.0 section 2.2.2.
"""

from __future__ import annotations

import struct
from typing import Any, Final

__all__ = [
    "FIELDS",
    "Decimal",
    "Fields",
    "Timestamp",
    "decode_block",
    "decode_header",
    "decode_key",
    "encode_header",
    "encode_text",
]

# Content header fields in wire order: (flag, name, type); s = short string, o = octet, t = u64, F = table.
FIELDS: Final = (
    (0x8000, "content-type", "s"),
    (0x4000, "content-encoding", "s"),
    (0x2000, "headers", "F"),
    (0x1000, "delivery-mode", "o"),
    (0x0800, "priority", "o"),
    (0x0400, "correlation-id", "s"),
    (0x0200, "reply-to", "s"),
    (0x0100, "expiration", "s"),
    (0x0080, "message-id", "s"),
    (0x0040, "timestamp", "t"),
    (0x0020, "type", "s"),
    (0x0010, "user-id", "s"),
    (0x0008, "app-id", "s"),
    (0x0004, "cluster-id", "s"),
)
_DEPTH_MAX: Final = 16
_ENTRIES_MAX: Final = 4096

Fields = dict[str, Any]
"""Of a content header, by name. Short strings, names and texts of headers are bytes, tables are dicts."""


# AMQP


class _Reader:
    """Reads forward in `data`; IndexError or struct.error when it ends, which the callers turn into "no
    more".
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.entries = 0

    def number(self, code: str) -> Any:
        (value,) = struct.unpack_from(code, self.data, self.at)
        self.at += struct.calcsize(code)
        return value

    def raw(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise IndexError
        value = self.data[self.at : end]
        self.at = end
        return value

    def table(self, depth: int) -> dict[bytes, Any]:
        end = self._end(depth)
        found: dict[bytes, Any] = {}
        while self.at < end:
            name = self.raw(self.number("B"))
            found[name] = self.value(depth)
        return found

    def array(self, depth: int) -> list[Any]:
        end = self._end(depth)
        found = []
        while self.at < end:
            found.append(self.value(depth))
        return found

    def _end(self, depth: int) -> int:
        if depth > _DEPTH_MAX:
            raise IndexError
        end = self.number(">I") + self.at
        if end > len(self.data):
            raise IndexError
        return int(end)

    def value(self, depth: int) -> Any:
        self.entries += 1
        if self.entries > _ENTRIES_MAX:
            raise IndexError
        code = self.raw(1)
        if code == b"S":
            return self.raw(self.number(">I"))
        if code == b"x":
            return bytearray(self.raw(self.number(">I")))
        if code == b"t":
            return bool(self.number("B"))
        if code == b"V":
            return None
        if code == b"T":
            return Timestamp(self.number(">Q"))
        if code == b"D":
            scale = self.number("B")
            return Decimal(scale, self.number(">i"))
        if code == b"F":
            return self.table(depth + 1)
        if code == b"A":
            return self.array(depth + 1)
        number = _NUMBERS.get(code)
        if number is None:
            raise IndexError
        return self.number(number)


_NUMBERS: Final = {
    b"b": ">b",
    b"B": ">B",
    b"s": ">h",
    b"u": ">H",
    b"I": ">i",
    b"i": ">I",
    b"l": ">q",
    b"L": ">q",
    b"f": ">f",
    b"d": ">d",
}


class Timestamp(int):
    """Seconds since the epoch."""


class Decimal(tuple[int, int]):
    """(scale, unscaled value)."""

    __slots__ = ()

    def __new__(cls, scale: int, value: int) -> Decimal:
        return super().__new__(cls, (scale, value))


def decode_key(key_block: bytes) -> tuple[bytes | None, bytes | None]:
    """(exchange, routing key) of a record's key block; None for what cannot be read."""
    reader = _Reader(key_block)
    exchange: bytes | None = None
    try:
        exchange = reader.raw(reader.number("B"))
        return exchange, reader.raw(reader.number("B"))
    except (IndexError, struct.error):
        return exchange, None


def decode_header(properties: bytes) -> Fields:
    """The fields of a content header; what comes after the first unreadable byte is left out."""
    reader = _Reader(properties)
    fields: Fields = {}
    try:
        flags = word = reader.number(">H")
        while word & 1:
            word = reader.number(">H")
        for flag, name, kind in FIELDS:
            if flags & flag:
                if kind == "s":
                    fields[name] = reader.raw(reader.number("B"))
                elif kind == "F":
                    fields[name] = reader.table(1)
                else:
                    fields[name] = reader.number("B" if kind == "o" else ">Q")
    except (IndexError, struct.error):
        pass
    return fields


def encode_header(fields: Fields) -> bytes:
    """A content header of these fields; texts of more than 255 bytes must not be among them."""
    flags = 0
    body = bytearray()
    for flag, name, kind in FIELDS:
        if name not in fields:
            continue
        value = fields[name]
        flags |= flag
        if kind == "s":
            body.append(len(value))
            body += value
        elif kind == "o":
            body.append(value)
        elif kind == "t":
            body += value.to_bytes(8, "big")
        else:
            table = b"".join(bytes((len(key),)) + key + _encode_value(item) for key, item in value.items())
            body += len(table).to_bytes(4, "big") + table
    return flags.to_bytes(2, "big") + bytes(body)


def _encode_value(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"t" + bytes((value,))
    if isinstance(value, int):
        return b"b" + value.to_bytes(1, "big", signed=True)
    if isinstance(value, bytearray):
        return b"x" + len(value).to_bytes(4, "big") + value
    if isinstance(value, list):
        items = b"".join(map(_encode_value, value))
        return b"A" + len(items).to_bytes(4, "big") + items
    return b"S" + len(value).to_bytes(4, "big") + bytes(value)


# MQTT


def decode_block(block: bytes) -> tuple[dict[int, Any], list[tuple[bytes, bytes]]]:
    """The properties of a PUBLISH by identifier, and its user properties in order."""
    found: dict[int, Any] = {}
    users: list[tuple[bytes, bytes]] = []
    reader = _Reader(block)
    try:
        while reader.at < len(block):
            identifier = reader.number("B")
            if identifier == 0x26:
                name = reader.raw(reader.number(">H"))
                users.append((name, reader.raw(reader.number(">H"))))
            elif identifier in (0x03, 0x08, 0x09):
                found[identifier] = reader.raw(reader.number(">H"))
            elif identifier == 0x01:
                found[identifier] = reader.number("B")
            elif identifier == 0x02:
                found[identifier] = reader.number(">I")
            else:
                break
    except (IndexError, struct.error):
        pass
    return found, users


def encode_text(text: str) -> bytes:
    """A u16 length and the text, cut to 65,535 bytes; NUL, which MQTT forbids, becomes U+FFFD."""
    raw = text.replace("\0", "\ufffd").encode("utf-8", "replace")
    if len(raw) > 65535:
        raw = raw[:65535].decode("utf-8", "ignore").encode()
    return len(raw).to_bytes(2, "big") + raw
