cimport cython
from libc.stdint cimport uint64_t

from penstock.log_core.batch._batch cimport Batch


@cython.final
cdef class Run:                       # batches in LSN order, found by bisection; grows at the end, shrinks at the front
    cdef list batches
    cdef uint64_t* bases
    cdef Py_ssize_t first, capacity   # batches[first:] are live, bases[] runs beside batches
    cdef Py_ssize_t memo              # where the last find ended
    cdef readonly size_t nbytes
    cdef int add(self, Batch batch) except -1
    cdef Batch find(self, uint64_t lsn)
    cdef size_t drop_first(self)


@cython.final
cdef class Cache:                     # tail ring + read cache, both bounded in bytes
    cdef readonly size_t tail_limit, read_limit, read_bytes
    cdef readonly uint64_t tail_hits, read_hits, misses
    cdef Run tail
    cdef Run unseen                   # behind the tail: what `find` may not give yet
    cdef list runs                    # the read cache: Run objects, least recently used first
    cdef Batch find(self, uint64_t lsn)
    cpdef add(self, Batch batch)
    cpdef add_written(self, list batches)
    cpdef add_unseen(self, list batches)
    cpdef show(self, uint64_t lsn)
    cpdef add_run(self, list batches)
