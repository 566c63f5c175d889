"""Field tables and argument lists, checked in C. The words are in _tables.pyi."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    DEPTH_MAX = 16              # tables and arrays inside one another


cdef inline uint16_t load16(const uint8_t* p) noexcept nogil:
    return <uint16_t>((p[0] << 8) | p[1])

cdef inline uint32_t load32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]

cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    return (<uint64_t>load32(p) << 32) | load32(p + 4)

cdef inline void store16(uint8_t* p, uint16_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 8)
    p[1] = <uint8_t>value

cdef inline void store32(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 24)
    p[1] = <uint8_t>(value >> 16)
    p[2] = <uint8_t>(value >> 8)
    p[3] = <uint8_t>value

cdef inline void store64(uint8_t* p, uint64_t value) noexcept nogil:
    store32(p, <uint32_t>(value >> 32))
    store32(p + 4, <uint32_t>value)

# Bytes of the table (size word included) at p, of which n bytes are there; -1: malformed, cut short or too deep.
# Linear in the table's size, makes no object.
cdef Py_ssize_t table_size(const uint8_t* p, Py_ssize_t n, int depth) noexcept nogil

# Bytes of the value of type `kind` at p, of which n bytes are there; -1: unknown type, or not all there.
cdef Py_ssize_t value_size(uint8_t kind, const uint8_t* p, Py_ssize_t n, int depth) noexcept nogil

# Where the type of the first header of this name stands that is text or bytes (`S` or `x`; a length of 32 bits and so many
# bytes follow, all there) in a message's properties, AMQP's content header from the flags on. NULL: there is none.
cdef const uint8_t* text_header(const uint8_t* p, Py_ssize_t n, const char* name, uint8_t name_size) noexcept nogil
