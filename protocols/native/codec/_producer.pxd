"""The producing side of the native protocol. The words are in _producer.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.log_core.batch._appender cimport Appender
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.router.routes._routes cimport Route

cdef enum:                      # what `check_records` found
    OK = 0
    MALFORMED = 1
    RESERVED = 2
    FOREIGN_USER = 3
    PROPERTIES_SIZE = 4


cdef struct Confirm:            # a batch whose confirm waits
    uint64_t lsn                # of its last record
    uint64_t position           # of its first record, or where a batch that came before was appended
    uint64_t sequence
    uint32_t id
    uint32_t count
    uint32_t flags
    bint synced                 # it waits for the disk


cdef class Producer:
    cdef readonly uint32_t id
    cdef readonly bytes key             # the key block of its records
    cdef readonly bytes name            # under which the log knows it; empty: it has none
    cdef readonly uint32_t epoch


cdef class Confirms:
    cdef Confirm* pending               # [pending_first, pending_end)
    cdef Py_ssize_t pending_first, pending_end, pending_capacity
    cdef uint64_t wait_written, wait_synced

    cdef int push(self, uint32_t id, uint64_t sequence, uint32_t count, uint64_t position, uint64_t lsn,
                  bint synced, bint repeated, bint unrouted) except -1
    cdef uint64_t encode(self, OutBuffer out, uint64_t written, uint64_t synced) except? 0xFFFFFFFFFFFFFFFF
    cdef tuple take_waits(self)
    cdef list drop(self)


cdef int check_records(const uint8_t* p, Py_ssize_t n, uint32_t count, bytes user) noexcept
cdef uint64_t append_records(Appender appender, Route route, bytes key, const uint8_t* p, uint32_t count) except 0
cdef list split(const uint8_t* p, uint32_t count)
