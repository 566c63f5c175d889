"""Frames that kernels write, and transfers that they read. Words in _frames.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from penstock.protocols.amqp10.codec._simple cimport (
    Compound, Simple, is_binary, is_null, read_compound, read_simple, take_flag, take_null, take_uint,
)
from penstock.protocols.net.outbuffer cimport OutBuffer

cdef enum:
    TRANSFER = 0x14                 # the code of its performative
    FRAME_HEAD = 8                  # bytes of a frame before its body, without an extended header
    TRANSFER_HEAD = 37              # bytes of a frame of a transfer before its part of the message, at most

cdef struct Piece:
    const uint8_t* p
    Py_ssize_t size

cdef int put_disposition(OutBuffer out, uint16_t channel, bint role, uint32_t first, uint32_t last, bint settled, bytes state) except -1
cdef int put_flow(OutBuffer out, uint16_t channel, uint32_t next_incoming, uint32_t window, uint32_t next_outgoing,
                  uint32_t outgoing_window, int handle, uint32_t delivery_count, uint32_t credit) except -1
# Frames that a delivery of `size` bytes needs when each has at most frame_max bytes.
cdef Py_ssize_t frames_of(Py_ssize_t size, uint32_t frame_max) noexcept
cdef int put_delivery(OutBuffer out, uint16_t channel, uint32_t frame_max, uint32_t handle, uint32_t number, uint32_t series,
                      bint settled, Piece* pieces, Py_ssize_t size) except -1


cdef struct Transfer:               # what the kernel knows of a transfer
    uint32_t handle, delivery
    bint known                      # it has a delivery-id
    bint settled, more


cdef inline Py_ssize_t read_transfer(const uint8_t* p, Py_ssize_t n, Transfer* out) noexcept:
    """Bytes of a transfer's fields; -1: it says something that is not ordinary, or is not well-formed."""
    cdef Compound fields
    cdef Simple tag
    cdef const uint8_t* q
    cdef const uint8_t* end
    cdef uint32_t i, format
    cdef bint flag = False
    cdef Py_ssize_t whole = read_compound(p, n, False, &fields), size
    if whole < 0 or fields.count < 1 or fields.count > 11:
        return -1
    end = fields.end
    out.known = out.settled = out.more = False
    out.handle = out.delivery = 0
    q = take_uint(fields.p, end, &out.handle)
    for i in range(1, fields.count):
        if q == NULL:
            return -1
        if i == 1:
            if q < end and q[0] != 0x40:
                out.known = True
                q = take_uint(q, end, &out.delivery)
                continue
            q = take_null(q, end)
        elif i == 2:                            # delivery-tag
            size = read_simple(q, end - q, &tag)
            q = q + size if size > 0 and (is_binary(&tag) or is_null(&tag)) else NULL
        elif i == 3:                            # message-format
            q = take_null(q, end) if q < end and q[0] == 0x40 else take_uint(q, end, &format)
        elif i == 4:
            q = take_flag(q, end, &out.settled)
        elif i == 5:
            q = take_flag(q, end, &out.more)
        elif i < 8:                             # rcv-settle-mode, where the link leaves it open; state
            q = take_null(q, end)
        else:
            q = take_flag(q, end, &flag)
            if flag and i < 10:                 # resume, aborted; the last one is batchable
                return -1
    return whole if q == end else -1
