"""Sockets of connections. Words in _socket.pyi."""

from libc.stdint cimport uint8_t

from penstock.log_core.segments._segment_file cimport Stretch
from penstock.protocols.net.layers._layer cimport Layer
from penstock.protocols.net._poller cimport Poller
from penstock.protocols.net._stream cimport QuickReader, Stream, Wire


cdef class Passage(QuickReader):    # hands every read on to another transport
    cdef Wire to

    cdef Py_ssize_t read(self, const uint8_t* p, Py_ssize_t size) except -2


cdef class SocketTransport(Wire):
    cdef object __weakref__
    cdef object loop, protocol
    cdef object socket              # None: only its descriptor is known so far
    cdef Poller poller
    cdef Stream stream              # the protocol, if no layer lies between
    cdef Layer layer                # the protocol, if it is one
    cdef int fd
    cdef bint direct                # the loop watches it, for reading
    cdef int rounds_alone           # of the poller's last ones, in which nobody else was ready
    cdef bint watched_read, watched_write       # by the poller
    cdef bint reading, lost, write_paused
    cdef bint broken                # the peer takes no more: what it sent is read, and then it is lost
    cdef object waiting             # deque of bytes and stretches of files that the socket did not take yet; None: nothing
    cdef Py_ssize_t head_sent      # of its first element
    cdef object early               # deque of what is read before whatever the socket has
    cdef bint loading               # the first element is, and the rest waits for that
    cdef Py_ssize_t unsaid          # bytes of output that the peer has got already
    cdef Py_ssize_t high, low

    cdef object queued(self)
    cdef object as_socket(self)
    cdef int on_events(self, bint readable, bint writable) except -1
    cdef int leave_others(self) except -1
    cdef int join_others(self) except -1
    cdef int failed(self, error) except -1
    cdef int read(self) except -1
    cdef Py_ssize_t send_now(self, const void* start, Py_ssize_t size) except -2
    cdef int keep(self, bytes data, Py_ssize_t sent) except -1
    cdef int read_early(self) except -1
    cdef int drain(self) except -1
    cdef int send_head(self) except -1
    cdef int load(self, Stretch stretch) except -1
    cdef int send_stretches(self, bytes data, list stretches) except -1
    cdef int watch(self) except -1
    cdef int lose(self, object exc) except -1
    cdef int fail_to_send(self, object exc) except -1
    cdef int mark(self) except -1
    cdef int read_nothing(self, ssize_t n, int code) except -1
