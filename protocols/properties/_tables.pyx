"""Field tables and argument lists of methods: decoded linearly, bounded in depth and count; encoded.

A peer's bytes come here before and after login, so every read is checked against what is there, nesting
ends at DEPTH_MAX, and a decode stops at a number of entries. Each byte is looked at once: no slices of the rest.

    table    size u32 | { key length u8 | key | type u8 | value } ...
    array    size u32 | { type u8 | value } ...

    type  value, big-endian           Python                  (RabbitMQ's dialect)
    t     u8                          bool
    I     i32                         int
    b B   i8, u8                      Byte, UnsignedByte
    s u   i16, u16                    Short, UnsignedShort
    i     u32                         UnsignedInt
    l L   i64                         Long
    f d   binary32, binary64          float
    D     scale u8, value i32         Decimal
    T     u64 seconds                 Timestamp
    S     size u32, bytes             str; bytes when they are no UTF-8
    x     size u32, bytes             ByteArray
    A     an array                    list
    F     a table                     dict
    V     nothing                     None

Argument lists are described by one letter per field: o u8, h u16, l u32, L u64, b bit (neighbours share octets),
s short string, S long string (bytes), t table.

Source: AMQP 0-9-1 section 4.2.5, RabbitMQ's list of field types in use.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

import struct
from decimal import Decimal

from penstock.errors import CodecError


class TableError(CodecError):
    """Bytes that are no table or no argument list, or one beyond the limits."""


class Timestamp(int):
    """A T field: seconds since 1970, unsigned. An int that stays a timestamp when it is encoded again."""

    __slots__ = ()


class Byte(int):
    """A b field."""

    __slots__ = ()


class UnsignedByte(int):
    """A B field."""

    __slots__ = ()


class Short(int):
    """An s field."""

    __slots__ = ()


class UnsignedShort(int):
    """A u field."""

    __slots__ = ()


class UnsignedInt(int):
    """An i field."""

    __slots__ = ()


class Long(int):
    """An l field, however small it is."""

    __slots__ = ()


_FIELDS = {
    Timestamp: (struct.Struct(">cQ"), b"T"),
    Byte: (struct.Struct(">cb"), b"b"),
    UnsignedByte: (struct.Struct(">cB"), b"B"),
    Short: (struct.Struct(">ch"), b"s"),
    UnsignedShort: (struct.Struct(">cH"), b"u"),
    UnsignedInt: (struct.Struct(">cI"), b"i"),
    Long: (struct.Struct(">cq"), b"l"),
}


class ByteArray(bytes):
    """An x field: bytes that are not text even when they look like it."""

    __slots__ = ()


# Checking


cdef Py_ssize_t value_size(uint8_t kind, const uint8_t* p, Py_ssize_t n, int depth) noexcept nogil:
    cdef Py_ssize_t size
    if kind == c'S' or kind == c'x':
        if n < 4:
            return -1
        size = <Py_ssize_t>load32(p) + 4
    elif kind == c't' or kind == c'b' or kind == c'B':
        size = 1
    elif kind == c's' or kind == c'u':
        size = 2
    elif kind == c'I' or kind == c'i' or kind == c'f':
        size = 4
    elif kind == c'D':
        size = 5
    elif kind == c'l' or kind == c'L' or kind == c'd' or kind == c'T':
        size = 8
    elif kind == c'V':
        size = 0
    elif kind == c'F':
        return table_size(p, n, depth + 1)
    elif kind == c'A':
        return array_size(p, n, depth + 1)
    else:
        return -1
    return size if size <= n else -1


cdef Py_ssize_t array_size(const uint8_t* p, Py_ssize_t n, int depth) noexcept nogil:
    cdef Py_ssize_t at = 4, end, size
    if depth > DEPTH_MAX or n < 4:
        return -1
    end = 4 + <Py_ssize_t>load32(p)
    if end > n:
        return -1
    while at < end:
        size = value_size(p[at], p + at + 1, end - at - 1, depth)
        if size < 0:
            return -1
        at += 1 + size
    return end


cdef Py_ssize_t table_size(const uint8_t* p, Py_ssize_t n, int depth) noexcept nogil:
    cdef Py_ssize_t at = 4, end, size
    if depth > DEPTH_MAX or n < 4:
        return -1
    end = 4 + <Py_ssize_t>load32(p)
    if end > n:
        return -1
    while at < end:
        # A key, its type, its value.
        size = 1 + p[at]
        if end - at < size + 1:
            return -1
        at += size
        size = value_size(p[at], p + at + 1, end - at - 1, depth)
        if size < 0:
            return -1
        at += 1 + size
    return end


cdef const uint8_t* text_header(const uint8_t* p, Py_ssize_t n, const char* name, uint8_t name_size) noexcept nogil:
    cdef Py_ssize_t at = 2, end, size
    cdef uint8_t flag = 0x80
    if n < 2 or not p[0] & 0x20:
        return NULL
    while flag > 0x20:                  # content-type and content-encoding stand before the headers
        if p[0] & flag:
            if at >= n:
                return NULL
            at += 1 + p[at]
        flag >>= 1
    if n - at < 4:
        return NULL
    end = at + 4 + <Py_ssize_t>load32(p + at)
    if end > n:
        return NULL
    at += 4
    while at < end:
        size = p[at]
        if end - at < size + 2:
            return NULL
        p += at
        end -= at
        size = value_size(p[1 + size], p + 2 + size, end - 2 - size, 0)
        if size < 0:
            return NULL
        if p[0] == name_size and memcmp(p + 1, name, name_size) == 0 and (
            p[1 + name_size] == c'S' or p[1 + name_size] == c'x'
        ):
            return p + 1 + name_size
        at = 2 + p[0] + size
    return NULL


def read_text_header(bytes block not None, bytes name not None):
    cdef const uint8_t* p
    if PyBytes_GET_SIZE(name) > 255:
        return None
    p = text_header(<const uint8_t*>PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block), PyBytes_AS_STRING(name),
                    <uint8_t>PyBytes_GET_SIZE(name))
    if p == NULL:
        return None
    return _text(p[0], PyBytes_FromStringAndSize(<const char*>p + 5, load32(p + 1)))


cdef object _text(uint8_t kind, bytes raw):
    """The value of a field of text or bytes."""
    if kind == c'x':
        return ByteArray(raw)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def check_table(bytes data not None):
    """Whether `data` is exactly one well-formed table; makes no object of its contents."""
    return table_size(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 1) == PyBytes_GET_SIZE(data)


# Decoding


cdef class _Reader:
    """A place in checked bytes, and how many entries may still be made of them."""

    cdef const uint8_t* p
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef Py_ssize_t entries

    cdef int need(self, Py_ssize_t n) except -1:
        if n < 0 or self.end - self.at < n:
            raise TableError(f"{n} bytes wanted at byte {self.at} of {self.end}")
        return 0

    cdef int spend(self) except -1:
        self.entries -= 1
        if self.entries < 0:
            raise TableError("a table with too many entries", remedy="send fewer")
        return 0

    cdef bytes raw(self, Py_ssize_t n):
        self.need(n)
        self.at += n
        return PyBytes_FromStringAndSize(<const char*>self.p + self.at - n, n)

    cdef str text(self, Py_ssize_t n):
        # Names of peers may be any bytes; surrogate escapes bring them back out as they came.
        return self.raw(n).decode("utf-8", "surrogateescape")

    cdef str short(self):
        self.need(1)
        self.at += 1
        return self.text(self.p[self.at - 1])

    cdef bytes long(self):
        self.need(4)
        self.at += 4
        return self.raw(load32(self.p + self.at - 4))

    cdef Py_ssize_t inner(self, int depth) except -1:
        """Where the table or array that begins here ends; goes to its first entry."""
        cdef Py_ssize_t size
        if depth > DEPTH_MAX:
            raise TableError(f"tables more than {DEPTH_MAX} deep", remedy="send flatter ones")
        self.need(4)
        size = load32(self.p + self.at)
        self.at += 4
        self.need(size)
        return self.at + size

    cdef dict table(self, int depth):
        cdef Py_ssize_t outer = self.end, end = self.inner(depth)
        cdef dict result = {}
        self.end = end
        while self.at < end:
            self.spend()
            key = self.short()
            result[key] = self.value(depth)
        self.end = outer
        return result

    cdef list array(self, int depth):
        cdef Py_ssize_t outer = self.end, end = self.inner(depth)
        cdef list result = []
        self.end = end
        while self.at < end:
            self.spend()
            result.append(self.value(depth))
        self.end = outer
        return result

    cdef object value(self, int depth):
        cdef uint8_t kind
        cdef const uint8_t* p
        cdef Py_ssize_t size
        cdef bytes raw
        self.need(1)
        kind = self.p[self.at]
        self.at += 1
        if kind == c'F':
            return self.table(depth + 1)
        if kind == c'A':
            return self.array(depth + 1)
        size = value_size(kind, self.p + self.at, self.end - self.at, depth)
        if size < 0:
            raise TableError(f"field type {chr(kind)!r} is unknown or its value is cut short")
        p = self.p + self.at
        if kind == c'S' or kind == c'x':
            return _text(kind, self.long())
        self.at += size
        if kind == c't':
            return p[0] != 0
        if kind == c'b':
            return Byte(<int8_t>p[0])
        if kind == c'B':
            return UnsignedByte(p[0])
        if kind == c's':
            return Short(<int16_t>load16(p))
        if kind == c'u':
            return UnsignedShort(load16(p))
        if kind == c'I':
            return <int32_t>load32(p)
        if kind == c'i':
            return UnsignedInt(load32(p))
        if kind == c'l' or kind == c'L':
            return Long(<int64_t>load64(p))
        if kind == c'T':
            return Timestamp(load64(p))
        if kind == c'D':
            return Decimal(<int32_t>load32(p + 1)).scaleb(-<int>p[0])
        if kind == c'f':
            return struct.unpack(">f", PyBytes_FromStringAndSize(<const char*>p, 4))[0]
        if kind == c'd':
            return struct.unpack(">d", PyBytes_FromStringAndSize(<const char*>p, 8))[0]
        return None


cdef _Reader _reader(bytes data, Py_ssize_t entries):
    cdef _Reader reader = _Reader.__new__(_Reader)
    reader.p = <const uint8_t*>PyBytes_AS_STRING(data)
    reader.at = 0
    reader.end = PyBytes_GET_SIZE(data)
    reader.entries = entries
    return reader


def decode_table(bytes data not None, *, Py_ssize_t entries=1024):
    """The table that `data` is, as a dict; `entries` bounds all its tables and arrays together."""
    cdef _Reader reader = _reader(data, entries)
    result = reader.table(1)
    if reader.at != reader.end:
        raise TableError(f"{reader.end - reader.at} bytes behind the table")
    return result


def decode_fields(str spec not None, bytes data not None, *, Py_ssize_t entries=1024):
    """The argument list `data` by its letters, as a tuple; all bytes must be used up."""
    cdef _Reader reader = _reader(data, entries)
    cdef list result = []
    cdef int bit = 0
    cdef Py_UCS4 letter
    for letter in spec:
        if letter == u'b':
            if bit == 0:
                reader.need(1)
                reader.at += 1
            result.append((reader.p[reader.at - 1] >> bit) & 1 == 1)
            bit = (bit + 1) & 7
            continue
        bit = 0
        if letter == u's':
            result.append(reader.short())
        elif letter == u'h':
            reader.need(2)
            result.append(load16(reader.p + reader.at))
            reader.at += 2
        elif letter == u't':
            result.append(reader.table(1))
        elif letter == u'S':
            result.append(reader.long())
        elif letter == u'o':
            reader.need(1)
            result.append(reader.p[reader.at])
            reader.at += 1
        elif letter == u'l':
            reader.need(4)
            result.append(load32(reader.p + reader.at))
            reader.at += 4
        elif letter == u'L':
            reader.need(8)
            result.append(load64(reader.p + reader.at))
            reader.at += 8
        else:
            raise ValueError(f"no field letter: {letter!r}")
    if reader.at != reader.end:
        raise TableError(f"{reader.end - reader.at} bytes behind the arguments")
    return tuple(result)


# Encoding


cdef bytes _short(str text):
    if text is None:
        raise TypeError("a short string is text, not None")
    cdef bytes raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > 255:
        raise ValueError(f"a short string has at most 255 bytes, this one {len(raw)}")
    return bytes((len(raw),)) + raw


cdef bytes _sized(bytes raw):
    return struct.pack(">I", len(raw)) + raw


cdef int _put(list parts, object value, int depth) except -1:
    if depth > DEPTH_MAX:
        raise ValueError(f"tables more than {DEPTH_MAX} deep")
    if value is None:
        parts.append(b"V")
    elif isinstance(value, bool):
        parts.append(b"t\x01" if value else b"t\x00")
    elif type(value) in _FIELDS:
        layout, letter = _FIELDS[type(value)]
        parts.append(layout.pack(letter, value))
    elif isinstance(value, int):
        if -0x80000000 <= value <= 0x7FFFFFFF:
            parts.append(struct.pack(">ci", b"I", value))
        elif -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
            parts.append(struct.pack(">cq", b"l", value))
        else:
            raise ValueError(f"an integer of a table has at most 64 bits with its sign, not {value}")
    elif isinstance(value, str):
        parts.append(b"S" + _sized((<str>value).encode("utf-8", "surrogateescape")))
    elif isinstance(value, ByteArray):
        parts.append(b"x" + _sized(bytes(value)))
    elif isinstance(value, bytes):
        parts.append(b"S" + _sized(value))
    elif isinstance(value, float):
        parts.append(struct.pack(">cd", b"d", value))
    elif isinstance(value, dict):
        parts.append(b"F" + _table(value, depth + 1))
    elif isinstance(value, (list, tuple)):
        inner = []
        for item in value:
            _put(inner, item, depth + 1)
        parts.append(b"A" + _sized(b"".join(inner)))
    elif isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        scale = max(-exponent, 0)
        whole = int(value.scaleb(scale))
        if scale > 0xFF or not -0x80000000 <= whole <= 0x7FFFFFFF:
            raise ValueError(f"a decimal of a table has at most 32 bits with its sign, not {value}")
        parts.append(struct.pack(">cBi", b"D", scale, whole))
    else:
        raise TypeError(f"no AMQP field type for {type(value).__name__}")
    return 0


cdef bytes _table(dict table, int depth):
    cdef list parts = []
    for key, value in table.items():
        parts.append(_short(key))
        _put(parts, value, depth)
    return _sized(b"".join(parts))


def encode_table(dict table not None):
    """The bytes of `table`, size word included."""
    return _table(table, 1)


def encode_fields(str spec not None, tuple values not None):
    """The argument list of `values` by its letters: what `decode_fields` reads."""
    cdef list parts = []
    cdef int bit = 0, octet = 0
    cdef Py_UCS4 letter
    if len(values) != len(spec):
        raise ValueError(f"{len(spec)} fields expected, {len(values)} given")
    for letter, value in zip(spec, values):
        if letter == u'b':
            if bit == 8:
                parts.append(bytes((octet,)))
                bit = octet = 0
            octet |= bool(value) << bit
            bit += 1
            continue
        if bit:
            parts.append(bytes((octet,)))
            bit = octet = 0
        if letter == u's':
            parts.append(_short(value))
        elif letter == u't':
            parts.append(_table(value, 1))
        elif letter == u'S':
            parts.append(_sized(value))
        else:
            parts.append(struct.pack({u'o': ">B", u'h': ">H", u'l': ">I", u'L': ">Q"}[letter], value))
    if bit:
        parts.append(bytes((octet,)))
    return b"".join(parts)
