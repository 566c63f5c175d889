"""Sockets of connections on an epoll of their own. Words in _socket.pyi."""

from libc.stdint cimport uint32_t

from penstock.protocols._stream cimport Stream, Wire


cdef class Poller:
    cdef int fd
    cdef object loop
    cdef list sockets               # SocketTransport or None, by descriptor


cdef class SocketTransport(Wire):
    cdef object __weakref__
    cdef Poller poller
    cdef object socket, protocol
    cdef Stream stream              # the protocol, if no layer lies between
    cdef int fd
    cdef uint32_t interest          # what the epoll watches for us; 0 = we are not in it
    cdef bint reading, lost, write_paused
    cdef object waiting             # deque of bytes that the socket did not take yet
    cdef Py_ssize_t front_sent      # of its first element
    cdef Py_ssize_t high, low

    cdef int ready(self, uint32_t events) except -1
    cdef int read(self) except -1
    cdef int drain(self) except -1
    cdef int watch(self) except -1
    cdef int lose(self, object exc) except -1
    cdef int mark(self) except -1
    cdef int read_nothing(self, ssize_t n, int code) except -1
