# cython: auto_pickle=False
"""Sockets of connections: the loop's poller says when, and they are read and written here.

Its gain over the loop's own transports: a read goes from the socket to the protocol without a Python call in
between, a write goes to the socket at once instead of at the end of the loop's iteration. It knows no protocol,
only asyncio's words between transports and buffered protocols.

A socket without interest (reading paused, nothing to write) is not watched: that its peer is gone shows when it is
read or written again. Source: asyncio's transports; epoll, level triggered.
"""

from collections import deque
from socket import socket as Socket

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, errno
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, strerror

from penstock.protocols.net._poller import poller_of
from penstock.log_core.segments._segment_file cimport STRETCH_MOST, Stretch
from penstock.protocols.net.layers._layer cimport Layer
from penstock.protocols.net._poller cimport Poller, Watched
from penstock.protocols.net.outbuffer cimport OutBuffer

cdef extern from "sys/socket.h" nogil:
    ssize_t c_recv "recv"(int fd, void* buf, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void* buf, size_t size, int flags)
    ctypedef unsigned int socklen_t
    struct sockaddr:
        unsigned short sa_family
    struct sockaddr_storage:
        pass
    int accept4(int fd, sockaddr* peer, socklen_t* size, int flags)
    enum:
        MSG_NOSIGNAL
        MSG_MORE
        MSG_PEEK
        MSG_DONTWAIT
        SOCK_NONBLOCK
        SOCK_CLOEXEC
        AF_INET
        AF_INET6

cdef extern from "arpa/inet.h" nogil:
    struct in_addr:
        uint32_t s_addr
    struct sockaddr_in:
        unsigned short sin_port
        in_addr sin_addr
    const char* inet_ntop(int family, const void* address, char* text, socklen_t size)
    unsigned short ntohs(unsigned short port)

cdef extern from "netdb.h" nogil:
    int getnameinfo(const sockaddr* peer, socklen_t size, char* host, socklen_t host_size, char* port, socklen_t port_size,
                    int flags)
    enum:
        NI_MAXHOST
        NI_NUMERICHOST
        NI_NUMERICSERV

cdef extern from "unistd.h" nogil:
    int c_close "close"(int fd)

cdef enum:
    HIGH_DEFAULT = 65536
    ALONE_ROUNDS = 32           # of the poller's, one after the other: such a socket is alone as a rule
    DIRECT_MOST = 4             # sockets that the loop watches itself
    REST_READS = 64             # of what a peer said before it went: more than sockets keep


cdef object _error(int code):
    """The OSError, or the subclass of it, that errno `code` stands for."""
    return OSError(code, strerror(code).decode())


cdef uint32_t last_address = 0      # most clients of a moment come from one address
cdef str last_host = "0.0.0.0"


cdef tuple named(int fd, sockaddr_storage* peer, socklen_t size):
    """(descriptor, numeric address, port) of a peer."""
    global last_address, last_host
    cdef char[NI_MAXHOST] host
    cdef char[8] port
    cdef sockaddr_in* v4 = <sockaddr_in*>peer
    cdef int family = (<sockaddr*>peer).sa_family
    if family == AF_INET:
        if v4.sin_addr.s_addr != last_address:
            inet_ntop(AF_INET, &v4.sin_addr, host, NI_MAXHOST)
            last_address, last_host = v4.sin_addr.s_addr, host.decode("ascii")
        return fd, last_host, ntohs(v4.sin_port)
    if family != AF_INET6 or getnameinfo(
            <sockaddr*>peer, size, host, NI_MAXHOST, port, 8, NI_NUMERICHOST | NI_NUMERICSERV) != 0:
        return fd, "127.0.0.1", 0       # by a unix socket: it is on this machine
    return fd, host.decode("ascii"), int(port)


