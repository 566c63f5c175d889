"""The frame of a content header, changed in place: everything else in it keeps its bytes and types.

Its payload: class u16, weight u16, body size u64, flags u16, then the properties that the flags say. Headers
are the third: a table of names with typed values. Source: AMQP 0-9-1, 4.2.5 and 4.2.6.1; RabbitMQ's types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pamqp.frame
from pamqp import encode
from pamqp.header import ContentHeader

__all__ = ["entries", "short_string", "table_of", "with_entry", "with_first", "with_properties"]

_FLAGS_AT: Final = 7 + 2 + 2 + 8
"""In a whole frame."""
_CONTENT_TYPE: Final = 1 << 15
_CONTENT_ENCODING: Final = 1 << 14
_HEADERS: Final = 1 << 13
_SIZES: Final = {
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"sUu", 2),
    **dict.fromkeys(b"Iif", 4),
    b"D"[0]: 5,
    **dict.fromkeys(b"LldT", 8),
    b"V"[0]: 0,
}
"""Of values by their type; others (S, x, F, A) have their size in front, as u32."""


def short_string(text: str) -> bytes:
    """Size u8 and bytes. Raises ValueError: it has more than 255."""
    data = text.encode()
    return bytes([len(data)]) + data


def table_of(frame: bytes) -> tuple[int, int]:
    """Start and end of the entries of the headers; both are where the table would be put, if there is none.

    Raises:
        ValueError: the frame is damaged.

    """
    try:
        (flags,) = struct.unpack_from(">H", frame, _FLAGS_AT)
        at = _FLAGS_AT + 2
        for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
            if flags & flag:
                at += 1 + frame[at]
        if not flags & _HEADERS:
            return at, at
        (size,) = struct.unpack_from(">I", frame, at)
    except (struct.error, IndexError) as error:
        raise ValueError(f"the header of a message is damaged: {error}") from error
    return at + 4, at + 4 + size


def entries(frame: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Start of each entry, start of its value's type, and its end. Raises ValueError: it is damaged."""
    try:
        while at < end:
            kind_at = at + 1 + frame[at]
            kind = frame[kind_at]
            after = kind_at + 1
            after += _SIZES[kind] if kind in _SIZES else 4 + struct.unpack_from(">I", frame, after)[0]
            yield at, kind_at, after
            at = after
    except (struct.error, IndexError) as error:
        raise ValueError(f"the header of a message is damaged: {error}") from error


def with_entry(frame: bytes, name: bytes, value: bytes) -> bytes:
    """The frame with a header, in place of another of that name; `value` has its type in front.

    Raises:
        ValueError: the frame is damaged.

    """
    start, end = table_of(frame)
    added = bytes([len(name)]) + name + value
    kept = [
        frame[at:after]
        for at, kind_at, after in entries(frame, start, end)
        if frame[at + 1 : kind_at] != name
    ]
    table = b"".join([*kept, added])
    head = bytearray(frame[: start - 4 if end > start or _has_headers(frame) else start])
    head[_FLAGS_AT] |= _HEADERS >> 8
    made = head + struct.pack(">I", len(table)) + table + frame[end:]
    struct.pack_into(">I", made, 3, len(made) - 8)
    return bytes(made)


def _has_headers(frame: bytes) -> bool:
    return bool(frame[_FLAGS_AT] & (_HEADERS >> 8))


def with_first(frame: bytes, name: bytes, table: Mapping[str, Any]) -> bytes:
    """The frame with `table` as the first element of a header that is an array. Raises ValueError."""
    elements = b"F" + encode.field_table(dict(table))
    start, end = table_of(frame)
    for at, kind_at, after in entries(frame, start, end):
        if frame[at + 1 : kind_at] == name and frame[kind_at] == ord("A"):
            elements += frame[kind_at + 5 : after]
    return with_entry(frame, name, b"A" + struct.pack(">I", len(elements)) + elements)


def with_properties(frame: bytes, properties: Mapping[str, Any]) -> bytes:
    """The frame with these properties in place of its own; named as AMQP has them, `type` included."""
    _, channel, header = pamqp.frame.unmarshal(frame)
    assert isinstance(header, ContentHeader)
    for name, value in properties.items():
        setattr(header.properties, "message_type" if name == "type" else name, value)
    return pamqp.frame.marshal(header, channel)
