"""`_tables.pyi` in Python alone: for the client where no compiled kernel is.

`_tables.pyx` has the layouts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from penstock.errors import CodecError

_DEPTH_MAX: Final = 16
_WORD: Final = struct.Struct(">I")


class TableError(CodecError):
    pass


class Timestamp(int):
    __slots__ = ()


class Byte(int):
    __slots__ = ()


class UnsignedByte(int):
    __slots__ = ()


class Short(int):
    __slots__ = ()


class UnsignedShort(int):
    __slots__ = ()


class UnsignedInt(int):
    __slots__ = ()


class Long(int):
    __slots__ = ()


class ByteArray(bytes):
    __slots__ = ()


_FIELDS: Final = {
    Timestamp: (struct.Struct(">cQ"), b"T"),
    Byte: (struct.Struct(">cb"), b"b"),
    UnsignedByte: (struct.Struct(">cB"), b"B"),
    Short: (struct.Struct(">ch"), b"s"),
    UnsignedShort: (struct.Struct(">cH"), b"u"),
    UnsignedInt: (struct.Struct(">cI"), b"i"),
    Long: (struct.Struct(">cq"), b"l"),
}
_FIXED: Final[dict[int, tuple[struct.Struct, Callable[..., Any]]]] = {
    ord("t"): (struct.Struct(">?"), bool),
    ord("b"): (struct.Struct(">b"), Byte),
    ord("B"): (struct.Struct(">B"), UnsignedByte),
    ord("s"): (struct.Struct(">h"), Short),
    ord("u"): (struct.Struct(">H"), UnsignedShort),
    ord("I"): (struct.Struct(">i"), int),
    ord("i"): (struct.Struct(">I"), UnsignedInt),
    ord("l"): (struct.Struct(">q"), Long),
    ord("L"): (struct.Struct(">q"), Long),
    ord("T"): (struct.Struct(">Q"), Timestamp),
    ord("D"): (struct.Struct(">Bi"), lambda scale, whole: Decimal(whole).scaleb(-scale)),
    ord("f"): (struct.Struct(">f"), float),
    ord("d"): (struct.Struct(">d"), float),
    ord("V"): (struct.Struct(""), lambda: None),
}
"""The layout of a value by its type, and its maker."""
_TEXT, _BYTES, _TABLE, _ARRAY = b"SxFA"
_LETTERS: Final = {"o": struct.Struct(">B"), "h": struct.Struct(">H"), "l": _WORD, "L": struct.Struct(">Q")}


# Checking


def _value_size(kind: int, data: bytes, at: int, end: int, depth: int) -> int:
    """Bytes of the value of type `kind` at `at`; -1: unknown type or not all there."""
    if kind == _TABLE:
        return table_size(data, at, end, depth + 1)
    if kind == _ARRAY:
        return _inner_size(data, at, end, depth + 1, keys=False)
    if kind in (_TEXT, _BYTES):
        if end - at < 4:
            return -1
        size = int(_WORD.unpack_from(data, at)[0]) + 4
    elif kind in _FIXED:
        size = _FIXED[kind][0].size
    else:
        return -1
    return size if size <= end - at else -1


def _inner_size(data: bytes, at: int, end: int, depth: int, *, keys: bool) -> int:
    start = at
    if depth > _DEPTH_MAX or end - at < 4:
        return -1
    stop = at + 4 + int(_WORD.unpack_from(data, at)[0])
    if stop > end:
        return -1
    at += 4
    while at < stop:
        if keys:
            size = 1 + data[at]
            if stop - at < size + 1:
                return -1
            at += size
        size = _value_size(data[at], data, at + 1, stop, depth)
        if size < 0:
            return -1
        at += 1 + size
    return stop - start


def table_size(data: bytes, at: int, end: int, depth: int) -> int:
    """Bytes of the table at `at`, which ends before `end`; -1: it is not well-formed."""
    return _inner_size(data, at, end, depth, keys=True)


def check_table(data: bytes) -> bool:
    return table_size(data, 0, len(data), 1) == len(data)


def read_text_header(block: bytes, name: bytes) -> str | bytes | None:
    if len(name) > 255 or len(block) < 2 or not block[0] & 0x20:
        return None
    at = 2
    for flag in (0x80, 0x40):  # content-type and content-encoding stand before the headers
        if block[0] & flag:
            if at >= len(block):
                return None
            at += 1 + block[at]
    if len(block) - at < 4:
        return None
    end = at + 4 + int(_WORD.unpack_from(block, at)[0])
    if end > len(block):
        return None
    at += 4
    while at < end:
        size = block[at]
        if end - at < size + 2:
            return None
        key, kind, at = block[at + 1 : at + 1 + size], block[at + 1 + size], at + 2 + size
        size = _value_size(kind, block, at, end, 0)
        if size < 0:
            return None
        if key == name and kind in (_TEXT, _BYTES):
            return _text(kind, block[at + 4 : at + size])
        at += size
    return None


def _text(kind: int, raw: bytes) -> str | bytes:
    if kind == _BYTES:
        return ByteArray(raw)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


# Decoding


class _Reader:
    """A place in bytes, and how many entries may still be made of them."""

    def __init__(self, data: bytes, entries: int) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)
        self._entries = entries

    def raw(self, n: int) -> bytes:
        if self.end - self.at < n:
            raise TableError(f"{n} bytes wanted at byte {self.at} of {self.end}")
        self.at += n
        return self.data[self.at - n : self.at]

    def short(self) -> str:
        # Names of peers may be any bytes; surrogate escapes bring them back out as they came.
        return self.raw(self.raw(1)[0]).decode("utf-8", "surrogateescape")

    def long(self) -> bytes:
        return self.raw(_WORD.unpack(self.raw(4))[0])

    def inner(self, depth: int, entry: Callable[[], None]) -> None:
        """Read what a table or array has, entry by entry."""
        if depth > _DEPTH_MAX:
            raise TableError(f"tables more than {_DEPTH_MAX} deep", remedy="send flatter ones")
        (size,) = _WORD.unpack(self.raw(4))
        self.raw(size)
        outer, self.end = self.end, self.at
        self.at -= size
        while self.at < self.end:
            self._entries -= 1
            if self._entries < 0:
                raise TableError("a table with too many entries", remedy="send fewer")
            entry()
        self.end = outer

    def table(self, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}

        def entry() -> None:
            key = self.short()
            result[key] = self.value(depth)

        self.inner(depth, entry)
        return result

    def array(self, depth: int) -> list[Any]:
        result: list[Any] = []
        self.inner(depth, lambda: result.append(self.value(depth)))
        return result

    def value(self, depth: int) -> Any:
        kind = self.raw(1)[0]
        if kind == _TABLE:
            return self.table(depth + 1)
        if kind == _ARRAY:
            return self.array(depth + 1)
        if _value_size(kind, self.data, self.at, self.end, depth) < 0:
            raise TableError(f"field type {chr(kind)!r} is unknown or its value is cut short")
        if kind in (_TEXT, _BYTES):
            return _text(kind, self.long())
        layout, make = _FIXED[kind]
        return make(*layout.unpack(self.raw(layout.size)))


def decode_table(data: bytes, *, entries: int = 1024) -> dict[str, Any]:
    reader = _Reader(data, entries)
    result = reader.table(1)
    if reader.at != reader.end:
        raise TableError(f"{reader.end - reader.at} bytes behind the table")
    return result


def decode_fields(spec: str, data: bytes, *, entries: int = 1024) -> tuple[Any, ...]:
    reader = _Reader(data, entries)
    result: list[Any] = []
    bit = octet = 0
    for letter in spec:
        if letter == "b":
            if bit == 0:
                octet = reader.raw(1)[0]
            result.append(octet >> bit & 1 == 1)
            bit = (bit + 1) & 7
            continue
        bit = 0
        if letter == "s":
            result.append(reader.short())
        elif letter == "t":
            result.append(reader.table(1))
        elif letter == "S":
            result.append(reader.long())
        elif letter in _LETTERS:
            layout = _LETTERS[letter]
            result += layout.unpack(reader.raw(layout.size))
        else:
            raise ValueError(f"no field letter: {letter!r}")
    if reader.at != reader.end:
        raise TableError(f"{reader.end - reader.at} bytes behind the arguments")
    return tuple(result)


# Encoding


def _short(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"Expected str, got {type(text).__name__}")
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > 255:
        raise ValueError(f"a short string has at most 255 bytes, this one {len(raw)}")
    return bytes((len(raw),)) + raw


def _sized(raw: bytes) -> bytes:
    return _WORD.pack(len(raw)) + raw


def _value(value: Any, depth: int) -> bytes:
    if depth > _DEPTH_MAX:
        raise ValueError(f"tables more than {_DEPTH_MAX} deep")
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if type(value) in _FIELDS:
        layout, letter = _FIELDS[type(value)]
        return layout.pack(letter, value)
    if isinstance(value, int):
        if -0x80000000 <= value <= 0x7FFFFFFF:
            return struct.pack(">ci", b"I", value)
        if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
            return struct.pack(">cq", b"l", value)
        raise ValueError(f"an integer of a table has at most 64 bits with its sign, not {value}")
    if isinstance(value, str):
        return b"S" + _sized(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, ByteArray):
        return b"x" + _sized(value)
    if isinstance(value, bytes):
        return b"S" + _sized(value)
    if isinstance(value, float):
        return struct.pack(">cd", b"d", value)
    if isinstance(value, dict):
        return b"F" + _table(value, depth + 1)
    if isinstance(value, list | tuple):
        return b"A" + _sized(b"".join(_value(item, depth + 1) for item in value))
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        scale = max(-exponent, 0) if isinstance(exponent, int) else 0x100
        whole = int(value.scaleb(scale))
        if scale > 0xFF or not -0x80000000 <= whole <= 0x7FFFFFFF:
            raise ValueError(f"a decimal of a table has at most 32 bits with its sign, not {value}")
        return struct.pack(">cBi", b"D", scale, whole)
    raise TypeError(f"no AMQP field type for {type(value).__name__}")


def _table(table: dict[str, Any], depth: int) -> bytes:
    if not isinstance(table, dict):
        raise TypeError(f"Expected dict, got {type(table).__name__}")
    return _sized(b"".join(_short(key) + _value(value, depth) for key, value in table.items()))


def encode_table(table: dict[str, Any]) -> bytes:
    return _table(table, 1)


def encode_fields(spec: str, values: tuple[Any, ...]) -> bytes:
    if len(values) != len(spec):
        raise ValueError(f"{len(spec)} fields expected, {len(values)} given")
    parts: list[bytes] = []
    bit = octet = 0
    for letter, value in zip(spec, values, strict=True):
        if letter == "b":
            if bit == 8:
                parts.append(bytes((octet,)))
                bit = octet = 0
            octet |= bool(value) << bit
            bit += 1
            continue
        if bit:
            parts.append(bytes((octet,)))
            bit = octet = 0
        if letter == "s":
            parts.append(_short(value))
        elif letter == "t":
            parts.append(_table(value, 1))
        elif letter == "S":
            parts.append(_sized(value))
        else:
            parts.append(_LETTERS[letter].pack(value))
    if bit:
        parts.append(bytes((octet,)))
    return b"".join(parts)
