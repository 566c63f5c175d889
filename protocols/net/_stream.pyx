# cython: auto_pickle=False
"""The moving half of a connection: from the socket to the protocol, from its output to the socket.

This code runs for every read and every write; `Connection` derives from it and decides the rest. See there
for how reading and writing work. In the ordinary case nothing between the socket and the log is Python: the
socket reads into the arena, `quick` (the front end's scanner) takes the read, the turn hands out what it brought,
and the consumers' output goes to their sockets.
"""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE, PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy, memmove

from penstock.log_core.wal._writer cimport Writer
from penstock.protocols.net.outbuffer cimport FILE_BYTES, OutBuffer
from penstock.subscriptions.cursor._events cimport EVENTS, PUBLISH
from penstock.subscriptions.tick._tick cimport Sink, TickBase

cdef extern from "time.h" nogil:
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* now)
    enum:
        CLOCK_MONOTONIC

cdef enum:
    ARENA_SIZE = 262144
    OWN_FIRST = 524288              # first size of a connection's own buffer; it doubles as bytes arrive, up to `want`
    OWN_KEPT = 1048576              # a buffer up to this size is kept for the next packet of its size
    # An endpoint that does not set `want` must have consumed enough to leave room for a useful read.
    REST_MAX = 196608
    SMALL_READ = 4096               # a read of at most so many bytes may have a turn of its own
    # At so many high-water marks of output that the peer does not take, it is not read either. Consumers stop at
    # one mark, so this is answers to what it sends without reading them.
    OUTPUT_FULL = 8
    MUCH_READ = 16384               # who sends so much at once waits for a busy disk before others have to

cdef bytearray arena = bytearray(ARENA_SIZE)
cdef uint8_t* arena_start = <uint8_t*>PyByteArray_AS_STRING(arena)
ARENA = arena
cdef object ARENA_VIEW = memoryview(arena)