def accept(int listening, Py_ssize_t most):
    cdef sockaddr_storage peer
    cdef socklen_t size
    cdef int fd
    cdef list found = []
    while len(found) < most:
        size = sizeof(peer)
        fd = accept4(listening, <sockaddr*>&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd >= 0:
            found.append(named(fd, &peer, size))
        elif errno == EAGAIN or errno == EINTR or found:
            break                       # an error that stays comes again, when there is nobody to give back
        elif errno != ECONNABORTED:
            raise _error(errno)
    return found


cdef class Passage(QuickReader):
    def __init__(self, Wire to not None):
        self.to = to

    cdef Py_ssize_t read(self, const uint8_t* p, Py_ssize_t size) except -2:
        self.to.send(PyBytes_FromStringAndSize(<const char*>p, size))
        return size


cdef class SocketTransport:
    def __init__(self, loop not None, socket not None, protocol not None, early=(), Py_ssize_t unsaid=0):
        self.loop = loop
        self.poller = poller_of(loop)
        self.protocol = protocol
        self.stream = protocol if isinstance(protocol, Stream) else None
        self.layer = protocol if isinstance(protocol, Layer) else None
        if isinstance(socket, int):
            self.fd = socket
        else:
            self.socket = socket
            self.fd = socket.fileno()
        self.high = HIGH_DEFAULT
        self.low = HIGH_DEFAULT // 4
        self.reading = True
        self.unsaid = unsaid
        self.sends_files = unsaid == 0
        protocol.connection_made(self)
        self.watch()
        if early:
            self.early = deque(early)
            loop.call_soon(self._readable)

    def __dealloc__(self):
        if self.socket is None and self.fd > 0:
            c_close(self.fd)

    # Events

    cdef int on_events(self, bint readable, bint writable) except -1:
        if not self.poller.alone:
            self.rounds_alone = 0
        else:
            self.rounds_alone += 1
            if self.rounds_alone >= ALONE_ROUNDS and readable and self.watched_read and not self.direct:
                self.leave_others()
        if writable and self.waiting_size:
            self._writable()
        if readable:
            self._readable()
        return 0

    cdef int leave_others(self) except -1:
        """It is alone as a rule: the loop watches it, without a poller between."""
        self.rounds_alone = 0
        if len(self.poller.direct) < DIRECT_MOST:
            self.poller.direct.append(self)
            self.poller.watch(self.fd, self, False, self.watched_write, True)
            self.direct = True
            self.loop.add_reader(self.fd, self._directly_readable)
        return 0

    cdef int join_others(self) except -1:
        self.direct = False
        self.loop.remove_reader(self.fd)
        self.poller.watch(self.fd, self, self.watched_read, self.watched_write, self.watched_write)
        return 0

    def _directly_readable(self):
        self.poller.begin(True)
        try:
            self._readable()
        finally:
            self.poller.end()

    def _readable(self):
        if self.reading:
            try:
                self.read()
            except Exception as error:
                self.failed(error)

    def _writable(self):
        if self.waiting_size:
            try:
                self.drain()
            except Exception as error:
                self.failed(error)

    cdef int failed(self, error) except -1:
        """A bug of the protocol's ends this connection only."""
        self.loop.call_exception_handler(
            {"message": "a protocol failed", "exception": error, "transport": self, "protocol": self.protocol})
        self.lose(error)
        return 0

    cdef int read(self) except -1:
        cdef Stream stream = self.stream
        cdef Py_buffer view
        cdef Py_ssize_t capacity
        cdef void* start
        cdef ssize_t n
        cdef int code
        if self.early:
            return self.read_early()
        if stream is not None:
            start = stream.place(&capacity)
            n = c_recv(self.fd, start, capacity, 0)
            if n > 0:
                return stream.arrived(n)
            return self.read_nothing(n, errno)
        if self.layer is not None:
            start = self.layer.place(&capacity)
            n = c_recv(self.fd, start, capacity, 0)
            if n > 0:
                return self.layer.arrived(n)
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

    cdef int read_early(self) except -1:
        """As a read of the socket, of what came before there was this transport."""
        cdef Py_buffer view
        cdef bytes data = self.early.popleft()
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        protocol = self.protocol
        buffer = protocol.get_buffer(-1)
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        size = min(size, view.len)
        memcpy(view.buf, PyBytes_AS_STRING(data), size)
        PyBuffer_Release(&view)
        del buffer
        if size < PyBytes_GET_SIZE(data):
            self.early.appendleft(data[size:])
        if self.early:
            self.loop.call_soon(self._readable)
        protocol.buffer_updated(size)
        return 0

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
        """Have the poller watch for what we want now."""
        cdef bint reads = self.reading and not self.lost, writes = self.waiting_size > 0 and not self.lost and not self.loading
        if reads != self.watched_read and self.direct:
            self.poller.direct.remove(self)
            self.join_others()
        if reads != self.watched_read or writes != self.watched_write:
            if self.direct:
                self.poller.watch(self.fd, self, False, writes, self.watched_write)
            else:
                self.poller.watch(self.fd, self, reads, writes, self.watched_read or self.watched_write)
            self.watched_read = reads
            self.watched_write = writes
        return 0

    # The end

    cdef int lose(self, object exc) except -1:
        if self.lost:
            return 0
        self.lost = self.closing = True
        self.reading = False
        self.waiting = None
        self.waiting_size = self.head_sent = 0
        if self.direct:
            self.watch()
        self.poller.finish_soon(self, self.fd if self.watched_read or self.watched_write else -1, exc)
        self.watched_read = self.watched_write = False
        return 0

    cdef int fail_to_send(self, object exc) except -1:
        """The peer takes no more. Its last input, acknowledgements and goodbye, still counts.

        It closed with something unread, as a rule: then what we send meets a reset, while its last words lie here.
        """
        if self.lost or self.broken:
            return 0
        self.broken = True
        self.waiting = None
        self.waiting_size = self.head_sent = 0
        self.watch()
        self.loop.call_soon(self._read_rest, exc)
        return 0

    def _read_rest(self, exc):
        cdef Py_ssize_t i
        for i in range(REST_READS):
            if not self.reading:
                break
            self._readable()
        self.lose(exc)

    cdef int finish(self, exc) except -1:
        protocol, self.protocol = self.protocol, None
        self.stream = None
        self.layer = None
        try:
            protocol.connection_lost(exc)
        finally:
            if self.socket is not None:
                self.socket.close()
            else:
                c_close(self.fd)
            self.fd = -1
        return 0

    cdef object queued(self):
        """The output that waits; a socket that takes all, as most do, has no deque of 600 bytes."""
        if self.waiting is None:
            self.waiting = deque()
        return self.waiting

    cdef object as_socket(self):
        """The socket, for whom a descriptor is not enough."""
        if self.socket is None:
            self.socket = Socket(fileno=self.fd)
        return self.socket

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

    def release(self):
        self.lost = self.closing = True
        self.reading = False
        unsent = self.waiting_size
        self.waiting = None
        self.waiting_size = self.head_sent = 0
        self.watch()
        self.protocol = self.stream = self.layer = None
        return self.as_socket(), unsent

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
            if self.early:
                self.loop.call_soon(self._readable)

    # Writing

    def write(self, const unsigned char[::1] data):
        if data.shape[0]:
            self.send(PyBytes_FromStringAndSize(<const char*>&data[0], data.shape[0]))

    def writelines(self, list_of_data):
        self.send(b"".join(list_of_data))

    cpdef int send(self, bytes data) except -1:
        cdef Py_ssize_t sent, size = PyBytes_GET_SIZE(data)
        if self.closing or size == 0:
            return 0
        if self.unsaid:
            sent = min(self.unsaid, size)
            self.unsaid -= sent
            return self.send(data[sent:])
        sent = self.send_now(PyBytes_AS_STRING(data), size)
        if sent < 0 or sent == size:
            return 0
        return self.keep(data, sent)

    cdef int send_output(self, OutBuffer out) except -1:
        cdef list stretches = out.take_stretches()
        if stretches is not None:
            return self.send_stretches(out.take(), stretches)
        if self.unsaid:
            return self.send(out.take())
        # As a rule the socket takes all, and no bytes object is made of it.
        cdef Py_ssize_t sent = self.send_now(out._start, out.size)
        if sent < 0 or sent == out.size:
            return out.drop()
        return self.keep(out.take(), sent)

    cdef int send_stretches(self, bytes data, list stretches) except -1:
        """Send `data` with stretches of files in it, as much as the socket takes now."""
        cdef bint waits = self.waiting_size > 0
        cdef Py_ssize_t at = 0
        cdef Stretch stretch
        if self.broken:
            return 0
        for stretch in stretches:
            stretch.there = stretch.there and not waits
            if stretch.at > at:
                self.queued().append(data[at:stretch.at])
                at = stretch.at
            self.queued().append(stretch)
            self.waiting_size += stretch.size
        if at < PyBytes_GET_SIZE(data):
            self.queued().append(data[at:])
        self.waiting_size += PyBytes_GET_SIZE(data)
        if not waits:
            self.drain()
        if self.waiting_size:
            self.watch()
        return self.mark()

    cdef Py_ssize_t send_now(self, const void* start, Py_ssize_t size) except -2:
        """How many bytes the socket takes at once; -1: the connection is lost."""
        cdef ssize_t sent
        if self.waiting_size:
            return 0
        if self.broken:
            return -1
        sent = c_send(self.fd, start, size, MSG_NOSIGNAL)
        if sent >= 0:
            return sent
        if errno == EAGAIN or errno == EINTR:
            return 0
        self.fail_to_send(_error(errno))
        return -1

    cdef int keep(self, bytes data, Py_ssize_t sent) except -1:
        """Send the rest later: all of `data` but its first `sent` bytes."""
        if not self.waiting_size:
            self.head_sent = sent
        self.queued().append(data)
        self.waiting_size += PyBytes_GET_SIZE(data) - sent
        self.watch()
        return self.mark()

    cdef int drain(self) except -1:
        """Send what waits, until the socket takes no more."""
        while self.waiting_size and not self.loading and self.send_head():
            pass
        if self.lost or self.broken:
            return 0
        if self.waiting_size == 0:
            if self.closing:
                return self.lose(None)
            self.watch()
        if self.write_paused and self.waiting_size <= self.low:
            self.write_paused = False
            self.protocol.resume_writing()
        return 0

    cdef int send_head(self) except -1:
        """Send of the first element what the socket takes; 0: no more for now."""
        cdef object head = self.waiting[0]
        cdef bytes data
        cdef Stretch stretch = None
        cdef ssize_t sent, wanted
        cdef bint cold = False, over
        if isinstance(head, Stretch):
            stretch = <Stretch>head
            wanted = min(stretch.size, <size_t>STRETCH_MOST)
            cold = stretch.loads
            sent = 0 if cold else stretch.send(self.fd, &cold)
            over = stretch.size == 0
            if cold:
                self.loading = True
                self.watch()
                self.load(stretch)
                return 0
            if sent == 0:
                self.lose(OSError("a segment became shorter while it was sent"))
                return 0
        else:
            data = <bytes>head
            # The next bytes go into the same segment.
            wanted = PyBytes_GET_SIZE(data) - self.head_sent
            sent = c_send(self.fd, PyBytes_AS_STRING(data) + self.head_sent, wanted,
                          MSG_NOSIGNAL | (MSG_MORE if len(self.waiting) > 1 else 0))
            over = sent == wanted
        if sent < 0:
            if errno != EAGAIN and errno != EINTR:
                self.fail_to_send(_error(errno))
            return 0
        self.waiting_size -= sent
        if over:
            self.waiting.popleft()
            self.head_sent = 0
        elif stretch is None:
            self.head_sent += sent
        return sent == wanted

    cdef int load(self, Stretch stretch) except -1:
        """Have a thread read a stretch that waits: its bytes are sent in its place."""

        def loaded(found):
            if self.lost or self.waiting is None or stretch not in self.waiting:
                return
            if isinstance(found, OSError):
                self.lose(found)
                return
            self.waiting[self.waiting.index(stretch)] = found
            if self.loading:
                self.loading = False
                self.watch()
                self._writable()

        if not stretch.loads:
            stretch.load(loaded)
        return 0

    def take_in(self):
        for waiting in self.waiting or ():
            if isinstance(waiting, Stretch):
                self.load(<Stretch>waiting)

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
        cdef uint8_t byte
        if name == "unread":
            return self.fd >= 0 and c_recv(self.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0
        try:
            if name == "sockname":
                return self.as_socket().getsockname()
            if name == "peername":
                return self.as_socket().getpeername()
            if name == "gathering":
                return self.poller
        except OSError:
            return default
        return self.as_socket() if name == "socket" else default
