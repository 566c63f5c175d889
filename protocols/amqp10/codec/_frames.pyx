"""Frames that kernels write into a connection's output: dispositions, flows, transfers.

    frame         size u32 | 2 u8 | 0 u8 | channel u16 | performative | part of a message
    disposition   00 53 15 | list: role | first uint | last uint | settled true | state
    flow          00 53 13 | list: next-incoming-id | incoming-window | next-outgoing-id | outgoing-window | handle |
                  delivery-count | link-credit; without a link the first four
    transfer      00 53 14 | C0 size 06: handle | delivery-id | its four bytes as tag | format 0 | settled | more

Sizes and lists are in their shortest form, as `encoding.encode` has them; the ids of a transfer have four bytes.

Source: AMQP 1.0 part 2, sections 2.3 and 2.7.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from penstock.protocols.amqp10.codec._simple cimport write_uint
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.protocols.properties._tables cimport store16, store32


cdef inline uint8_t* begin(uint8_t* p, uint16_t channel, uint8_t code) noexcept:
    """The head of a frame, and the descriptor of its performative. `end` writes the size."""
    p[4] = 2
    p[5] = 0
    store16(p + 6, channel)
    p[8] = 0
    p[9] = 0x53
    p[10] = code
    return p + 11


cdef int put_disposition(OutBuffer out, uint16_t channel, bint role, uint32_t first, uint32_t last, bint settled,
                         bytes state) except -1:
    cdef Py_ssize_t state_size = PyBytes_GET_SIZE(state), size
    cdef uint8_t fields[16]
    cdef uint8_t* p
    cdef uint8_t* start
    cdef uint8_t* q = fields
    q[0] = 0x41 if role else 0x42
    q = write_uint(q + 1, first)
    q = write_uint(q, last)
    q[0] = 0x41 if settled else 0x42
    q += 1
    size = (q - fields) + state_size
    start = out.reserve(FRAME_HEAD + 12 + size)
    p = begin(start, channel, 0x15)
    if size < 255:
        p[0] = 0xC0
        p[1] = <uint8_t>(size + 1)
        p[2] = 5
        p += 3
    else:
        p[0] = 0xD0
        store32(p + 1, <uint32_t>(size + 4))
        store32(p + 5, 5)
        p += 9
    memcpy(p, fields, q - fields)
    p += q - fields
    memcpy(p, PyBytes_AS_STRING(state), state_size)
    p += state_size
    store32(start, <uint32_t>(p - start))
    out.commit(p - start)
    return 0


cdef int put_flow(OutBuffer out, uint16_t channel, uint32_t next_incoming, uint32_t window, uint32_t next_outgoing,
                  uint32_t outgoing_window, int handle, uint32_t delivery_count, uint32_t credit) except -1:
    """`handle` < 0: the flow is of the session alone."""
    cdef uint8_t* start = out.reserve(64)
    cdef uint8_t* list_ = begin(start, channel, 0x13)
    cdef uint8_t* p = list_ + 3
    p = write_uint(p, next_incoming)
    p = write_uint(p, window)
    p = write_uint(p, next_outgoing)
    p = write_uint(p, outgoing_window)
    if handle >= 0:
        p = write_uint(p, <uint32_t>handle)
        p = write_uint(p, delivery_count)
        p = write_uint(p, credit)
    list_[0] = 0xC0
    list_[1] = <uint8_t>(p - list_ - 2)
    list_[2] = 7 if handle >= 0 else 4
    store32(start, <uint32_t>(p - start))
    out.commit(p - start)
    return 0


cdef Py_ssize_t frames_of(Py_ssize_t size, uint32_t frame_max) noexcept:
    cdef Py_ssize_t part = frame_max - TRANSFER_HEAD
    return 1 if size <= part else (size + part - 1) // part


cdef int put_delivery(OutBuffer out, uint16_t channel, uint32_t frame_max, uint32_t handle, uint32_t number, uint32_t series,
                      bint settled, Piece* pieces, Py_ssize_t size) except -1:
    """The frames of a message of `size` bytes in three pieces, each frame of at most `frame_max` bytes.

    Its tag is its number, behind `series` unless that is 0.
    """
    cdef Py_ssize_t most = frame_max - TRANSFER_HEAD, left = size, part, n, taken = 0
    cdef uint8_t* start
    cdef uint8_t* list_
    cdef uint8_t* p
    cdef bint first = True
    while first or left:
        part = min(left, most)
        start = out.reserve(TRANSFER_HEAD + part)
        list_ = begin(start, channel, 0x14)
        p = list_ + 3
        p[0] = 0x70
        store32(p + 1, handle)
        p += 5
        if first:
            p[0] = 0x70
            store32(p + 1, number)
            p[5] = 0xA0
            p[6] = 8 if series else 4
            p += 7
            if series:
                store32(p, series)
                p += 4
            store32(p, number)
            p[4] = 0x43
            p[5] = 0x41 if settled else 0x42
            p += 6
        else:
            p[0] = p[1] = p[2] = p[3] = 0x40
            p += 4
        left -= part
        p[0] = 0x41 if left else 0x42
        p += 1
        list_[0] = 0xC0
        list_[1] = <uint8_t>(p - list_ - 2)
        list_[2] = 6
        store32(start, <uint32_t>(p - start + part))
        out.commit(p - start)
        while part:
            n = min(part, pieces.size - taken)
            if n:
                memcpy(out.reserve(n), pieces.p + taken, n)
                out.commit(n)
            part -= n
            taken += n
            if taken == pieces.size and part + left:
                pieces += 1
                taken = 0
        first = False
    return 0
