# cython: auto_pickle=False
"""The messages that a producer gathers: batches that grow as their frames, and what becomes of their messages.

Nothing is kept per message but its bytes; who sent it holds a `Sent`, which knows its batch and its place in it. Knows no
connection: the layout of the frame stands in `_producer.pyx`, the words in _gathering.pyi.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.protocols.properties._tables cimport store32, store64
from penstock.protocols.native.codec._records cimport MessageId, RECORD_HEAD, put_record

from asyncio import CancelledError, InvalidStateError
from contextvars import copy_context

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject** data, Py_ssize_t size) except -1
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size) except NULL
    char* start_of "PyBytes_AS_STRING"(PyObject* data) noexcept

cdef enum:
    HEAD = 12
    BATCH_HEAD = 16
    PRODUCE = 0x10
    HEADS = 64                      # more than a frame has besides its records
    MESSAGE = 64                    # what a message counts for besides its bytes
    ROOM_LEAST = 512                # of a new batch
    ROOM_STEP = 1 << 20             # a batch grows to twice its size, and by this at most

MESSAGE_BYTES = MESSAGE

cdef enum:
    OPEN
    DONE
    FAILED


cdef class Pending:
    cdef PyObject* made             # the frame while it grows, bytes that nobody else has
    cdef Py_ssize_t used, most      # of `made`
    cdef Py_ssize_t nbytes          # bodies and properties
    cdef int state
    cdef uint64_t position
    cdef object error               # FAILED: of all its messages; DONE: of those that went nowhere
    cdef bint is_known              # somebody was told of the error
    cdef Py_ssize_t told            # messages whose confirm came
    cdef object routed              # of those that `unrouted` does not mark
    cdef bytearray unrouted         # of each message whether it went nowhere; None: of none is it known
    cdef list waiting               # of Sent that have callbacks
    cdef readonly object loop
    cdef readonly bytes frame
    cdef readonly Py_ssize_t count, size
    cdef readonly uint64_t sequence
    cdef public int64_t due_ms
    cdef public bytes name
    cdef public object whole, mandatory

    def __cinit__(self, loop):
        self.loop = loop

    def __dealloc__(self):
        Py_XDECREF(self.made)

    def __del__(self):
        if self.error is not None and not self.is_known:
            became = "were not sent" if self.state == FAILED else "were sent, not all of them to a queue"
            self.loop.call_exception_handler({
                "message": f"{self.count} messages {became}, and nobody asked for their futures' exception",
                "exception": self.error,
            })

    cdef uint8_t* place(self, Py_ssize_t size) except NULL:
        """Where the next `size` bytes go."""
        cdef Py_ssize_t wanted
        if not self.used:
            self.used = HEAD + BATCH_HEAD
        wanted = self.used + size
        if wanted > self.most:
            self.most = max(wanted, min(2 * self.most, self.most + ROOM_STEP), ROOM_LEAST)
            if self.made == NULL:
                self.made = new_bytes(NULL, self.most)
            else:
                _PyBytes_Resize(&self.made, self.most)
        cdef uint8_t* p = <uint8_t*>start_of(self.made) + self.used
        self.used = wanted
        return p

    cdef int put(self, bytes body, bytes block) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body) + PyBytes_GET_SIZE(block)
        put_record(self.place(RECORD_HEAD + size), block, body)
        self.count += 1
        self.nbytes += size
        self.size += size + MESSAGE
        return 0

    def seal(self, uint32_t handle, uint64_t sequence, uint8_t acks):
        cdef uint8_t* p
        if self.made == NULL or self.used > 0x7FFFFFFF:
            raise ValueError(f"a batch of {self.used} bytes; a frame has some, and at most 2 GiB")
        _PyBytes_Resize(&self.made, self.used)
        self.most = self.used
        p = <uint8_t*>start_of(self.made)
        store32(p, <uint32_t>(self.used - 4))
        p[4] = PRODUCE
        p[5] = p[6] = p[7] = 0
        store32(p + 8, handle)
        p += HEAD
        store64(p, sequence)
        p[8] = acks
        p[9] = p[10] = p[11] = 0
        store32(p + 12, <uint32_t>self.count)
        self.sequence = sequence
        self.frame = <bytes>self.made
        Py_XDECREF(self.made)
        self.made = NULL

    def renumber(self, uint64_t sequence):
        self.frame = self.frame[:HEAD] + (<object>sequence).to_bytes(8, "big") + self.frame[HEAD + 8:]
        self.sequence = sequence

    @property
    def records(self):
        return self.frame[HEAD + BATCH_HEAD:]

    def sent_again(self):
        self.told = 0
        self.unrouted = None

    def done(self, uint64_t position, Py_ssize_t count, routed):
        cdef Py_ssize_t first = self.told
        if self.state != OPEN:
            return True
        if not first:
            self.position = position
            self.routed = None if routed is None else True
        self.told = min(first + count, self.count)
        if routed is False:
            if self.unrouted is None:
                self.unrouted = bytearray(self.count)
            for i in range(first, self.told):
                self.unrouted[i] = True
        if self.told < self.count:
            return False
        self.state = DONE
        if self.unrouted is not None and self.mandatory is not None:
            self.error = self.mandatory()
        self.settle()
        return True

    def failed(self, error, *, bint quietly=False):
        if self.state == OPEN:
            self.state = FAILED
            self.error = error
            self.is_known = quietly
            self.settle()

    cdef int settle(self) except -1:
        cdef Sent sent
        waiting, self.waiting, self.frame = self.waiting, None, None
        if waiting is not None:
            for sent in waiting:
                sent.tell()
        if self.whole is None:
            return 0
        whole, self.whole = self.whole, None
        if whole.done():
            return 0
        if self.error is None:
            whole.set_result([self.id(i) for i in range(self.count)])
        else:
            whole.set_exception(self.error)
            if self.is_known:
                whole.exception()  # who does not look at it hears nothing
            self.is_known = True
        return 0

    cdef bint is_unrouted(self, Py_ssize_t index) except -1:
        return self.unrouted is not None and self.unrouted[index]

    cdef MessageId id(self, Py_ssize_t index):
        routed = False if self.is_unrouted(index) else self.routed
        return MessageId(self.position + index if self.position else 0, self.due_ms, routed)


@cython.freelist(256)
cdef class Sent:
    cdef Pending batch
    cdef Py_ssize_t index
    cdef list callbacks             # of (function, context); None: there were none yet
    cdef bint is_cancelled
    cdef public bint _asyncio_future_blocking
    cdef readonly object _cancel_message

    def __init__(self):
        raise TypeError("made by Producer.send_nowait")

    def done(self):
        return self.is_cancelled or self.batch.state != OPEN

    def cancelled(self):
        return self.is_cancelled

    def cancel(self, msg=None):
        if self.done():
            return False
        self.is_cancelled = True
        self._cancel_message = msg
        self.tell()
        return True

    def result(self):
        error = self.exception()
        if error is not None:
            raise error.with_traceback(None)
        return self.batch.id(self.index)

    def exception(self):
        if self.is_cancelled:
            raise self._make_cancelled_error()
        if self.batch.state == OPEN:
            raise InvalidStateError("the message is not confirmed yet")
        error = self.error()
        if error is not None:
            self.batch.is_known = True
        return error

    cdef object error(self):
        """The refusal of a message that is done; None: it was sent."""
        if self.batch.state == DONE and not self.batch.is_unrouted(self.index):
            return None
        return self.batch.error

    def _make_cancelled_error(self):
        return CancelledError() if self._cancel_message is None else CancelledError(self._cancel_message)

    def get_loop(self):
        return self.batch.loop

    def add_done_callback(self, function, *, context=None):
        if context is None:
            context = copy_context()
        if self.done():
            self.batch.loop.call_soon(function, self, context=context)
            return
        if self.callbacks is None:
            self.callbacks = []
            if self.batch.waiting is None:
                self.batch.waiting = []
            self.batch.waiting.append(self)
        self.callbacks.append((function, context))

    def remove_done_callback(self, function):
        if self.callbacks is None:
            return 0
        left = [one for one in self.callbacks if one[0] != function]
        removed = len(self.callbacks) - len(left)
        self.callbacks = left
        return removed

    cdef int tell(self) except -1:
        """It is done: once, for what is cancelled has no callbacks when its batch is."""
        callbacks, self.callbacks = self.callbacks, []
        for function, context in callbacks or ():
            self.batch.loop.call_soon(function, self, context=context)
        return 0

    def __await__(self):
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
            if not self.done():
                raise RuntimeError("await wasn't used with the future of a message")
        return self.result()

    __iter__ = __await__

    def __repr__(self):
        if self.is_cancelled:
            return "<Sent cancelled>"
        if self.batch.state == OPEN:
            return "<Sent pending>"
        return f"<Sent {self.error() or self.batch.id(self.index)!r}>"


cdef class Gathering:
    cdef readonly Pending batch
    cdef bytes usual
    cdef Py_ssize_t batch_bytes, batch_messages
    cdef readonly Py_ssize_t buffer_bytes
    cdef public Py_ssize_t under_way, frame_max
    cdef public object loop, mandatory
    cdef public bint is_plain

    def __cinit__(self, bytes usual not None, Py_ssize_t batch_bytes, Py_ssize_t batch_messages, Py_ssize_t buffer_bytes):
        self.usual = usual
        self.batch_bytes = batch_bytes
        self.batch_messages = batch_messages
        self.buffer_bytes = buffer_bytes
        self.frame_max = 0x7FFFFFFF

    def plain(self, body):
        cdef Py_ssize_t size
        if self.batch is None or not self.is_plain or type(body) is not bytes:
            return None
        size = PyBytes_GET_SIZE(<bytes>body) + PyBytes_GET_SIZE(self.usual)
        if (
            self.batch.nbytes + size >= self.batch_bytes
            or self.batch.count + 1 >= self.batch_messages
            or self.under_way + size + MESSAGE > self.buffer_bytes
            or not self.fits(size)
        ):
            return None
        return self.add(<bytes>body, self.usual)

    cpdef bint fits(self, Py_ssize_t size) noexcept:
        cdef Py_ssize_t used = 0 if self.batch is None else self.batch.used
        return used + RECORD_HEAD + size + HEADS <= self.frame_max

    cpdef bint has_room(self, Py_ssize_t size) noexcept:
        return not self.under_way or self.under_way + size <= self.buffer_bytes

    def carries(self, Pending batch not None):
        return batch.used - HEAD - BATCH_HEAD + HEADS <= self.frame_max

    cdef Pending new_batch(self):
        cdef Pending batch = Pending.__new__(Pending, self.loop)
        batch.mandatory = self.mandatory
        return batch

    cpdef Sent add(self, bytes body, bytes block):
        cdef Sent sent
        cdef Pending batch = self.batch
        if batch is None:
            batch = self.batch = self.new_batch()
        sent = Sent.__new__(Sent)
        sent.index = batch.count
        batch.put(body, block)
        sent.batch = batch
        self.under_way += PyBytes_GET_SIZE(body) + PyBytes_GET_SIZE(block) + MESSAGE
        return sent

    @property
    def is_full(self):
        return self.batch is not None and (
            self.batch.nbytes >= self.batch_bytes or self.batch.count >= self.batch_messages)

    def take(self):
        batch, self.batch = self.batch, None
        return batch

    def whole(self, list bodies not None, Py_ssize_t at, bytes block not None):
        cdef Pending batch = self.new_batch()
        cdef Py_ssize_t end = at, last = min(len(bodies), at + max(self.batch_messages, 1))
        cdef Py_ssize_t one, size = 0, wire = 0
        while end < last and (end == at or size < self.batch_bytes):
            one = PyBytes_GET_SIZE(<bytes?>bodies[end])
            wire += RECORD_HEAD + PyBytes_GET_SIZE(block) + one
            if wire + HEADS > self.frame_max and end > at:
                break
            size += one
            end += 1
        if at < end:
            # All at once: it is not made larger in between.
            batch.place(size + (end - at) * (RECORD_HEAD + PyBytes_GET_SIZE(block)))
            batch.used = HEAD + BATCH_HEAD
        for i in range(at, end):
            batch.put(<bytes>bodies[i], block)
        self.under_way += batch.size
        return batch
