"""Records that were appended and are not written yet. Words in _unwritten.pyi."""

from libc.stdint cimport uint64_t

from penstock.log_core.batch._appender cimport Appender
from penstock.log_core.reading._tail cimport Cache


cdef class Unwritten:
    cdef Appender appender
    cdef Cache cache
    cdef readonly bint holds_back           # nobody sees a batch before it is durable
    cdef public object on_shown             # called when feeds are ready for `take_dirty`
    cdef list held                          # (LSN, the feeds that were pushed to up to it), not durable
    cdef uint64_t shown_lsn                 # up to here all is durable, if it holds back
    cdef list published                     # in the cache, not written
    cdef uint64_t written_lsn               # up to here all is written, as of the last write of this process
    cdef uint64_t published_lsn             # up to here batches are in the cache, written or not

    cpdef bint anything(self)
    cpdef publish(self)
    cpdef list take_dirty(self)
    cpdef list take(self)
    cpdef written(self, list batches)
    cpdef show(self, uint64_t lsn)
