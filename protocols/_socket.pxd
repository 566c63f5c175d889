"""Sockets of connections. Words in _socket.pyi."""

from penstock.protocols._stream cimport Stream, Wire


cdef class SocketTransport(Wire):
    cdef object __weakref__
    cdef object loop, socket, protocol
    cdef Stream stream              # the protocol, if no layer lies between
    cdef int fd
    cdef bint watched_read, watched_write       # by the loop
    cdef bint reading, lost, write_paused
    cdef object waiting             # deque of bytes that the socket did not take yet
    cdef Py_ssize_t front_sent      # of its first element
    cdef Py_ssize_t high, low

    cdef int failed(self, error) except -1
    cdef int read(self) except -1
    cdef Py_ssize_t send_now(self, const void* start, Py_ssize_t size) except -2
    cdef int keep(self, bytes data, Py_ssize_t sent) except -1
    cdef int drain(self) except -1
    cdef int watch(self) except -1
    cdef int lose(self, object exc) except -1
    cdef int mark(self) except -1
    cdef int read_nothing(self, ssize_t n, int code) except -1
