"""Tables of arguments of clients: stored exactly, compared, and encoded for the log.

A table is a mapping of str to bool, int, float, str, bytes, Decimal, datetime, None, lists and tables of
these: the types that AMQP fields decode to. Its encoding is JSON. Types that JSON lacks are one-entry
objects:

    {"b": base64}   bytes              {"s": base64}   text that is no UTF-8
    {"t": ISO 8601} datetime           {"d": digits}   Decimal
    {"f": text}     float inf or nan   {"o": {...}}    a table

Keys are sorted, so equal tables have equal encodings. The encoding is also the identity of a binding's
arguments.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import orjson

from penstock.router._tables import from_json, to_json
from penstock.router.names import text, wire

__all__ = ["Arguments", "MessageHeaders", "decode_table", "encode_table", "same_value"]

Arguments = Mapping[str, object]


class MessageHeaders(dict[str, Any]):
    """The headers of a message, and with them its other properties, for exchanges that look at these."""

    __slots__ = ("properties",)

    def __init__(self, headers: Arguments, properties: Arguments) -> None:
        super().__init__(headers)
        self.properties = properties
        """By RabbitMQ's names: `message_id`, `correlation_id`, `timestamp` ..."""


_DEPTH_MAX: Final = 64
_EMPTY: Final = b'{"o":{}}'


def same_value(left: object, right: object) -> bool:
    """Whether two values of tables are the same to a broker.

    Integers of all widths are one type; floats, decimals and bools are types of their own. Decimals are the
    same with the same digits and scale. Source: RabbitMQ's rabbit_misc:type_class.
    """
    if isinstance(left, str | bytes) and isinstance(right, str | bytes):
        return _raw(left) == _raw(right)
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left.as_tuple() == right.as_tuple()
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same_value(left[name], right[name]) for name in left)
    for type_ in (bool, int, float, Decimal):
        if isinstance(left, type_) or isinstance(right, type_):
            return isinstance(left, type_) and isinstance(right, type_) and left == right
    return left == right


def encode_table(table: Arguments) -> bytes:
    """The table as bytes; equal for equal tables.

    Raises:
        ValueError: a value of a type no field type has, or nested too deeply.

    """
    if not table:
        return _EMPTY
    encoded = orjson.dumps(to_json(table, 0, _name, _plain), option=orjson.OPT_SORT_KEYS)
    # orjson's bytes keep the room they were written in (some 4 KiB each); 100,000 are kept.
    return memoryview(encoded).tobytes()


def decode_table(data: bytes) -> dict[str, Any]:
    """The table that `encode_table` made these bytes of."""
    table = from_json(orjson.loads(data), _value)
    if not isinstance(table, dict):
        raise ValueError("not an encoded table")
    return table


def _raw(value: str | bytes) -> bytes:
    return wire(value) if isinstance(value, str) else bytes(value)


def _name(key: object) -> str:
    if type(key) is str and key.isascii() and not key.startswith("\0"):
        return key
    if not isinstance(key, str):
        raise ValueError(f"a table's key is text, not {type(key).__name__}")
    # JSON has no lone surrogates: such a key is kept by its bytes, behind a character that marks it.
    if key.startswith("\0") or not _is_utf8(key):
        return "\0" + base64.b64encode(wire(key)).decode("ascii")
    return key


def _is_utf8(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _plain(value: object, depth: int) -> object:
    """Of a value that is no ordinary one."""
    if depth > _DEPTH_MAX:
        raise ValueError(f"a table nested deeper than {_DEPTH_MAX}")
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else {"f": repr(value)}
        case str():
            return value if _is_utf8(value) else {"s": base64.b64encode(wire(value)).decode("ascii")}
        case bytes() | bytearray() | memoryview():
            return {"b": base64.b64encode(bytes(value)).decode("ascii")}
        case datetime():
            return {"t": value.isoformat()}
        case Decimal():
            return {"d": str(value)}
        case list() | tuple():
            return to_json(list(value), depth, _name, _plain)
        case Mapping():
            return to_json(dict(value), depth, _name, _plain)
    raise ValueError(f"a table cannot hold a {type(value).__name__}")


def _value(data: object) -> object:
    """Of an object of JSON that is no ordinary one."""
    assert isinstance(data, dict)
    ((kind, inner),) = data.items()
    if kind == "o":
        return {
            text(base64.b64decode(key[1:])) if key.startswith("\0") else key: from_json(item, _value)
            for key, item in inner.items()
        }
    match kind:
        case "b":
            return base64.b64decode(inner)
        case "s":
            return text(base64.b64decode(inner))
        case "t":
            return datetime.fromisoformat(inner)
        case "d":
            return Decimal(inner)
        case "f":
            return float(inner)
    raise ValueError(f"unknown kind {kind!r} in an encoded table")
