"""Values of AMQP 1.0 as a field table of 0-9-1 has them, and back."""

from __future__ import annotations

import decimal
from typing import Any, Final
from uuid import UUID

from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.properties import _tables as t
from penstock.protocols.properties.values import Table, Value

__all__ = ["SHORT_MAX", "from_field", "to_field", "to_table", "valid"]

SHORT_MAX: Final = 255
"""Bytes of a name in a table."""
_NESTED_MAX: Final = 8
"""Levels of a value that is translated."""


# AMQP 1.0 -> 0-9-1


def to_table(value: dict[Any, Any]) -> Table:
    """A map as a table. Raises ValueError: a key is no short text, or a value has no field type."""
    return {_name(key): to_field(item) for key, item in value.items()}


def to_field(value: Any, depth: int = 0) -> Value:
    """A value as a table has it. Raises ValueError: it cannot."""
    if depth > _NESTED_MAX:
        raise ValueError
    match value:
        case None | bool():
            return value
        case v.Described():
            return to_field(value.value, depth + 1)
        case v.Array():
            return [to_field(item, depth + 1) for item in value.items]
        case list():
            return [to_field(item, depth + 1) for item in value]
        case dict():
            return {_name(key): to_field(item, depth + 1) for key, item in value.items()}
        case v.Timestamp():
            return t.Timestamp(value // 1000) if value >= 0 else t.Long(value)
        case v.ULong():
            return t.Long(value) if value < 2**63 else str(int(value))
        case v.Decimal() | bytes():
            return t.ByteArray(value)
        case str() | UUID():
            return str(value)
        case float():
            return float(value)
    return _NUMBERS[type(value)](value)


_NUMBERS: Final[dict[type, type[int]]] = {
    v.UByte: t.UnsignedByte,
    v.UShort: t.UnsignedShort,
    v.UInt: t.UnsignedInt,
    v.Byte: t.Byte,
    v.Short: t.Short,
    v.Int: int,
    int: t.Long,
}


def _name(key: Any) -> str:
    if not isinstance(key, str) or len(key.encode()) > SHORT_MAX:
        raise ValueError
    return str(key)


# 0-9-1 -> AMQP 1.0


def valid(text: Any) -> str:
    """Text without the surrogates that stand for bytes that are no UTF-8."""
    return str(text).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def from_field(value: Value) -> Any:
    """A field of a table as a value."""
    match value:
        case None | bool():
            return value
        case t.Timestamp():
            return v.Timestamp(min(value, 2**53) * 1000)
        case list():
            return [from_field(item) for item in value]
        case dict():
            return {valid(key): from_field(item) for key, item in value.items()}
        case str():
            return valid(value)
        case bytes():
            return bytes(value)
        case float():
            return value
        case decimal.Decimal():
            return str(value)
    return _INTEGERS.get(type(value), v.Int)(value)


_INTEGERS: Final[dict[type, type[int]]] = {
    t.Byte: v.Byte,
    t.UnsignedByte: v.UByte,
    t.Short: v.Short,
    t.UnsignedShort: v.UShort,
    t.UnsignedInt: v.UInt,
    t.Long: int,
}