cdef double monotonic() noexcept:
    """The clock of event loops, in seconds, not rounded to their last look at it."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double>now.tv_sec + <double>now.tv_nsec * 1e-9


cdef class QuickReader:
    cdef Py_ssize_t read(self, const uint8_t* p, Py_ssize_t size) except -2:
        return -1

    cdef Py_ssize_t answer(self, OutBuffer out, uint64_t written, uint64_t synced) except -2:
        return -1

    def try_read(self, const uint8_t[::1] data not None):
        self.answers = False
        return self.read(&data[0], data.shape[0]) if data.shape[0] else -1


cdef class Wire:
    cdef bint is_over(self) noexcept:
        return self.closing

    cpdef int send(self, bytes data) except -1:
        raise NotImplementedError

    cdef int send_output(self, OutBuffer out) except -1:
        return self.send(out.take())


cdef class Stream(Sink):
    def __init__(self, loop not None, TickBase tick not None, Py_ssize_t output_mark):
        self.loop = loop
        self.tick = tick
        self.output_mark = output_mark
        self.out = OutBuffer()
        self.rest = b""
        self.writable = True
        self.last_read_at = self.last_write_at = monotonic()

    def attach(self, transport not None):
        self.transport = transport
        self.wire = transport if isinstance(transport, Wire) else None
        self.out.takes_files = self.wire is not None and self.wire.sends_files

    def detach(self):
        self.transport = None
        self.wire = None
        self.quick = None

    # Reading

    cdef uint8_t* place(self, Py_ssize_t* capacity) except NULL:
        """Where the next bytes go, and how many of them at most."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.rest)
        if self.own is not None:
            size = PyByteArray_GET_SIZE(self.own)
            if self.own_fill == size:
                size += max(min(size, self.want - size), 4096)
                PyByteArray_Resize(self.own, size)
            # One that is kept: a read ends where a packet as large as the last one does, and nothing is moved.
            capacity[0] = (self.want_next if self.want_next else size) - self.own_fill
            return <uint8_t*>PyByteArray_AS_STRING(self.own) + self.own_fill
        if size:
            # Kept until bytes really arrive: a read may turn out empty.
            memcpy(arena_start, PyBytes_AS_STRING(self.rest), size)
        capacity[0] = ARENA_SIZE - size
        return arena_start + size

    def get_buffer(self, sizehint):
        cdef Py_ssize_t capacity
        self.place(&capacity)
        if self.own is not None:
            return memoryview(self.own)[self.own_fill:self.own_fill + capacity]
        return ARENA_VIEW[ARENA_SIZE - capacity:]

    def buffer_updated(self, Py_ssize_t nbytes):
        self.arrived(nbytes)

    cdef int arrived(self, Py_ssize_t nbytes) except -1:
        cdef Py_ssize_t size
        self.bytes_in += nbytes
        self.reads += 1
        self.last_read_at = monotonic()
        if self.closing:
            return 0
        if self.own is not None:
            self.own_fill += nbytes
            self.want_next = 0
            if self.own_fill >= self.want:
                self.handle(self.own, self.own_fill)
                self.served()
                self.tick.end_read()
                self.leave_room()
            return 0
        size = PyBytes_GET_SIZE(self.rest) + nbytes
        self.rest = b""
        if size <= SMALL_READ and self.tick.begin_read(self.last_read_at):
            try:
                self.handle(arena, size)
            finally:
                self.tick.run_alone(self)
        else:
            self.handle(arena, size)
            self.served()
            self.tick.end_read()
            if nbytes >= MUCH_READ:
                self.leave_room()
        return 0

    cdef int leave_room(self) except -1:
        """While the disk is busy, who has just sent much is not read, so that those who send little need not wait."""
        cdef Writer writer = self.tick.writer
        if writer is not None and not self.closing and writer.is_busy():
            self.pause_reading("disk")
            writer.when_less_busy(self.disk_is_less_busy)
        return 0

    def disk_is_less_busy(self):
        self.resume_reading("disk")

    cdef int served(self) except -1:
        if self.answers_wait:
            self.answers_wait = False
            if not self.closing:
                if self.quick is not None and self.tick.writer is not None:
                    self.answer_quickly()
                else:
                    self.answer()
        return 0

    cdef int answer_quickly(self) except -1:
        """Send the answers that may go, and have `reached` called for the others."""
        cdef Writer writer = self.tick.writer
        cdef QuickReader quick = self.quick
        cdef Py_ssize_t left = quick.answer(self.out, writer.written_lsn, writer.kept_lsn)
        if left < 0:
            self.answer()
            return 0
        if left:
            if quick.await_synced > self.awaited_synced and quick.await_synced > writer.kept_lsn:
                self.awaited_synced = quick.await_synced
                writer.await_kept(quick.await_synced, self)
            if quick.await_written > self.awaited_written and quick.await_written > writer.written_lsn:
                self.awaited_written = quick.await_written
                writer.await_written(quick.await_written, self)
        if self.out.size:
            self.tick.dirty_connection(self)
        return 0

    cdef int reached(self, bint ok) except -1:
        """The event that answers wait for has come about, or never will."""
        if self.closing or self.transport is None:
            return 0
        try:
            if ok and self.quick is not None:
                self.answer_quickly()
            else:
                self._durable(ok)
        except Exception:
            self.failed()
        return 0

    cdef int has_output(self) except -1:
        self.tick.dirty_connection(self)
        return 0

    cdef bint awaits(self) except -1:
        return self.answers_wait

    cdef int handle(self, bytearray buffer, Py_ssize_t size) except -1:
        cdef Py_ssize_t consumed = -1, left
        cdef QuickReader quick = self.quick
        cdef Writer writer = self.tick.writer if EVENTS.kinds >> PUBLISH & 1 else None
        cdef uint64_t first = writer.appender.next_lsn if writer is not None else 0
        self.want = 0
        try:
            if quick is not None:
                quick.answers = False
                consumed = quick.read(<const uint8_t*>PyByteArray_AS_STRING(buffer), size)
                if consumed >= 0:
                    self.want = quick.want
                    self.answers_wait = quick.answers
            if consumed < 0:
                consumed = self.received(buffer, size)
            if writer is not None and writer.appender.next_lsn > first:
                self.appended(first, writer.appender.next_lsn - first)
        except Exception:
            # The edge of the connection: a bug of ours ends this connection only.
            self.failed()
            return 0
        if not self.trusted:
            self.within_login_bytes()
        left = size - consumed
        if self.closing:
            self.drop_input()
        elif left == 0:
            self.rest = b""
            if self.own is not None and ARENA_SIZE < size <= OWN_KEPT:
                self.own_fill = 0
                self.want_next = size
            else:
                self.own = None
        elif self.want > ARENA_SIZE or left > REST_MAX:
            self.keep_own(buffer, consumed, left)
        else:
            self.rest = PyBytes_FromStringAndSize(PyByteArray_AS_STRING(buffer) + consumed, left)
            self.own = None
        return 0

    cdef int keep_own(self, bytearray buffer, Py_ssize_t consumed, Py_ssize_t left) except -1:
        """Go on behind buffer[consumed:consumed + left] in a buffer of our own, which may be this one."""
        if buffer is not self.own:
            self.own = PyByteArray_FromStringAndSize(NULL, max(min(self.want, <Py_ssize_t>OWN_FIRST), left + 4096))
            memcpy(PyByteArray_AS_STRING(self.own), PyByteArray_AS_STRING(buffer) + consumed, left)
        elif consumed:
            memmove(PyByteArray_AS_STRING(self.own), PyByteArray_AS_STRING(self.own) + consumed, left)
        self.own_fill = left
        return 0

    def handle_rest(self):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.rest)
        if self.closing:
            return
        if self.own is not None:
            if self.own_fill:
                self.handle(self.own, self.own_fill)
        elif size:
            memcpy(arena_start, PyBytes_AS_STRING(self.rest), size)
            self.rest = b""
            self.handle(arena, size)
        self.served()
        self.tick.end_read()

    def drop_input(self):
        self.rest = b""
        self.own = None
        self.own_fill = self.want_next = 0

    def drop_input_buffer(self):
        if self.want_next:
            self.drop_input()

    def input_bytes(self):
        return PyBytes_GET_SIZE(self.rest) + (0 if self.own is None else self.own_fill)

    def input_buffer_bytes(self):
        return PyBytes_GET_SIZE(self.rest) + (0 if self.own is None else PyByteArray_GET_SIZE(self.own))

    # Writing

    def dirty(self):
        self.tick.dirty_connection(self)

    def flush(self):
        self.send_out()

    cdef int send_out(self) except -1:
        cdef Wire wire = self.wire
        cdef Py_ssize_t size = self.out.size + self.out.attached
        cdef bytes data
        if size:
            # Work that no receiver waits for comes behind the send.
            if wire is not None:
                if wire.is_over():
                    self.out.drop()
                    size = 0
                else:
                    wire.send_output(self.out)
            else:
                data = self.out.take()
                if self.transport is None or self.transport.is_closing():
                    size = 0
                else:
                    self.transport.write(data)
            if size:
                self.bytes_out += size
                self.writes += 1
                self.last_write_at = monotonic()
                if not self.writable and self.transport.get_write_buffer_size() > OUTPUT_FULL * self.output_mark:
                    self.pause_reading("output")
        if self.throttled and self.writable:
            self.throttled = False
            self.tick.relieve(self)
        return 0

    def output_capacity(self):
        return self._output_capacity()

    cdef Py_ssize_t _output_capacity(self) except -1:
        cdef Py_ssize_t left
        if self.closing:
            return 0
        left = self.output_mark - self.out.size - self.out.attached // FILE_BYTES if self.writable else 0
        if left <= 0:
            self.throttled = True
            return 0
        return left
