"""`_records.pyi` in Python alone: for the client where no compiled kernel is.

The layouts stand in `_consumer.pyx`. tests/property/test_client_pure.py compares it with the kernel.
"""

from __future__ import annotations

import struct
from functools import total_ordering
from typing import Any

_RECORD = struct.Struct(">II")
_DELIVERY = struct.Struct(">QII")
_DELIVERED = struct.Struct(">QqHHII")
CUT_SHORT = "a delivery that is cut short"


def encode_records(bodies: list[bytes], props: list[bytes]) -> bytes:
    if len(props) != len(bodies):
        raise ValueError(f"{len(bodies)} bodies and {len(props)} properties")
    parts = []
    for body, block in zip(bodies, props, strict=True):
        parts += (_RECORD.pack(len(block), len(body)), block, body)
    return b"".join(parts)


@total_ordering
class MessageId:
    __slots__ = ("_due_ms", "_position", "_routed")

    def __init__(self, position: int, due_ms: int = 0, routed: bool | None = None) -> None:
        if not 0 <= position < 2**64:
            raise OverflowError("a position has 64 bits and no sign")
        self._position = position
        self._due_ms = due_ms
        self._routed = routed

    @property
    def position(self) -> int:
        return self._position

    @property
    def due_ms(self) -> int:
        return self._due_ms

    @property
    def routed(self) -> bool | None:
        return self._routed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageId):
            return NotImplemented
        return (self._position, self._due_ms) == (other._position, other._due_ms)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, MessageId):
            return NotImplemented
        return (self._position, self._due_ms) < (other._position, other._due_ms)

    def __hash__(self) -> int:
        return hash((self._position, self._due_ms))

    def __reduce__(self) -> tuple[Any, ...]:
        return MessageId, (self._position, self._due_ms, self._routed)

    def __str__(self) -> str:
        return f"pos:{self._position}"

    def __repr__(self) -> str:
        return f"MessageId(position={self._position}, due_ms={self._due_ms})"


class Record:
    position: int
    timestamp_ms: int
    tag: int
    body: bytes
    key_block: bytes
    block: bytes
    given_back: int
    redelivered: bool
    source: Any


class Chunk:
    """The records of one DELIVER frame, checked as a whole, each made when it is taken."""

    __slots__ = ("at", "block", "key_block", "left", "payload", "pull", "tag")

    def __init__(self, payload: bytes) -> None:
        if len(payload) < _DELIVERY.size:
            raise ValueError(CUT_SHORT)
        self.payload = payload
        self.tag, self.left, self.pull = _DELIVERY.unpack_from(payload)
        self.at = at = _DELIVERY.size
        for _ in range(self.left):
            if len(payload) - at < _DELIVERED.size:
                raise ValueError(CUT_SHORT)
            _, _, key, _, props, body = _DELIVERED.unpack_from(payload, at)
            at += _DELIVERED.size + key + props + body
            if at > len(payload):
                raise ValueError(CUT_SHORT)
        if at != len(payload):
            raise ValueError("a delivery with bytes left over")
        self.key_block = self.block = b""

    def position(self) -> int:
        """Of the next record."""
        return int(_DELIVERED.unpack_from(self.payload, self.at)[0])

    def skip(self) -> tuple[int, int]:
        """Step behind the next record: (its position, its bytes of credit)."""
        position, _, key, _, props, body = _DELIVERED.unpack_from(self.payload, self.at)
        size = _DELIVERED.size + key + props + body
        self.at += size
        self.tag += 1
        self.left -= 1
        return position, size

    def next(self, kind: type[Record], source: Any) -> tuple[Record, int]:
        """The next record, and its bytes of credit."""
        payload = self.payload
        position, timestamp_ms, key, flags, props, body = _DELIVERED.unpack_from(payload, self.at)
        record = kind.__new__(kind)
        record.position = position
        record.timestamp_ms = timestamp_ms
        record.tag = self.tag
        record.given_back = flags & 0x7FFF
        record.redelivered = bool(flags >> 15)
        at = self.at + _DELIVERED.size
        # Neighbours mostly have the same keys and properties: then they share the objects.
        if (found := payload[at : at + key]) != self.key_block:
            self.key_block = found
        record.key_block = self.key_block
        at += key
        if (found := payload[at : at + props]) != self.block:
            self.block = found
        record.block = self.block
        at += props
        record.body = payload[at : at + body]
        record.source = source
        size = at + body - self.at
        self.at += size
        self.tag += 1
        self.left -= 1
        return record, size

    def copied(self) -> Chunk:
        """One of the same records, to be taken apart from these."""
        other = Chunk.__new__(Chunk)
        for name in ("at", "left", "payload", "pull", "tag"):
            setattr(other, name, getattr(self, name))
        other.key_block = other.block = b""
        return other
