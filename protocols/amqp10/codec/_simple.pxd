"""Simple values, read without an object, and a buffer in which kernels put bytes together. Words in _simple.pyx."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.protocols.properties._tables cimport load32, store32, store64

cdef struct Simple:                 # a value that is no list, map or array, and has no descriptor
    uint8_t code                    # its constructor
    const uint8_t* p                # what is behind it, without a length
    Py_ssize_t size


cdef struct Compound:               # a list or a map
    const uint8_t* p                # its items
    const uint8_t* end
    uint32_t count                  # of items; a map has two for each entry
    bint shortest                   # it has the shortest constructor


cdef struct Buffer:
    uint8_t* p
    Py_ssize_t size, capacity


# Bytes of the simple value at p, of which n bytes are there, constructor included; -1: it is another one, cut short or
# not well-formed.
cdef Py_ssize_t read_simple(const uint8_t* p, Py_ssize_t n, Simple* out) noexcept nogil
# The same of a list or a map; its items are not looked at.
cdef Py_ssize_t read_compound(const uint8_t* p, Py_ssize_t n, bint is_map, Compound* out) noexcept nogil
# Bytes of any value, constructor included, as far as its sizes tell; -1: it is cut short, or none.
# Bytes of a value that is simple, or a list or map (whose keys are texts) of such, a few levels deep; `left`: how many values
# there may still be.
cdef Py_ssize_t read_value(const uint8_t* p, Py_ssize_t n, int level, int* left) noexcept nogil
cdef Py_ssize_t extent(const uint8_t* p, Py_ssize_t n) noexcept nogil
# Whether n bytes at p are UTF-8, as Python has it.
cdef bint is_utf8(const uint8_t* p, Py_ssize_t n) noexcept nogil
cdef bint is_ascii(const uint8_t* p, Py_ssize_t n) noexcept nogil
# Whether the simple value has the encoding that `encoding.encode` gives it.
cdef bint is_shortest(const Simple* value) noexcept nogil

cdef int grow(Buffer* buffer, Py_ssize_t n) except -1
# Make it empty; one that a large message left behind is given back.
cdef void clear(Buffer* buffer) noexcept


cdef enum:
    VALUES_MAX = 1024               # of one section of a body


cdef inline bint is_list(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    return n > 0 and (p[0] == 0x45 or p[0] == 0xC0 or p[0] == 0xD0)


cdef inline bint is_null(const Simple* value) noexcept nogil:
    return value.code == 0x40

cdef inline bint is_uint(const Simple* value) noexcept nogil:
    return value.code == 0x43 or value.code == 0x52 or value.code == 0x70

cdef inline bint is_true(const Simple* value) noexcept nogil:
    return value.code == 0x41 or (value.code == 0x56 and value.p[0] == 1)

cdef inline bint is_false(const Simple* value) noexcept nogil:
    return value.code == 0x42 or (value.code == 0x56 and value.p[0] == 0)

cdef inline bint is_text(const Simple* value) noexcept nogil:
    return value.code == 0xA1 or value.code == 0xB1

cdef inline bint is_symbol(const Simple* value) noexcept nogil:
    return value.code == 0xA3 or value.code == 0xB3

cdef inline bint is_binary(const Simple* value) noexcept nogil:
    return value.code == 0xA0 or value.code == 0xB0

cdef inline uint64_t number(const Simple* value) noexcept nogil:
    """The bits of an integer; those of a signed one are extended from its last byte on only."""
    cdef uint64_t found = 0
    cdef Py_ssize_t i
    for i in range(value.size):
        found = found << 8 | value.p[i]
    return found


# Fields of performatives, whose type is known: where the field at p ends; NULL: it is no such value, or cut short.

cdef inline const uint8_t* take_uint(const uint8_t* p, const uint8_t* end, uint32_t* out) noexcept nogil:
    if p < end:
        if p[0] == 0x52 and end - p > 1:
            out[0] = p[1]
            return p + 2
        if p[0] == 0x43:
            out[0] = 0
            return p + 1
        if p[0] == 0x70 and end - p > 4:
            out[0] = load32(p + 1)
            return p + 5
    return NULL

cdef inline const uint8_t* take_flag(const uint8_t* p, const uint8_t* end, bint* out) noexcept nogil:
    """A boolean, or null, which leaves `out` as it is."""
    if p < end:
        if p[0] == 0x41 or p[0] == 0x42:
            out[0] = p[0] == 0x41
            return p + 1
        if p[0] == 0x40:
            return p + 1
        if p[0] == 0x56 and end - p > 1 and p[1] < 2:
            out[0] = p[1]
            return p + 2
    return NULL

cdef inline const uint8_t* take_null(const uint8_t* p, const uint8_t* end) noexcept nogil:
    return p + 1 if p < end and p[0] == 0x40 else NULL


cdef inline uint8_t* reserve(Buffer* buffer, Py_ssize_t n) except NULL:
    """Room for `n` bytes, one at least, at the end; they count when `size` is raised."""
    if buffer.capacity - buffer.size < n:
        grow(buffer, n)
    return buffer.p + buffer.size

cdef inline int put(Buffer* buffer, const uint8_t* p, Py_ssize_t n) except -1:
    if n:
        memcpy(reserve(buffer, n), p, n)
        buffer.size += n
    return 0

cdef inline int put_byte(Buffer* buffer, uint8_t value) except -1:
    reserve(buffer, 1)[0] = value
    buffer.size += 1
    return 0

cdef inline int put_u32(Buffer* buffer, uint32_t value) except -1:
    store32(reserve(buffer, 4), value)
    buffer.size += 4
    return 0

cdef inline int put_u64(Buffer* buffer, uint64_t value) except -1:
    store64(reserve(buffer, 8), value)
    buffer.size += 8
    return 0

cdef inline uint8_t* write_uint(uint8_t* p, uint32_t value) noexcept nogil:
    """A uint of at most 5 bytes; where it ends."""
    if value == 0:
        p[0] = 0x43
        return p + 1
    if value < 256:
        p[0] = 0x52
        p[1] = <uint8_t>value
        return p + 2
    p[0] = 0x70
    store32(p + 1, value)
    return p + 5

cdef inline int put_sized(Buffer* buffer, uint8_t code, const uint8_t* p, Py_ssize_t n) except -1:
    """A binary, string or symbol: `code` is its constructor while it has less than 256 bytes."""
    if n < 256:
        put_byte(buffer, code)
        put_byte(buffer, <uint8_t>n)
    else:
        put_byte(buffer, code + 0x10)
        put_u32(buffer, <uint32_t>n)
    return put(buffer, p, n)

cdef inline int put_compound(Buffer* buffer, uint8_t code, uint32_t count, const uint8_t* p, Py_ssize_t n) except -1:
    """A list (code 0xC0) or map (0xC1) of items that are encoded already; a list without items is not meant."""
    if count < 256 and n < 255:
        put_byte(buffer, code)
        put_byte(buffer, <uint8_t>(n + 1))
        put_byte(buffer, <uint8_t>count)
    else:
        put_byte(buffer, code + 0x10)
        put_u32(buffer, <uint32_t>(n + 4))
        put_u32(buffer, count)
    return put(buffer, p, n)
