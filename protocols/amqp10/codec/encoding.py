"""Writes AMQP 1.0 values, in the shortest encoding of each type.

Source: AMQP 1.0 part 1, sections 1.2 and 1.6.
"""

from __future__ import annotations

import struct
from typing import Any, Final
from uuid import UUID

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

__all__ = ["encode", "encode_list", "symbols"]

_DECIMALS: Final = {4: b"\x74", 8: b"\x84", 16: b"\x94"}


def encode(value: Any) -> bytes:
    """The bytes of a value.

    Raises:
        TypeError: a class that stands for no AMQP type.
        OverflowError: a number beyond its type.

    """
    if value is None:
        return b"\x40"
    if value is True:
        return b"\x41"
    if value is False:
        return b"\x42"
    kind = type(value)
    if kind is Described:
        return b"\x00" + encode(value.descriptor) + encode(value.value)
    if kind is list:
        return encode_list([encode(item) for item in value])
    if kind is dict:
        return _map(value)
    if kind is Array:
        return _array(value)
    writer = _WRITERS.get(kind)
    if writer is None:
        raise TypeError(f"{kind.__name__} stands for no type of AMQP 1.0")
    return bytes(writer(value))


def encode_list(items: list[bytes]) -> bytes:
    """A list of items that are encoded already."""
    body = b"".join(items)
    if not items:
        return b"\x45"
    if len(items) < 256 and len(body) < 255:
        return bytes((0xC0, len(body) + 1, len(items))) + body
    return b"\xd0" + struct.pack(">II", len(body) + 4, len(items)) + body


def symbols(*names: str) -> Array:
    """An array of symbols."""
    return Array(0xA3 if all(len(name) < 256 for name in names) else 0xB3, [Symbol(name) for name in names])


def _map(value: dict[Any, Any]) -> bytes:
    body = b"".join(encode(key) + encode(item) for key, item in value.items())
    if len(value) < 128 and len(body) < 255:
        return bytes((0xC1, len(body) + 1, 2 * len(value))) + body
    return b"\xd1" + struct.pack(">II", len(body) + 4, 2 * len(value)) + body


def _array(value: Array) -> bytes:
    head, items = b"", value.items
    while items and all(type(item) is Described for item in items):
        # The descriptor is part of the constructor: it is the same for all.
        head += b"\x00" + encode(items[0].descriptor)
        items = [item.value for item in items]
    body = head + bytes((value.code,)) + b"".join(_bare(value.code, item) for item in items)
    if len(items) < 256 and len(body) < 255:
        return bytes((0xE0, len(body) + 1, len(items))) + body
    return b"\xf0" + struct.pack(">II", len(body) + 4, len(items)) + body


def _bare(code: int, item: Any) -> bytes:
    """An item of an array: what follows the constructor `code`, which its items share."""
    category = code >> 4
    if code == 0x56:
        return bytes((item,))
    if code in (0x72, 0x82):
        return struct.pack(">f" if code == 0x72 else ">d", item)
    if category == 0x4:
        return b""
    if category in (0x5, 0x6, 0x7, 0x8, 0x9):
        width = 1 << (category - 5)
        if isinstance(item, str):
            return ord(item).to_bytes(4, "big")
        if isinstance(item, UUID):
            return item.bytes
        if isinstance(item, bytes):
            return item
        return int(item).to_bytes(width, "big", signed=code in _SIGNED)
    if category in (0xA, 0xB):
        raw = item.encode() if isinstance(item, str) else item
        return len(raw).to_bytes(1 if category == 0xA else 4, "big") + raw
    whole = encode(item)
    width = 1 if category in (0xC, 0xE) else 4
    if whole == b"\x45":
        return width.to_bytes(width, "big") + bytes(width)
    short = whole[0] >> 4 in (0xC, 0xE)
    if short == (width == 1):
        return whole[1:]
    if not short:
        raise OverflowError("an item that is too long for its constructor")
    size, count = whole[1], whole[2]
    return struct.pack(">II", size + 3, count) + whole[3:]


_SIGNED: Final = frozenset((0x51, 0x54, 0x55, 0x61, 0x71, 0x81, 0x83))


def _sized(short: int, raw: bytes) -> bytes:
    if len(raw) < 256:
        return bytes((short, len(raw))) + raw
    return bytes((short + 0x10,)) + len(raw).to_bytes(4, "big") + raw


def _unsigned(zero: bytes, small: bytes, large: bytes, width: int, value: int) -> bytes:
    if value == 0:
        return zero
    if 0 < value < 256:
        return small + bytes((value,))
    return large + value.to_bytes(width, "big")


def _signed(small: bytes, large: bytes, width: int, value: int) -> bytes:
    if -128 <= value < 128:
        return small + value.to_bytes(1, "big", signed=True)
    return large + value.to_bytes(width, "big", signed=True)


_WRITERS: Final[dict[type, Any]] = {
    UByte: lambda value: b"\x50" + value.to_bytes(1, "big"),
    UShort: lambda value: b"\x60" + value.to_bytes(2, "big"),
    UInt: lambda value: _unsigned(b"\x43", b"\x52", b"\x70", 4, value),
    ULong: lambda value: _unsigned(b"\x44", b"\x53", b"\x80", 8, value),
    Byte: lambda value: b"\x51" + value.to_bytes(1, "big", signed=True),
    Short: lambda value: b"\x61" + value.to_bytes(2, "big", signed=True),
    Int: lambda value: _signed(b"\x54", b"\x71", 4, value),
    int: lambda value: _signed(b"\x55", b"\x81", 8, value),
    Timestamp: lambda value: b"\x83" + value.to_bytes(8, "big", signed=True),
    Float: lambda value: b"\x72" + struct.pack(">f", value),
    float: lambda value: b"\x82" + struct.pack(">d", value),
    Char: lambda value: b"\x73" + ord(value).to_bytes(4, "big"),
    UUID: lambda value: b"\x98" + value.bytes,
    Decimal: lambda value: _DECIMALS[len(value)] + value,
    bytes: lambda value: _sized(0xA0, value),
    str: lambda value: _sized(0xA1, value.encode()),
    Symbol: lambda value: _sized(0xA3, value.encode("ascii")),
}
