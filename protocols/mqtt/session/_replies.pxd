"""Replies that wait for the disk. Words in _replies.pyi."""

from penstock.log_core.wal._writer cimport Writer
from penstock.protocols.net.outbuffer cimport OutBuffer

cdef int write_bytes(OutBuffer out, bytes data) except -1


cdef class Replies:
    cdef object host, waiting
    cdef Writer log
    cdef unsigned long long awaited
    cdef public long long sent
    cpdef send(self, bytes data, unsigned long long lsn=*, then=*)
    cpdef release(self)
    cpdef clear(self)
