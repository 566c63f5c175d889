"""A connection's output of one tick, encoded straight into the bytes object that goes to the socket.

An encoder kernel asks for room (`reserve`), writes frames there, and says how much it used
(`commit`); at the end of the tick the connection takes the whole as one bytes object (`take`) and
hands it to the transport. There is no second copy: the bytes object is filled in place and only
cut to its size when it is taken. It knows no protocol and no transport.

    +---------------------------+---------------+
    | committed, `size` bytes   | room          |   one bytes object, `_capacity` bytes long
    +---------------------------+---------------+

Growth doubles, so that n bytes cost O(n). A new buffer begins with about the size of the last one
(between some 500 B and 2 MiB), so a busy connection does not grow its buffer step by step each tick
and an idle one holds nothing.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from penstock.log_core.segments._segment_file cimport Stretch

cdef extern from "Python.h":
    PyObject* _fresh_bytes "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject** object, Py_ssize_t size) except -1
    char* _bytes_start "PyBytes_AS_STRING"(PyObject* object)

cdef enum:
    FIRST_MIN = 479                 # with a bytes object's head 512, the largest that Python's own allocator gives
    FIRST_MAX = 2096640             # a high-water mark of output and a full batch; of the heap still (penstock/memory.py)


cdef class OutBuffer:
    def __cinit__(self):
        self._bytes = NULL
        self._start = NULL
        self._capacity = 0
        self._last = 0
        self.size = 0

    def __dealloc__(self):
        Py_XDECREF(self._bytes)

    cdef int drop(self) except -1:
        """Forget everything committed."""
        if self._bytes != NULL:
            self._last = self.size
            Py_XDECREF(self._bytes)
            self._bytes = NULL
            self._start = NULL
            self._capacity = self.size = 0
        self.take_stretches()
        return 0

    cdef int _grow(self, Py_ssize_t n) except -1:
        cdef Py_ssize_t capacity
        if n < 0 or n > <Py_ssize_t>0x7fffffff - self.size:
            raise OverflowError(f"{n} more bytes of output on top of {self.size}: a tick's output ends at 2 GiB")
        if self._bytes == NULL:
            capacity = min(max(self._last, <Py_ssize_t>FIRST_MIN), <Py_ssize_t>FIRST_MAX)
            if capacity < n:
                capacity = n
            self._bytes = _fresh_bytes(NULL, capacity)
        else:
            capacity = max(self._capacity * 2, self.size + n)
            if self.size + n <= FIRST_MAX < capacity:
                capacity = FIRST_MAX
            try:
                # on failure the object is gone and the pointer is NULL
                _PyBytes_Resize(&self._bytes, capacity)
            except MemoryError:
                self._start = NULL
                self._capacity = self.size = 0
                raise
        self._capacity = capacity
        self._start = <uint8_t*>_bytes_start(self._bytes)
        return 0

    cdef int attach(self, Stretch stretch) except -1:
        """Have a stretch of a file go out behind what is committed so far."""
        stretch.at = self.size
        if self.stretches is None:
            self.stretches = []
        self.stretches.append(stretch)
        self.attached += stretch.size
        return 0

    cdef list take_stretches(self):
        """Those attached, before `take`; None: there are none."""
        cdef list stretches = self.stretches
        self.stretches = None
        self.attached = 0
        return stretches

    cpdef int write(self, const uint8_t[::1] data) except -1:
        """Append a copy of `data` (any bytes-like object)."""
        cdef Py_ssize_t n = data.shape[0]
        if n:
            memcpy(self.reserve(n), &data[0], n)
            self.commit(n)
        return 0

    cpdef bytes take(self):
        """Everything committed, in order; the buffer is empty afterwards. b"" when there is nothing."""
        cdef bytes result
        if self.stretches is not None:
            raise AssertionError("stretches of files are taken first")
        if self.size == 0:
            return b""
        self._last = self.size
        _PyBytes_Resize(&self._bytes, self.size)
        result = <bytes>self._bytes
        Py_XDECREF(self._bytes)
        self._bytes = NULL
        self._start = NULL
        self._capacity = self.size = 0
        return result

    def __len__(self):
        return self.size
