"""Takes the meaning from headers that route copies of a message.

A publish with the header CC or BCC goes to the queues in it, too. The copies of a stored message are stored
already, so these headers are spelt in small letters on the way: the header stays readable and routes nothing.

The payload of a content header: class u16, weight u16, body size u64, flags u16, then the properties that the
flags say. Headers are the third: a table of names with typed values. Source: AMQP 0-9-1, 4.2.5 and 4.2.6.1.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["harmless"]

_FLAGS_AT: Final = 7 + 2 + 2 + 8
"""In a whole frame."""
_CONTENT_TYPE: Final = 1 << 15
_CONTENT_ENCODING: Final = 1 << 14
_HEADERS: Final = 1 << 13
_NAMES: Final = (b"\x02CC", b"\x03BCC")
_SIZES: Final = {
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"sUu", 2),
    **dict.fromkeys(b"Iif", 4),
    b"D"[0]: 5,
    **dict.fromkeys(b"LldT", 8),
    b"V"[0]: 0,
}
"""Of values by their type; others (S, x, F, A) have their size in front, as u32."""


def harmless(frame: bytes) -> bytes:
    """The frame of a content header without CC and BCC. Raises ValueError: it is damaged."""
    if not any(name in frame for name in _NAMES):
        return frame
    try:
        return _renamed(frame)
    except (struct.error, IndexError) as error:
        raise ValueError(f"the header of a message is damaged: {error}") from error


def _renamed(frame: bytes) -> bytes:
    (flags,) = struct.unpack_from(">H", frame, _FLAGS_AT)
    at = _FLAGS_AT + 2
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & flag:
            at += 1 + frame[at]
    if not flags & _HEADERS:
        return frame
    (size,) = struct.unpack_from(">I", frame, at)
    at += 4
    end = at + size
    made = bytearray(frame)
    while at < end:
        name_end = at + 1 + frame[at]
        if frame[at:name_end] in _NAMES:
            made[at + 1 : name_end] = frame[at + 1 : name_end].lower()
        kind = frame[name_end]
        at = name_end + 1
        at += _SIZES[kind] if kind in _SIZES else 4 + struct.unpack_from(">I", frame, at)[0]
    return bytes(made)
