"""A table as bytes: the last message of each key, and up to where the topic was read.

    "PSTB" | version u8 = 1 | bytes of topic u16 | position u64 | topic, UTF-8
    | the payload of a DELIVER frame (docs/reference/native.md) | CRC-32 of all of it u32

Integers are big-endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.protocols.native.codec._inbox import Inbox
from penstock.sdk.message import Message

if TYPE_CHECKING:
    from penstock.sdk.consuming.consumer import Source

__all__ = ["SavedTable", "packed", "unpacked"]

_HEAD: Final = struct.Struct(">4sBHQ")
_MARK: Final = b"PSTB"
_VERSION: Final = 1
_CRC: Final = struct.Struct(">I")
_DELIVER: Final = struct.Struct(">QII")
_DELIVERED: Final = struct.Struct(">QqHHII")


class SavedTable(NamedTuple):
    """The saved state."""

    position: int
    payload: bytes

    def messages(self, source: Source[Any]) -> list[Message[Any]]:
        """The last message of each key."""
        inbox: Inbox[Message[Any]] = Inbox(Message, source, 0, 0)
        inbox.deliver(self.payload)
        return inbox.take(inbox.waiting)


def packed(topic: str, position: int, messages: Collection[Message[Any]]) -> bytes:
    """The table as bytes."""
    name = topic.encode()
    parts = [_HEAD.pack(_MARK, _VERSION, len(name), position), name, _DELIVER.pack(1, len(messages), 0)]
    for one in messages:
        sizes = len(one.key_block), 0, len(one.block), len(one.body)
        parts += [_DELIVERED.pack(one.position, one.timestamp_ms, *sizes), one.key_block, one.block, one.body]
    data = b"".join(parts)
    return data + _CRC.pack(zlib.crc32(data))


def unpacked(saved: bytes, topic: str) -> SavedTable:
    """The table that bytes are.

    Raises:
        ValueError: they are none, damaged, of another version, or of another topic.

    """
    if len(saved) < _HEAD.size + _CRC.size or not saved.startswith(_MARK):
        raise ValueError("saved= was not made by a table's saved()")
    data = saved[: -_CRC.size]
    if _CRC.pack(zlib.crc32(data)) != saved[-_CRC.size :]:
        raise ValueError("the saved table is damaged; open the table without it")
    _, version, size, position = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"the saved table is of version {version}, not {_VERSION}; open it without")
    end = _HEAD.size + size
    if data[_HEAD.size : end] != topic.encode():
        raise ValueError(f"the saved table is of topic {data[_HEAD.size : end].decode()!r}, not {topic!r}")
    return SavedTable(position, data[end:])
