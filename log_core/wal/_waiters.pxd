"""Callbacks that wait for an LSN. Words in _waiters.pyi."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t


cdef class Awaiting:                        # who is told without a call into Python
    cdef int reached(self, bint ok) except -1


cdef struct Waiter:
    uint64_t lsn
    PyObject* who                           # owned: an Awaiting, or a callback


cdef class Waiters:
    cdef Waiter* ring                       # of [first, first + count), by LSN, then as they came
    cdef uint64_t mask, first
    cdef readonly Py_ssize_t count

    cdef inline Waiter* at(self, uint64_t k) noexcept:
        return &self.ring[(self.first + k) & self.mask]

    cdef int put(self, uint64_t lsn, object who) except -1
    cdef int grow(self) except -1
    cpdef reached(self, uint64_t lsn)
    cpdef fail(self)
    cdef int tell_first(self, bint ok) except -1
