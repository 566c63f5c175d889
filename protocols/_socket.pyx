# cython: auto_pickle=False
"""Sockets of connections, read and written here, on an epoll of their own inside the event loop.

The loop watches one descriptor per listener, the poller's, and when anything is there this module asks which
sockets it is and serves each once. What it gains over the loop's own transports: a read goes from the socket to
the protocol without a Python call in between, a write goes to the socket at once instead of at the end of the
loop's iteration, and an idle connection is one small object. It knows no protocol, only asyncio's words between
transports and buffered protocols.

A socket without interest (reading paused, nothing to write) is taken out of the epoll, since errors and hang-ups
are reported whether they are asked for or not. Source: epoll(7), level triggered.
"""

from collections import deque

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t
from libc.string cimport strerror

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        int fd
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int maxevents, int timeout)
    enum:
        EPOLL_CLOEXEC
        EPOLL_CTL_ADD
        EPOLL_CTL_DEL
        EPOLL_CTL_MOD
        EPOLLIN
        EPOLLOUT

cdef extern from "sys/socket.h" nogil:
    ssize_t c_recv "recv"(int fd, void* buf, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void* buf, size_t size, int flags)
    enum:
        MSG_NOSIGNAL

cdef extern from "unistd.h" nogil:
    int c_close "close"(int fd)

cdef enum:
    EVENTS_MAX = 64                 # sockets served before the loop does something else
    HIGH_DEFAULT = 65536


cdef object _error(int code):
    """The OSError, or the subclass of it, that errno `code` stands for."""
    return OSError(code, strerror(code).decode())


cdef class Poller:
    def __cinit__(self, loop not None):
        self.fd = -1
        self.sockets = []
        self.loop = loop
        self.fd = epoll_create1(EPOLL_CLOEXEC)
        if self.fd < 0:
            raise _error(errno)
        loop.add_reader(self.fd, self._ready)

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)

    def close(self):
        if self.fd >= 0:
            self.loop.remove_reader(self.fd)
            c_close(self.fd)
            self.fd = -1

    def _ready(self):
        cdef epoll_event events[EVENTS_MAX]
        cdef SocketTransport transport
        cdef int i, n = epoll_wait(self.fd, events, EVENTS_MAX, 0)
        for i in range(n):
            # Whoever was served before may have ended this one.
            transport = self.sockets[events[i].data.fd]
            if transport is not None:
                transport.ready(events[i].events)


