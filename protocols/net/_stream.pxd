"""The moving half of a connection. Words in _stream.pyi."""

from libc.stdint cimport uint8_t, uint64_t

from penstock.protocols.net._poller cimport Watched
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.subscriptions.tick._tick cimport Sink, TickBase


cdef class QuickReader:             # what handles a read without a call into Python
    cdef public Py_ssize_t want     # as `Stream.want`
    cdef readonly bint answers      # of what was read, some wait: `Stream.answer` is to be called
    cdef readonly uint64_t await_written, await_synced  # of all answers so far, the last positions that they wait for
    # Bytes of p[0, size) that are done with; -1 = `Stream.received` is to be called with the same.
    cdef Py_ssize_t read(self, const uint8_t* p, Py_ssize_t size) except -2
    # Encode the answers that may go now that everything up to `written` is written, and up to `synced` durable. How
    # many are left, which wait for `await_written` and `await_synced`; -1 = `Stream.answer` is to be called.
    cdef Py_ssize_t answer(self, OutBuffer out, uint64_t written, uint64_t synced) except -2


cdef class Wire(Watched):                    # a socket, or a layer on it, as a stream uses it
    cdef bint closing
    cdef Py_ssize_t waiting_size    # bytes that wait for the socket
    cdef bint sends_files           # `send_output` knows of stretches
    cdef bint is_over(self) noexcept            # nothing that is sent goes out any more
    cpdef int send(self, bytes data) except -1
    cdef int send_output(self, OutBuffer out) except -1


cdef class Stream(Sink):
    cdef readonly OutBuffer out
    cdef public Py_ssize_t want
    cdef public unsigned long long bytes_in, bytes_out, reads, writes
    cdef public double last_read_at, last_write_at
    cdef public bint writable, closing, trusted
    cdef public QuickReader quick
    cdef public Py_ssize_t output_mark
    cdef readonly object transport
    cdef Wire wire                  # the transport, if it is one
    cdef TickBase tick
    cdef readonly object loop
    cdef bytes rest
    cdef bytearray own
    cdef Py_ssize_t own_fill
    cdef Py_ssize_t want_next       # `own` is kept, and empty: as much as the packet before had; 0 = it is not
    cdef public bint throttled
    cdef bint answers_wait
    cdef uint64_t awaited_written, awaited_synced   # positions that `reached` is to be called for, the last ones

    cdef uint8_t* place(self, Py_ssize_t* capacity) except NULL
    cdef int arrived(self, Py_ssize_t nbytes) except -1
    cdef int leave_room(self) except -1
    cdef int answer_quickly(self) except -1
    cdef int handle(self, bytearray buffer, Py_ssize_t size) except -1
    cdef int keep_own(self, bytearray buffer, Py_ssize_t consumed, Py_ssize_t left) except -1
