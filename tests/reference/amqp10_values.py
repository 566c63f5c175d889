"""Reads AMQP 1.0 values in plain Python: the oracle of the kernel `amqp10/codec/_decoding`.

Linear in the bytes, bounded in depth and in the number of values.

Each value costs one of `values`, also one without bytes: an array of 2^32 nulls has 13 bytes and is refused.
A compound value is as long as its size says; bytes that its items leave over are an error.

Source: AMQP 1.0 part 1, sections 1.2 and 1.6.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from penstock.protocols.amqp10.codec.errors import DecodeError
from penstock.protocols.amqp10.codec.values import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

__all__ = ["DEPTH_MAX", "VALUES_MAX", "decode", "decode_one"]

DEPTH_MAX: Final = 16
"""Levels of lists, maps, arrays and descriptors in one another."""
VALUES_MAX: Final = 4096
"""Values that one call reads, compound ones and their items together."""

_U32: Final = struct.Struct(">I")


def decode(data: bytes, *, values: int = VALUES_MAX) -> Any:
    """The value that `data` is, all of it.

    Raises:
        DecodeError: no value, bytes left over, deeper than DEPTH_MAX, or more than `values`.

    """
    value, end = decode_one(data, values=values)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes behind the value")
    return value


def decode_one(data: bytes, at: int = 0, *, values: int = VALUES_MAX) -> tuple[Any, int]:
    """The value that begins at `at`, and the index behind it. Raises as `decode`."""
    reader = _Reader(data, at, values)
    return reader.value(0), reader.at


def _bool(raw: bytes) -> bool:
    if raw[0] > 1:
        raise DecodeError(f"a boolean of {raw[0]}")
    return raw[0] == 1


def _char(raw: bytes) -> Char:
    number = int.from_bytes(raw, "big")
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise DecodeError(f"{number:#x} is no Unicode character")
    return Char(chr(number))


def _string(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise DecodeError("a string that is no UTF-8") from None


def _symbol(raw: bytes) -> Symbol:
    try:
        return Symbol(raw.decode("ascii"))
    except UnicodeDecodeError:
        raise DecodeError("a symbol that is no ASCII") from None


def _unsigned(kind: type[int]) -> Callable[[bytes], Any]:
    return lambda raw: kind(int.from_bytes(raw, "big"))


def _signed(kind: type[int]) -> Callable[[bytes], Any]:
    return lambda raw: kind(int.from_bytes(raw, "big", signed=True))


_FIXED: Final[dict[int, tuple[int, Callable[[bytes], Any]]]] = {
    0x40: (0, lambda _: None),
    0x41: (0, lambda _: True),
    0x42: (0, lambda _: False),
    0x43: (0, lambda _: UInt(0)),
    0x44: (0, lambda _: ULong(0)),
    0x45: (0, lambda _: []),
    0x50: (1, _unsigned(UByte)),
    0x51: (1, _signed(Byte)),
    0x52: (1, _unsigned(UInt)),
    0x53: (1, _unsigned(ULong)),
    0x54: (1, _signed(Int)),
    0x55: (1, _signed(int)),
    0x56: (1, _bool),
    0x60: (2, _unsigned(UShort)),
    0x61: (2, _signed(Short)),
    0x70: (4, _unsigned(UInt)),
    0x71: (4, _signed(Int)),
    0x72: (4, lambda raw: Float(struct.unpack(">f", raw)[0])),
    0x73: (4, _char),
    0x74: (4, Decimal),
    0x80: (8, _unsigned(ULong)),
    0x81: (8, _signed(int)),
    0x82: (8, lambda raw: struct.unpack(">d", raw)[0]),
    0x83: (8, _signed(Timestamp)),
    0x84: (8, Decimal),
    0x94: (16, Decimal),
    0x98: (16, lambda raw: UUID(bytes=raw)),
}
"""By constructor: width, and the value of so many bytes."""

_VARIABLE: Final[dict[int, tuple[int, Callable[[bytes], Any]]]] = {
    0xA0: (1, bytes),
    0xA1: (1, _string),
    0xA3: (1, _symbol),
    0xB0: (4, bytes),
    0xB1: (4, _string),
    0xB3: (4, _symbol),
}
"""By constructor: width of the size, and the value of so many bytes."""

_COMPOUND: Final[dict[int, tuple[int, str]]] = {
    0xC0: (1, "list"),
    0xC1: (1, "map"),
    0xD0: (4, "list"),
    0xD1: (4, "map"),
    0xE0: (1, "array"),
    0xF0: (4, "array"),
}


class _Reader:
    """Reads forward in `data`."""

    def __init__(self, data: bytes, at: int, values: int) -> None:
        self.data = data
        self.at = at
        self.left = values

    def raw(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise DecodeError(f"cut short: {size} bytes at {self.at} of {len(self.data)}")
        raw = self.data[self.at : end]
        self.at = end
        return raw

    def number(self, width: int) -> int:
        return int.from_bytes(self.raw(width), "big")

    def value(self, depth: int) -> Any:
        code = self.number(1)
        if code == 0:
            self.spend(depth)
            descriptor = self.value(depth + 1)
            return Described(descriptor, self.value(depth + 1))
        return self.body(code, depth)

    def spend(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise DecodeError("more values than are read at once")
        if depth > DEPTH_MAX:
            raise DecodeError(f"values deeper than {DEPTH_MAX} levels")

    def body(self, code: int, depth: int) -> Any:
        """The value behind its constructor."""
        self.spend(depth)
        if code in _FIXED:
            width, make = _FIXED[code]
            return make(self.raw(width))
        if code in _VARIABLE:
            width, make = _VARIABLE[code]
            return make(self.raw(self.number(width)))
        if code not in _COMPOUND:
            raise DecodeError(f"{code:#04x} is no constructor")
        width, kind = _COMPOUND[code]
        size = self.number(width)
        end = self.at + size
        if size < width or end > len(self.data):
            raise DecodeError(f"a {kind} of {size} bytes at {self.at} of {len(self.data)}")
        count = self.number(width)
        if kind == "list":
            made: Any = self.items(count, end, depth)
        elif kind == "map":
            made = self.map(count, end, depth)
        else:
            made = self.array(count, end, depth)
        if self.at != end:
            raise DecodeError(f"a {kind} of {size} bytes whose items end elsewhere")
        return made

    def items(self, count: int, end: int, depth: int) -> list[Any]:
        # Each item has at least its constructor.
        if count > end - self.at:
            raise DecodeError(f"{count} items in {end - self.at} bytes")
        return [self.value(depth + 1) for _ in range(count)]

    def map(self, count: int, end: int, depth: int) -> dict[Any, Any]:
        if count % 2:
            raise DecodeError("a map with a key that has no value")
        parts = self.items(count, end, depth)
        try:
            found = dict(zip(parts[::2], parts[1::2], strict=True))
        except TypeError:
            raise DecodeError("a map with a key that is a list, a map or an array") from None
        if len(found) * 2 != count:
            raise DecodeError("a map with a key that stands twice")
        return found

    def array(self, count: int, end: int, depth: int) -> Array:
        descriptors: list[Any] = []
        code = self.number(1)
        while code == 0:
            if len(descriptors) + depth >= DEPTH_MAX:
                raise DecodeError(f"values deeper than {DEPTH_MAX} levels")
            descriptors.append(self.value(depth + 1))
            code = self.number(1)
        # Items may have no bytes, so their number is bounded before the first one is made.
        if count > self.left:
            raise DecodeError("more values than are read at once")
        items = []
        for _ in range(count):
            item = self.body(code, depth + 1)
            for descriptor in reversed(descriptors):
                item = Described(descriptor, item)
            items.append(item)
        return Array(code, items)
