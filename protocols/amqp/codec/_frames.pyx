"""Frames of class basic: methods with content, confirms; and one more entry in a message's headers.

    method   1 | channel u16 | size u32 | 60 u16 | method u16 | arguments           | CE
    header   2 | channel u16 | size u32 | 60 u16 | 0 u16 | body size u64 | properties | CE
    body     3 | channel u16 | size u32 | at most body_max bytes                     | CE   ...

Source: AMQP 0-9-1 sections 2.3.5, 4.2.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.protocols.properties._tables cimport load16, load32, store16, store32, store64
from penstock.protocols.net.outbuffer cimport OutBuffer


cdef int put_confirm(OutBuffer out, uint16_t channel, uint16_t method, uint64_t seq, bint multiple) except -1:
    """basic.ack or basic.nack of a publish."""
    cdef uint8_t* p = begin_method(out, channel, method, 9)
    store64(p, seq)
    p[8] = multiple
    p[9] = FRAME_END
    out.commit(METHOD_HEAD + 10)
    return 0


cdef int put_return(OutBuffer out, uint16_t channel, uint32_t body_max, uint16_t code, bytes text, const uint8_t* key,
                    Py_ssize_t key_size, const uint8_t* props, uint32_t props_size, const uint8_t* body,
                    uint64_t body_size) except -1:
    """basic.return of a whole message. `key` is the key block: two short strings."""
    cdef Py_ssize_t text_size = PyBytes_GET_SIZE(text)
    cdef Py_ssize_t size = 3 + text_size + key_size
    cdef uint8_t* p
    if text_size > 255:
        raise ValueError("a reply text has at most 255 bytes")
    p = begin_method(out, channel, RETURN, size)
    store16(p, code)
    p[2] = <uint8_t>text_size
    memcpy(p + 3, PyBytes_AS_STRING(text), text_size)
    memcpy(p + 3 + text_size, key, key_size)
    p[size] = FRAME_END
    out.commit(METHOD_HEAD + size + 1)
    return put_content(out, channel, body_max, props, props_size, body, body_size)


cdef int put_content(OutBuffer out, uint16_t channel, uint32_t body_max, const uint8_t* props, uint32_t props_size,
                     const uint8_t* body, uint64_t body_size) except -1:
    """Content header and body frames."""
    cdef uint64_t frames = (body_size + body_max - 1) // body_max
    cdef Py_ssize_t total = 7 + 12 + props_size + 1 + <Py_ssize_t>body_size + 8 * <Py_ssize_t>frames
    cdef uint8_t* p = out.reserve(total)
    cdef uint64_t left = body_size
    cdef uint32_t n
    p[0] = FRAME_HEADER
    store16(p + 1, channel)
    store32(p + 3, 12 + props_size)
    store16(p + 7, BASIC)
    store16(p + 9, 0)
    store64(p + 11, body_size)
    memcpy(p + 19, props, props_size)
    p += 19 + props_size
    p[0] = FRAME_END
    p += 1
    while left:
        n = body_max if left > body_max else <uint32_t>left
        p[0] = FRAME_BODY
        store16(p + 1, channel)
        store32(p + 3, n)
        memcpy(p + 7, body + (body_size - left), n)
        p[7 + n] = FRAME_END
        p += 8 + n
        left -= n
    out.commit(total)
    return 0


cdef bytes offset_entry(int64_t offset):
    """The entry of a table of headers that tells a stream's offset."""
    cdef uint8_t value[8]
    store64(value, <uint64_t>offset)
    return b"\x0fx-stream-offsetl" + value[:8]


cdef bytes count_entry(int64_t count):
    """The entry that tells how often a message was given back."""
    cdef uint8_t value[8]
    store64(value, <uint64_t>count)
    return b"\x10x-delivery-countl" + value[:8]


cdef bytes with_entry(const uint8_t* props, uint32_t size, bytes entry):
    """The properties block (found well-formed when it was published) with one more entry in its headers."""
    cdef uint16_t flags = load16(props)
    cdef uint32_t at = 2, table = 0
    cdef uint8_t head[4]
    if flags & 0x8000:                      # content-type
        at += 1 + props[at]
    if flags & 0x4000:                      # content-encoding
        at += 1 + props[at]
    if flags & 0x2000:
        table = load32(props + at)
        store32(head, table + <uint32_t>PyBytes_GET_SIZE(entry))
        at += 4
        return props[:at - 4] + head[:4] + props[at:at + table] + entry + props[at + table:size]
    store32(head, <uint32_t>PyBytes_GET_SIZE(entry))
    return bytes((props[0] | 0x20, props[1])) + props[2:at] + head[:4] + entry + props[at:size]
