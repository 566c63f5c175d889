"""The frame of a content header, changed: the obvious way, for `protocols/links/amqp/_header_edit`.

Its payload: class u16, weight u16, body size u64, flags u16, then the properties that the flags say. Headers
are the third: a table of names with typed values. Source: AMQP 0-9-1, 4.2.5 and 4.2.6.1; RabbitMQ's types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pamqp import decode

__all__ = [
    "array_of",
    "entries",
    "lowered",
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
_PROPERTIES: Final[Mapping[str, tuple[int, int]]] = {
    "content_type": (_CONTENT_TYPE, 0),
    "content_encoding": (_CONTENT_ENCODING, 0),
    "headers": (_HEADERS, -4),
    "delivery_mode": (1 << 12, 1),
    "priority": (1 << 11, 1),
    "correlation_id": (1 << 10, 0),
    "reply_to": (1 << 9, 0),
    "expiration": (1 << 8, 0),
    "message_id": (1 << 7, 0),
    "timestamp": (1 << 6, 8),
    "type": (1 << 5, 0),
    "user_id": (_USER_ID, 0),
    "app_id": (1 << 3, 0),
    "cluster_id": (1 << 2, 0),
}
"""Flag and size in bytes of each, in their order on the wire; 0 = a short string, -4 = its size is a u32."""
_SIZES: Final = {
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"sUu", 2),
    **dict.fromkeys(b"Iif", 4),
    b"D"[0]: 5,
    **dict.fromkeys(b"LldT", 8),
    b"V"[0]: 0,
}
"""Of values by their type; others (S, x, F, A) have their size in front, as u32."""


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


def array_of(frame: bytes, name: bytes) -> list[Any]:
    """The elements of a header that is an array; none: there is no such header. Raises ValueError."""
    for at, kind_at, after in entries(frame, *table_of(frame)):
        if frame[at + 1 : kind_at] == name and frame[kind_at] == ord("A"):
            return list(decode.field_array(frame[kind_at + 1 : after])[1])
    return []


def without_user_id(frame: bytes) -> bytes:
    """The frame without the property user-id. Raises ValueError: it is damaged."""
    if not struct.unpack_from(">H", frame, _FLAGS_AT)[0] & _USER_ID:
        return frame
    parts = _parts(frame)
    del parts[_USER_ID]
    return _joined(frame, parts)


def _parts(frame: bytes) -> dict[int, bytes]:
    """The bytes of each property by its flag. Raises ValueError: the frame is damaged."""
    try:
        (flags,) = struct.unpack_from(">H", frame, _FLAGS_AT)
        at, found = _FLAGS_AT + 2, {}
        for flag, size in _PROPERTIES.values():
            if flags & flag:
                if size < 0:
                    size = 4 + struct.unpack_from(">I", frame, at)[0]
                end = at + (size or 1 + frame[at])
                found[flag] = frame[at:end]
                at = end
    except (struct.error, IndexError) as error:
        raise ValueError(f"the header of a message is damaged: {error}") from error
    return found


def _joined(frame: bytes, parts: Mapping[int, bytes]) -> bytes:
    """The frame with these properties instead of its own."""
    order = [flag for flag, _ in _PROPERTIES.values() if flag in parts]
    block = b"".join(parts[flag] for flag in order)
    made = bytearray(frame[:_FLAGS_AT] + struct.pack(">H", sum(order)) + block + frame[-1:])
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


def with_properties(frame: bytes, properties: Mapping[int, bytes]) -> bytes:
    """The frame with `encoded` properties in place of its own. Raises ValueError: it is damaged."""
    return _joined(frame, {**_parts(frame), **properties})


def lowered(frame: bytes) -> bytes:
    """The frame with the headers cc and bcc in place of CC and BCC. Raises ValueError: it is damaged."""
    made = bytearray(frame)
    for at, kind_at, _ in entries(frame, *table_of(frame)):
        if frame[at:kind_at] in (b"\x02CC", b"\x03BCC"):
            made[at + 1 : kind_at] = frame[at + 1 : kind_at].lower()
    return bytes(made)