cdef class SocketTransport:
    def __init__(self, Poller poller not None, socket not None, protocol not None):
        self.poller = poller
        self.socket = socket
        self.protocol = protocol
        self.stream = protocol if isinstance(protocol, Stream) else None
        self.fd = socket.fileno()
        self.waiting = deque()
        self.high = HIGH_DEFAULT
        self.low = HIGH_DEFAULT // 4
        self.reading = True
        while len(poller.sockets) <= self.fd:
            poller.sockets.append(None)
        poller.sockets[self.fd] = self
        protocol.connection_made(self)
        self.watch()

    # Events

    cdef int ready(self, uint32_t events) except -1:
        try:
            if self.waiting_size and events & ~EPOLLIN:
                self.drain()
            if self.reading and events & ~EPOLLOUT:
                self.read()
        except Exception as error:
            # A bug of the protocol's ends this connection only.
            self.poller.loop.call_exception_handler(
                {"message": "a protocol failed", "exception": error, "transport": self, "protocol": self.protocol})
            self.lose(error)
        return 0

    cdef int read(self) except -1:
        cdef Stream stream = self.stream
        cdef Py_buffer view
        cdef Py_ssize_t room
        cdef void* start
        cdef ssize_t n
        cdef int code
        if stream is not None:
            start = stream.place(&room)
            n = c_recv(self.fd, start, room, 0)
            if n > 0:
                return stream.arrived(n)
            return self.read_nothing(n, errno)
        protocol = self.protocol
        buffer = protocol.get_buffer(-1)
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        n = c_recv(self.fd, view.buf, view.len, 0)
        code = errno
        PyBuffer_Release(&view)
        del buffer                  # the protocol may enlarge what it refers to
        if n > 0:
            protocol.buffer_updated(n)
            return 0
        return self.read_nothing(n, code)

    cdef int read_nothing(self, ssize_t n, int code) except -1:
        if n == 0:
            self.reading = False
            if self.protocol.eof_received():
                self.watch()
            else:
                self.close()
        elif code != EAGAIN and code != EINTR:
            self.lose(_error(code))
        return 0

    cdef int watch(self) except -1:
        """Have the epoll watch for what we want now."""
        cdef epoll_event event
        cdef uint32_t wanted = 0
        cdef int done
        if not self.lost:
            wanted = (<uint32_t>EPOLLIN if self.reading else 0) | (<uint32_t>EPOLLOUT if self.waiting_size else 0)
        if wanted == self.interest:
            return 0
        event.events = wanted
        event.data.fd = self.fd
        if wanted == 0:
            done = epoll_ctl(self.poller.fd, EPOLL_CTL_DEL, self.fd, &event)
        elif self.interest == 0:
            done = epoll_ctl(self.poller.fd, EPOLL_CTL_ADD, self.fd, &event)
        else:
            done = epoll_ctl(self.poller.fd, EPOLL_CTL_MOD, self.fd, &event)
        if done < 0:
            raise _error(errno)
        self.interest = wanted
        return 0

    # The end

    cdef int lose(self, object exc) except -1:
        if self.lost:
            return 0
        self.lost = self.closing = True
        self.reading = False
        self.waiting.clear()
        self.waiting_size = self.front_sent = 0
        self.watch()
        self.poller.sockets[self.fd] = None
        self.poller.loop.call_soon(self._finish, exc)
        return 0

    def _finish(self, exc):
        protocol, self.protocol = self.protocol, None
        self.stream = None
        try:
            protocol.connection_lost(exc)
        finally:
            self.socket.close()

    def close(self):
        if self.closing:
            return
        self.closing = True
        self.reading = False
        if self.waiting_size:
            self.watch()
        else:
            self.lose(None)

    def abort(self):
        self.lose(None)

    def is_closing(self):
        return self.closing

    # Reading

    def pause_reading(self):
        if not self.closing:
            self.reading = False
            self.watch()

    def resume_reading(self):
        if not self.closing:
            self.reading = True
            self.watch()

    # Writing

    def write(self, const unsigned char[::1] data):
        if data.shape[0]:
            self.send(PyBytes_FromStringAndSize(<const char*>&data[0], data.shape[0]))

    def writelines(self, list_of_data):
        self.send(b"".join(list_of_data))

    cpdef int send(self, bytes data) except -1:
        cdef ssize_t sent
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        if self.closing or size == 0:
            return 0
        if not self.waiting_size:
            sent = c_send(self.fd, PyBytes_AS_STRING(data), size, MSG_NOSIGNAL)
            if sent == size:
                return 0
            if sent < 0:
                if errno != EAGAIN and errno != EINTR:
                    return self.lose(_error(errno))
                sent = 0
            self.front_sent = sent
            size -= sent
        self.waiting.append(data)
        self.waiting_size += size
        self.watch()
        return self.mark()

    cdef int drain(self) except -1:
        """Send what waits, until the socket takes no more."""
        cdef bytes data
        cdef ssize_t sent
        while self.waiting_size:
            data = self.waiting[0]
            sent = c_send(self.fd, PyBytes_AS_STRING(data) + self.front_sent,
                          PyBytes_GET_SIZE(data) - self.front_sent, MSG_NOSIGNAL)
            if sent < 0:
                if errno == EAGAIN or errno == EINTR:
                    break
                return self.lose(_error(errno))
            self.waiting_size -= sent
            self.front_sent += sent
            if self.front_sent == PyBytes_GET_SIZE(data):
                self.waiting.popleft()
                self.front_sent = 0
        if self.waiting_size == 0:
            if self.closing:
                return self.lose(None)
            self.watch()
        if self.write_paused and self.waiting_size <= self.low:
            self.write_paused = False
            self.protocol.resume_writing()
        return 0

    cdef int mark(self) except -1:
        if self.waiting_size > self.high and not self.write_paused:
            self.write_paused = True
            self.protocol.pause_writing()
        return 0

    def set_write_buffer_limits(self, high=None, low=None):
        self.high = HIGH_DEFAULT if high is None else high
        self.low = self.high // 4 if low is None else low
        if not self.closing:
            self.mark()

    def get_write_buffer_size(self):
        return self.waiting_size

    def get_extra_info(self, name, default=None):
        try:
            if name == "sockname":
                return self.socket.getsockname()
            if name == "peername":
                return self.socket.getpeername()
        except OSError:
            return default
        return self.socket if name == "socket" else default
