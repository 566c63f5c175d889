"""Frames that kernels write. Words in _frames.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from penstock.protocols.net.outbuffer cimport OutBuffer

cdef enum:
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
