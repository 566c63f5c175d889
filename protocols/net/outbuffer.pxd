"""A connection's output of one tick, encoded straight into the bytes object that goes to the socket."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

from penstock.log_core.segments._segment_file cimport Stretch


cdef enum:
    FILE_BYTES = 2                  # of an attached file that count as one of output: they cost time, but no memory


cdef class OutBuffer:
    cdef PyObject* _bytes           # the bytes object being filled; NULL while nothing was reserved
    cdef uint8_t* _start            # its first byte
    cdef Py_ssize_t _capacity       # bytes it can hold
    cdef Py_ssize_t _last           # size of the last taken buffer: the next one begins about as large
    cdef readonly Py_ssize_t size   # bytes committed and not yet taken
    cdef list stretches             # of files, that go out between them; None: there are none
    cdef readonly Py_ssize_t attached   # bytes of these
    cdef public bint takes_files    # whoever sends it can send stretches

    cdef int attach(self, Stretch stretch) except -1
    cdef list take_stretches(self)

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
