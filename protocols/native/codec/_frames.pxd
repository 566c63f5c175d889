"""The common parts of the native protocol's kernels: the head of a frame, and the types they handle."""

from libc.stdint cimport uint8_t, uint32_t

from penstock.protocols.properties._tables cimport store32

cdef enum:
    HEAD = 12                   # of a frame, its size included
    T_PRODUCE = 0x10
    T_CONFIRM = 0x12
    T_CREDIT = 0x20
    T_DELIVER = 0x21
    T_ACK = 0x22
    T_NACK = 0x23
    T_PULLED = 0x25
    T_DELIVER_PACKED = 0x28
    T_DELIVER_STORED = 0x29


cdef inline void put_head(uint8_t* p, Py_ssize_t payload, uint8_t kind, uint32_t id) noexcept:
    store32(p, <uint32_t>(payload + HEAD - 4))
    p[4] = kind
    p[5] = p[6] = p[7] = 0
    store32(p + 8, id)
