"""A connection's output of one tick, encoded straight into the bytes object that goes to the socket."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t


cdef class OutBuffer:
    cdef PyObject* _bytes           # the bytes object being filled; NULL while nothing was reserved
    cdef uint8_t* _start            # its first byte
    cdef Py_ssize_t _capacity       # bytes it can hold
    cdef Py_ssize_t _last           # size of the last taken buffer: the next one begins about as large
    cdef readonly Py_ssize_t size   # bytes committed and not yet taken

    cdef int _grow(self, Py_ssize_t n) except -1
    cpdef int write(self, const uint8_t[::1] data) except -1
    cpdef bytes take(self)
    cdef int drop(self) except -1

    cdef inline uint8_t* reserve(self, Py_ssize_t n) except NULL:
        """Room for `n` bytes behind what is committed; valid until the next reserve, write or take."""
        if self._capacity - self.size < n:
            self._grow(n)
        return self._start + self.size

    cdef inline void commit(self, Py_ssize_t n) noexcept:
        """The first `n` bytes of the last reserved room are output now; n <= what was reserved."""
        self.size += n
