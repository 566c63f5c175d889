"""Reads AMQP 1.0 values. See `_decoding.pyi`; `tests/reference/amqp10_values.py` does the same in plain Python.

Every length is checked against the end of the bytes before it is used. Recursion is as deep as DEPTH_MAX.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.protocols.properties._tables cimport load16, load32, load64

from uuid import UUID

from penstock.protocols.amqp10.codec.errors import DecodeError
from penstock.protocols.amqp10.codec.values import (
    Array, Byte, Char, Decimal, Described, Float, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort,
)

DEPTH_MAX = 16
VALUES_MAX = 4096

cdef enum:
    DEEPEST = 16


cdef class Reader:
    """Reads forward in `data`."""

    cdef bytes data
    cdef const uint8_t* p
    cdef Py_ssize_t at
    cdef Py_ssize_t size
    cdef Py_ssize_t left                # values that may still be read

    def __cinit__(self, bytes data not None, Py_ssize_t at, Py_ssize_t values):
        if at < 0:
            raise ValueError("at is 0 at least")
        self.data = data
        self.p = <const uint8_t*>PyBytes_AS_STRING(data)
        self.size = PyBytes_GET_SIZE(data)
        self.at = at
        self.left = values

    cdef const uint8_t* raw(self, Py_ssize_t size) except NULL:
        """The next `size` bytes."""
        cdef Py_ssize_t at = self.at
        if at > self.size or size > self.size - at:
            raise DecodeError(f"cut short: {size} bytes at {at} of {self.size}")
        self.at = at + size
        return self.p + at

    cdef int spend(self, int depth) except -1:
        self.left -= 1
        if self.left < 0:
            raise DecodeError("more values than are read at once")
        if depth > DEEPEST:
            raise DecodeError(f"values deeper than {DEPTH_MAX} levels")
        return 0

    cdef object value(self, int depth):
        cdef uint8_t code = self.raw(1)[0]
        if code == 0:
            self.spend(depth)
            descriptor = self.value(depth + 1)
            return Described(descriptor, self.value(depth + 1))
        return self.body(code, depth)

    cdef object body(self, uint8_t code, int depth):
        """The value behind its constructor."""
        self.spend(depth)
        if code >= 0xC0:
            return self.compound(code, depth)
        if code >= 0xA0:
            return self.variable(code)
        return self.fixed(code)

    cdef object fixed(self, uint8_t code):
        cdef const uint8_t* p
        cdef uint32_t bits
        cdef uint64_t long_bits
        cdef float single
        cdef double double_
        if code == 0x40:
            return None
        if code == 0x41:
            return True
        if code == 0x42:
            return False
        if code == 0x43:
            return UInt(0)
        if code == 0x44:
            return ULong(0)
        if code == 0x45:
            return []
        if code == 0x50:
            return UByte(self.raw(1)[0])
        if code == 0x51:
            return Byte(<int8_t>self.raw(1)[0])
        if code == 0x52:
            return UInt(self.raw(1)[0])
        if code == 0x53:
            return ULong(self.raw(1)[0])
        if code == 0x54:
            return Int(<int8_t>self.raw(1)[0])
        if code == 0x55:
            return <int8_t>self.raw(1)[0]
        if code == 0x56:
            p = self.raw(1)
            if p[0] > 1:
                raise DecodeError(f"a boolean of {p[0]}")
            return p[0] == 1
        if code == 0x60:
            return UShort(load16(self.raw(2)))
        if code == 0x61:
            return Short(<int16_t>load16(self.raw(2)))
        if code == 0x70:
            return UInt(load32(self.raw(4)))
        if code == 0x71:
            return Int(<int32_t>load32(self.raw(4)))
        if code == 0x72:
            bits = load32(self.raw(4))
            memcpy(&single, &bits, 4)
            return Float(single)
        if code == 0x73:
            bits = load32(self.raw(4))
            if bits > 0x10FFFF or 0xD800 <= bits < 0xE000:
                raise DecodeError(f"{bits:#x} is no Unicode character")
            return Char(chr(bits))
        if code == 0x80:
            return ULong(load64(self.raw(8)))
        if code == 0x81:
            return <int64_t>load64(self.raw(8))
        if code == 0x82:
            long_bits = load64(self.raw(8))
            memcpy(&double_, &long_bits, 8)
            return double_
        if code == 0x83:
            return Timestamp(<int64_t>load64(self.raw(8)))
        if code == 0x74 or code == 0x84 or code == 0x94:
            return Decimal(self.copy(4 if code == 0x74 else 8 if code == 0x84 else 16))
        if code == 0x98:
            return UUID(bytes=self.copy(16))
        raise DecodeError(f"{code:#04x} is no constructor")

    cdef bytes copy(self, Py_ssize_t size):
        return PyBytes_FromStringAndSize(<const char*>self.raw(size), size)

    cdef object variable(self, uint8_t code):
        cdef Py_ssize_t size, i
        cdef const uint8_t* p
        if code not in (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3):
            raise DecodeError(f"{code:#04x} is no constructor")
        size = self.raw(1)[0] if code < 0xB0 else <Py_ssize_t>load32(self.raw(4))
        if code & 0x0F == 0:
            return self.copy(size)
        p = self.raw(size)
        if code & 0x0F == 3:
            for i in range(size):
                if p[i] > 127:
                    raise DecodeError("a symbol that is no ASCII")
        try:
            text = PyUnicode_DecodeUTF8(<const char*>p, size, NULL)
        except UnicodeDecodeError:
            raise DecodeError("a string that is no UTF-8") from None
        return Symbol(text) if code & 0x0F == 3 else text

    cdef object compound(self, uint8_t code, int depth):
        cdef Py_ssize_t width, size, end, count
        cdef object made
        if code not in (0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0):
            raise DecodeError(f"{code:#04x} is no constructor")
        width = 1 if code in (0xC0, 0xC1, 0xE0) else 4
        size = self.raw(1)[0] if width == 1 else <Py_ssize_t>load32(self.raw(4))
        if size < width or size > self.size - self.at:
            raise DecodeError(f"{_kind(code)} of {size} bytes at {self.at} of {self.size}")
        end = self.at + size
        count = self.raw(1)[0] if width == 1 else <Py_ssize_t>load32(self.raw(4))
        if code >= 0xE0:
            made = self.array(count, depth)
        else:
            # Each item has at least its constructor.
            if count > end - self.at:
                raise DecodeError(f"{count} items in {end - self.at} bytes")
            made = self.map(count, depth) if code & 1 else self.items(count, depth)
        if self.at != end:
            raise DecodeError(f"{_kind(code)} of {size} bytes whose items end elsewhere")
        return made

    cdef list items(self, Py_ssize_t count, int depth):
        cdef Py_ssize_t i
        cdef list found = []
        for i in range(count):
            found.append(self.value(depth + 1))
        return found

    cdef dict map(self, Py_ssize_t count, int depth):
        cdef Py_ssize_t i
        cdef dict found = {}
        if count % 2:
            raise DecodeError("a map with a key that has no value")
        for i in range(count // 2):
            key = self.value(depth + 1)
            item = self.value(depth + 1)
            try:
                found[key] = item
            except TypeError:
                raise DecodeError("a map with a key that is a list, a map or an array") from None
        if len(found) * 2 != count:
            raise DecodeError("a map with a key that stands twice")
        return found

    cdef object array(self, Py_ssize_t count, int depth):
        cdef list descriptors = [], items = []
        cdef uint8_t code = self.raw(1)[0]
        cdef Py_ssize_t i
        while code == 0:
            if len(descriptors) + depth >= DEEPEST:
                raise DecodeError(f"values deeper than {DEPTH_MAX} levels")
            descriptors.append(self.value(depth + 1))
            code = self.raw(1)[0]
        # Items may have no bytes, so their number is bounded before the first one is made.
        if count > self.left:
            raise DecodeError("more values than are read at once")
        for i in range(count):
            item = self.body(code, depth + 1)
            for descriptor in reversed(descriptors):
                item = Described(descriptor, item)
            items.append(item)
        return Array(code, items)


cdef str _kind(uint8_t code):
    return "an array" if code >= 0xE0 else "a map" if code & 1 else "a list"


def decode_transfer(bytes body not None):
    cdef Reader reader = Reader(body, 0, 16)
    cdef const uint8_t* p = reader.p
    cdef Py_ssize_t count, size, i
    cdef list fields = [None] * 11
    if reader.size < 6 or p[0] != 0 or p[1] != 0x53 or p[2] != 0x14 or p[3] != 0xC0:
        return None
    size, count = p[4], p[5]
    if size > reader.size - 5 or count > 6:
        return None
    reader.at = 6
    for i in range(count):
        fields[i] = reader.value(1)
    if reader.at != 5 + size:
        return None
    handle, number, tag, form, settled, more = fields[:6]
    if (
        type(handle) is not UInt
        or (number is not None and type(number) is not UInt)
        or (tag is not None and type(tag) is not bytes)
        or (form is not None and type(form) is not UInt)
        or (settled is not None and type(settled) is not bool)
        or (more is not None and type(more) is not bool)
    ):
        return None
    return handle, number, tag, form, settled, more is True, reader.at


def decode(bytes data not None, *, Py_ssize_t values=4096):
    value, end = decode_one(data, values=values)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes behind the value")
    return value


def decode_one(bytes data not None, Py_ssize_t at=0, *, Py_ssize_t values=4096):
    cdef Reader reader = Reader(data, at, values)
    value = reader.value(0)
    return value, reader.at
