"""The types of AMQP 1.0 values in Python: one class for each type that Python has no type for.

| AMQP | Python | AMQP | Python |
|---|---|---|---|
| null, boolean | None, bool | string, symbol, char | str, `Symbol`, `Char` |
| ubyte, ushort, uint, ulong | `UByte`, `UShort`, `UInt`, `ULong` | binary, uuid | bytes, uuid.UUID |
| byte, short, int, long | `Byte`, `Short`, `Int`, int | timestamp | `Timestamp`, ms |
| float, double | `Float`, float | decimal32, 64, 128 | `Decimal`: its bytes, uninterpreted |
| list, map, array | list, dict, `Array` | a described value | `Described` |

Source: AMQP 1.0 part 1, section 1.6.
"""

from __future__ import annotations

from typing import Any

from penstock.lazy_dataclass import dataclass

__all__ = [
    "Array",
    "Byte",
    "Char",
    "Decimal",
    "Described",
    "Float",
    "Int",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
]


class UByte(int):
    """0 to 2^8 - 1."""


class UShort(int):
    """0 to 2^16 - 1."""


class UInt(int):
    """0 to 2^32 - 1."""


class ULong(int):
    """0 to 2^64 - 1."""


class Byte(int):
    """-2^7 to 2^7 - 1."""


class Short(int):
    """-2^15 to 2^15 - 1."""


class Int(int):
    """-2^31 to 2^31 - 1."""


class Timestamp(int):
    """Milliseconds since 1970, signed, 64 bits."""


class Float(float):
    """A number of 32 bits."""


class Symbol(str):
    """ASCII text from a set of names."""


class Char(str):
    """One Unicode character."""


class Decimal(bytes):
    """A decimal of 4, 8 or 16 bytes as it came: nothing here calculates with it."""


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type; `code` is the constructor that their encoding has."""

    code: int
    items: list[Any]


@dataclass(frozen=True, slots=True)
class Described:
    """A value and the descriptor that says what it stands for."""

    descriptor: Any
    value: Any
