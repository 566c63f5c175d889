# cython: auto_pickle=False
"""Messages of AMQP 1.0 on their way through a shovel: a read at a time, without an object per message.

    source --frames--> Arriving --Messages--> Departing --frames--> target

    Messages   | gone | message | message | message | part of one that is under way |
                      first                         count                           size

`Arriving` takes the ordinary transfers and stops at the first frame that is anything else. Python handles that one, and
`take` goes on behind it. Parts of a message gather where it will be, behind the whole ones.

Source: AMQP 1.0 part 2, sections 2.3, 2.6.14 and 2.7.5; part 3, section 3.2.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from penstock.protocols.amqp10.codec._frames cimport (
    FRAME_HEAD, TRANSFER, Piece, Transfer, frames_of, put_delivery, read_transfer,
)
from penstock.protocols.amqp10.codec._simple cimport extent, put
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.protocols.properties._tables cimport load32

cdef enum:
    DELIVERY_ANNOTATIONS = 0x71
    KEPT_MAX = 1 << 20              # bytes of room that are kept for the next messages
    PLACES_FIRST = 1024


cdef class Messages:
    def __dealloc__(self):
        free(self._bytes.p)
        free(self._ends)

    def __len__(self):
        return self._count - self._first

    cdef Py_ssize_t start(self, Py_ssize_t number) noexcept:
        """Where a message begins, or what is behind the last one."""
        return self._ends[number - 1] if number else 0

    cdef int add(self, const uint8_t* p, Py_ssize_t n) except -1:
        """Put a part behind what is there."""
        return put(&self._bytes, p, n)

    cdef int close(self) except -1:
        """End the message that is under way: it is whole."""
        cdef Py_ssize_t room
        cdef Py_ssize_t* grown
        if self._count == self._room:
            room = max(2 * self._room, <Py_ssize_t>PLACES_FIRST)
            grown = <Py_ssize_t*>realloc(self._ends, room * sizeof(Py_ssize_t))
            if grown == NULL:
                raise MemoryError
            self._ends, self._room = grown, room
        self._ends[self._count] = self._bytes.size
        self._count += 1
        return 0

    cdef bytes drop_part(self):
        """Forget what came of the message that is under way; the part."""
        cdef Py_ssize_t start = self.start(self._count)
        cdef bytes part = PyBytes_FromStringAndSize(<const char*>self._bytes.p + start, self._bytes.size - start)
        self._bytes.size = start
        return part

    cdef bytes message(self, Py_ssize_t number):
        cdef Py_ssize_t start = self.start(number)
        return PyBytes_FromStringAndSize(<const char*>self._bytes.p + start, self._ends[number] - start)

    def append(self, bytes payload not None):
        self.add(<const uint8_t*>PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        self.close()

    def clear(self):
        cdef Py_ssize_t start = self.start(self._count), left = self._bytes.size - start
        if self._count and left:
            memmove(self._bytes.p, self._bytes.p + start, left)
        self._bytes.size = left
        self._count = self._first = 0
        if left == 0 and self._bytes.capacity > KEPT_MAX:
            free(self._bytes.p)
            self._bytes.p = NULL
            self._bytes.capacity = 0

    def payloads(self):
        return [self.message(number) for number in range(self._first, self._count)]

    def pop(self):
        if self._first == self._count:
            raise IndexError("no message is left")
        self._first += 1
        return self.message(self._first - 1)

    def keep(self, Py_ssize_t count):
        cdef Py_ssize_t kept = self._first + max(count, <Py_ssize_t>0)
        cdef bytes part
        if kept < self._count:
            part = self.drop_part()
            self._count = kept
            self._bytes.size = self.start(kept)
            self.add(<const uint8_t*>PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))

    def change(self, function, *, bint every):
        cdef Py_ssize_t number
        cdef list payloads
        cdef bytes part
        if not every:
            for number in range(self._first, self._count):
                if not is_plain(self._bytes.p + self.start(number), self._ends[number] - self.start(number)):
                    break
            else:
                return
        payloads = self.payloads()
        part = self.drop_part()
        self.clear()
        for payload in payloads:
            self.append(function(payload))
        self.add(<const uint8_t*>PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))


cdef bint is_plain(const uint8_t* p, Py_ssize_t n) noexcept:
    """Whether a message has whole sections, and nothing that is for the next node only."""
    cdef Py_ssize_t size
    while n:
        if n < 4 or p[0] != 0 or p[1] != 0x53 or p[2] == DELIVERY_ANNOTATIONS:
            return False
        size = extent(p + 3, n - 3)
        if size < 0:
            return False
        p += 3 + size
        n -= 3 + size
    return True


cdef class Arriving:
    def __init__(self, *, uint32_t frame_max):
        self._frame_max = frame_max
        self.messages = Messages()
        self.runs = []

    def begin(self):
        self.messages.clear()
        self.runs = []

    def take(self, const uint8_t[::1] data not None, Py_ssize_t at):
        cdef Py_ssize_t size = data.shape[0], used
        cdef const uint8_t* f
        cdef uint32_t whole
        cdef Transfer head
        if at < 0 or at > size:
            raise ValueError("not inside the data")
        self.frames = 0
        while size - at >= FRAME_HEAD + 4:
            f = &data[at]
            whole = load32(f)
            if whole > size - at or whole > self._frame_max or whole < FRAME_HEAD + 4:
                break
            if f[4] != 2 or f[5] != 0 or f[8] != 0 or f[9] != 0x53 or f[10] != TRANSFER:
                break
            used = read_transfer(f + 11, whole - 11, &head)
            if used < 0 or not (head.known or self._gathering):
                break
            self._part(head.delivery, head.more, f + 11 + used, whole - 11 - used)
            self.frames += 1
            at += whole
        self._close_run()
        return at

    def part(self, uint32_t number, *, bint more, bint aborted, bytes payload not None):
        if aborted:
            self._gathering = False
            self.messages.drop_part()
            return
        self._part(number, more, <const uint8_t*>PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        self._close_run()

    cdef int _part(self, uint32_t number, bint more, const uint8_t* p, Py_ssize_t n) except -1:
        if not self._gathering:
            self._number = number
        self.messages.add(p, n)
        self._gathering = more
        if more:
            return 0
        self.messages.close()
        if self._run == 0 or self._number != <uint32_t>(self._first + self._run):
            self._close_run()
            self._first = self._number
        self._run += 1
        return 0

    cdef int _close_run(self) except -1:
        if self._run:
            self.runs.append((self._first, self._run))
            self._run = 0
        return 0


cdef class Departing:
    def __init__(self, *, uint32_t channel, uint32_t handle, uint32_t frame_max, bint settled):
        if frame_max < 512:
            raise ValueError("a frame has 512 bytes at least")
        self._channel = channel
        self._handle = handle
        self._frame_max = frame_max
        self._settled = settled
        self._out = OutBuffer()

    def put(self, Messages messages not None, uint32_t number, Py_ssize_t credit, Py_ssize_t window):
        cdef Piece piece
        cdef Py_ssize_t start, frames
        self.count = self.frames = 0
        start = messages.start(messages._first)
        while messages._first < messages._count and self.count < credit:
            piece.p = messages._bytes.p + start
            piece.size = messages._ends[messages._first] - start
            frames = frames_of(piece.size, self._frame_max)
            if frames > window - self.frames:
                break
            put_delivery(
                self._out, self._channel, self._frame_max, self._handle, <uint32_t>(number + self.count), 0, self._settled,
                &piece, piece.size,
            )
            start += piece.size
            self.frames += frames
            self.count += 1
            messages._first += 1
        return self._out.take()
