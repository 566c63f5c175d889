"""Frames of class basic, encoded into a connection's output. The words are in _frames.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from penstock.protocols.properties._tables cimport store16, store32
from penstock.protocols.net.outbuffer cimport OutBuffer

cdef enum:
    FRAME_METHOD = 1
    FRAME_HEADER = 2
    FRAME_BODY = 3
    FRAME_END = 0xCE
    METHOD_HEAD = 11            # bytes of a method frame before its arguments
    BASIC = 60
    RETURN = 50
    DELIVER = 60
    GET_OK = 71
    ACK = 80
    NACK = 120


cdef inline uint8_t* begin_method(OutBuffer out, uint16_t channel, uint16_t method, Py_ssize_t size) except NULL:
    """Reserve the frame of a method of class basic, whose arguments have `size` bytes; where they go.

    The caller writes them and FRAME_END, then commits METHOD_HEAD + size + 1 bytes.
    """
    cdef uint8_t* p = out.reserve(METHOD_HEAD + size + 1)
    p[0] = FRAME_METHOD
    store16(p + 1, channel)
    store32(p + 3, <uint32_t>(4 + size))
    store16(p + 7, BASIC)
    store16(p + 9, method)
    return p + METHOD_HEAD


cdef int put_confirm(OutBuffer out, uint16_t channel, uint16_t method, uint64_t seq, bint multiple) except -1
cdef int put_return(OutBuffer out, uint16_t channel, uint32_t body_max, uint16_t code, bytes text, const uint8_t* key,
                    Py_ssize_t key_size, const uint8_t* props, uint32_t props_size, const uint8_t* body,
                    uint64_t body_size) except -1
cdef int put_content(OutBuffer out, uint16_t channel, uint32_t body_max, const uint8_t* props, uint32_t props_size,
                     const uint8_t* body, uint64_t body_size) except -1
cdef bytes offset_entry(int64_t offset)
cdef bytes count_entry(int64_t count)
cdef bytes with_entry(const uint8_t* props, uint32_t size, bytes entry)
