"""The frame of a content header, changed in place: everything else in it keeps its bytes and types.

Its payload: class u16, weight u16, body size u64, flags u16, then the properties that the flags say. Headers
are the third: a table of names with typed values. Source: AMQP 0-9-1, 4.2.5 and 4.2.6.1; RabbitMQ's types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pamqp.frame
from pamqp import decode, encode
from pamqp.header import ContentHeader

__all__ = [
    "array_of",
    "element",
    "entries",
    "short_string",
    "table_of",
    "with_entry",
    "with_first",
    "with_properties",
    "without_user_id",
]

_FLAGS_AT: Final = 7 + 2 + 2 + 8
"""In a whole frame."""
_CONTENT_TYPE: Final = 1 << 15
_CONTENT_ENCODING: Final = 1 << 14
_HEADERS: Final = 1 << 13
_USER_ID: Final = 1 << 4
_BEFORE_USER_ID: Final = (
    *((1 << 12, 1), (1 << 11, 1)),  # delivery-mode, priority
    *((1 << bit, 0) for bit in (10, 9, 8, 7)),  # correlation-id, reply-to, expiration, message-id
    *((1 << 6, 8), (1 << 5, 0)),  # timestamp, type
)
"""Flag and size in bytes of the properties between the headers and user-id; 0 = a short string."""
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


def element(table: Mapping[str, Any], more: bytes = b"") -> bytes:
    """A table as an element of an array; `more`: entries behind its own, as AMQP has them."""
    entries = bytes(encode.field_table(dict(table)))[4:] + more
    return b"F" + struct.pack(">I", len(entries)) + entries


def array_of(frame: bytes, name: bytes) -> list[Any]:
    """The elements of a header that is an array; none: there is no such header. Raises ValueError."""
    for at, kind_at, after in entries(frame, *table_of(frame)):
        if frame[at + 1 : kind_at] == name and frame[kind_at] == ord("A"):
            return list(decode.field_array(frame[kind_at + 1 : after])[1])
    return []


def without_user_id(frame: bytes) -> bytes:
    """The frame without the property user-id. Raises ValueError: it is damaged."""
    (flags,) = struct.unpack_from(">H", frame, _FLAGS_AT)
    if not flags & _USER_ID:
        return frame
    at = table_of(frame)[1]
    try:
        for flag, size in _BEFORE_USER_ID:
            if flags & flag:
                at += size or 1 + frame[at]
        made = bytearray(frame[:at] + frame[at + 1 + frame[at] :])
    except IndexError as error:
        raise ValueError(f"the header of a message is damaged: {error}") from error
    struct.pack_into(">H", made, _FLAGS_AT, flags & ~_USER_ID)
    struct.pack_into(">I", made, 3, len(made) - 8)
    return bytes(made)


def with_first(frame: bytes, name: bytes, first: bytes) -> bytes:
    """The frame with `first`, an `element`, in front of a header that is an array. Raises ValueError."""
    elements = first
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
