"""Records that were appended and are not written yet. Words in _unwritten.pyi."""

from libc.stdint cimport uint64_t

from penstock.log_core.batch._appender cimport Appender
from penstock.log_core.reading._tail cimport Cache


cdef class Unwritten:
    cdef Appender appender
    cdef Cache cache
    cdef list published                     # in the cache, not written
    cdef uint64_t written_lsn               # up to here all is written, as of the last write of this process
    cdef uint64_t published_lsn             # up to here batches are in the cache, written or not

    cpdef bint anything(self)
    cpdef publish(self)
    cpdef list take_dirty(self)
    cpdef list take(self)
    cpdef written(self, list batches)
