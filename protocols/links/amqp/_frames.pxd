"""Frames of AMQP 0-9-1 as a client gets them, for kernels.

    +---------+-------------+----------+---------+-----------+
    | kind u8 | channel u16 | size u32 | payload | end CE u8 |
    +---------+-------------+----------+---------+-----------+
"""

from libc.stdint cimport uint8_t

from penstock.protocols.properties._tables cimport load32

cdef enum:
    METHOD = 1
    HEADER = 2
    BODY = 3
    HEARTBEAT = 8
    HEAD = 7
    END = 0xCE
    FRAME_MAX = 1 << 20             # of a payload: links ask for less


cdef inline Py_ssize_t frame_end(const uint8_t* start, Py_ssize_t at, Py_ssize_t size) except -2:
    """The end of the frame at `at`; -1: it is not whole."""
    cdef Py_ssize_t end
    if size - at < HEAD:
        return -1
    if load32(start + at + 3) > FRAME_MAX:
        raise ValueError("the broker sent no frame of AMQP")
    end = at + HEAD + <Py_ssize_t>load32(start + at + 3) + 1
    if end > size:
        return -1
    if start[end - 1] != END:
        raise ValueError("the broker sent no frame of AMQP")
    return end
