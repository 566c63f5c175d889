# cython: auto_pickle=False
"""Makes of what a source delivers what a target is sent: a read at a time, without an object per message.

    PRODUCE    size u32 | type u8 | flags u8 = 0 | u16 = 0 | handle u32
               | number u64 | acks u8 | compression u8 = 0 | u16 = 0 | count u32 | records
      record   properties size u32 | body size u32 | properties | body

The number of a batch is the position of its last message at the source. Messages up to a position that the target
has already are left out. Records are copied out of a DELIVER, or out of batches as the source has stored them.

Source: docs/reference/native.md.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec._records cimport RECORD_HEAD, Chunk, Spot, spot_size
from penstock.protocols.properties._tables cimport load32, store32, store64

cdef enum:
    HEAD = 12
    BATCH_HEAD = 16
    FRAME_MAX = 1 << 28
    BATCH_MOST = 5000       # messages: some queues take no more than 10,000 at once

cdef uint8_t DELIVER = kinds.DELIVER
cdef uint8_t DELIVER_STORED = kinds.DELIVER_STORED
cdef uint8_t PRODUCE = kinds.PRODUCE
cdef uint8_t ACKS = kinds.ACKS_FSYNC


class OutOfOrder(Exception):
    """See _packer.pyi."""


cdef class Packer:

    def __init__(self, uint32_t handle, Py_ssize_t frame_max, uint64_t known):
        self._handle = handle
        self._frame_max = frame_max
        self._known = known
        self._last = 0
        self.left_out = 0
        self.frames = []
        self.batches = []
        self.others = []

    def take(self, const uint8_t[::1] data not None):
        cdef Py_ssize_t end = data.shape[0], at = 0
        cdef const uint8_t* p
        cdef uint64_t size
        cdef uint32_t pull = 0
        self.frames = []
        self.batches = []
        self.others = []
        while end - at >= HEAD:
            p = &data[at]
            size = load32(p)
            if size < HEAD - 4 or size > FRAME_MAX:
                raise ValueError("a frame that is none")
            if <uint64_t>(end - at) < 4 + size:
                break
            at += 4 + <Py_ssize_t>size
            size -= HEAD - 4
            if p[4] == DELIVER:
                # A chunk does not outlive the call, so nobody need own its bytes.
                self._pack(Chunk.of_delivery(None, p + HEAD, <Py_ssize_t>size, &pull))
            elif p[4] == DELIVER_STORED:
                self._pack(Chunk.of_stored(None, p + HEAD, <Py_ssize_t>size))
            else:
                self.others.append((p[4], load32(p + 8), (p + HEAD)[:size]))
        return at

    cdef int _pack(self, Chunk chunk) except -1:
        """Make batches of a delivery."""
        cdef Spot spot
        cdef Py_ssize_t count, size, record
        cdef Chunk ahead = chunk.copied()
        self.tag = chunk.tag + <uint64_t>chunk.left - 1
        while ahead.left:
            ahead.look(&spot)
            if spot.position <= self._last:
                raise OutOfOrder
            self._last = spot.position
            self._used += 1
            self._used_bytes += spot_size(&spot)
            if spot.position <= self._known:
                self.left_out += 1
                chunk.look(&spot)
        while chunk.left:
            ahead = chunk.copied()
            count = size = 0
            while ahead.left and count < BATCH_MOST:
                ahead.look(&spot)
                record = RECORD_HEAD + <Py_ssize_t>spot.props_size + <Py_ssize_t>spot.body_size
                if count and HEAD + BATCH_HEAD + size + record > self._frame_max:
                    break
                size += record
                count += 1
            self.frames.append(self._frame(chunk, count, size))
        return 0

    cdef bytes _frame(self, Chunk chunk, Py_ssize_t count, Py_ssize_t size):
        """A batch of the next `count` messages, whose records have `size` bytes."""
        cdef Spot spot
        cdef Py_ssize_t rest = count
        cdef bytes frame = PyBytes_FromStringAndSize(NULL, HEAD + BATCH_HEAD + size)
        cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(frame)
        cdef uint8_t* p = start + HEAD + BATCH_HEAD
        while rest:
            chunk.look(&spot)
            store32(p, spot.props_size)
            store32(p + 4, spot.body_size)
            p += RECORD_HEAD
            memcpy(p, spot.key + spot.key_size, <size_t>spot.props_size + spot.body_size)
            p += spot.props_size + spot.body_size
            rest -= 1
        memset(start, 0, HEAD + BATCH_HEAD)
        store32(start, <uint32_t>(HEAD - 4 + BATCH_HEAD + size))
        start[4] = PRODUCE
        store32(start + 8, self._handle)
        store64(start + HEAD, spot.position)
        start[HEAD + 8] = ACKS
        store32(start + HEAD + 12, <uint32_t>count)
        self.batches.append((spot.position, spot.tag, count))
        return frame

    def granted(self):
        found = min(self._used, 0xFFFFFFFF), min(self._used_bytes, 0xFFFFFFFF)
        self._used = 0
        self._used_bytes = 0
        return found
