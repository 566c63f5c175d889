"""Who waits for an LSN. Words in _waiters.pyi."""

from libc.stdint cimport uint64_t


cdef class Waiters:
    cdef object waiting                     # a deque of (LSN, serial, callback)
    cdef readonly Py_ssize_t count
    cdef uint64_t serial

    cpdef reached(self, uint64_t lsn)
    cpdef fail(self)
    cdef int tell(self, bint ok) except -1
