"""The native protocol's kernel: frames in, records into the log, deliveries and confirms out. Words in _codec.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from penstock.log_core._appender cimport Appender
from penstock.protocols.outbuffer cimport OutBuffer
from penstock.router._routes cimport Route, RouteTable
from penstock.subscriptions._cursor cimport Cursor
from penstock.subscriptions._taken cimport Item
from penstock.subscriptions._keys cimport KeyShares


cdef struct Confirm:            # a batch whose confirm waits
    uint64_t lsn                # of its last record
    uint64_t position           # of its first record, or where a batch that came before was appended
    uint64_t sequence
    uint32_t id
    uint32_t count
    bint synced                 # it waits for the disk
    bint repeated               # it had been appended before


cdef struct Unacked:            # a delivery, by its tag
    uint64_t seq
    double at                   # when it was delivered, seconds
    uint32_t slot               # of its key, or NO_SLOT
    uint16_t count              # deliveries before it
    bint out                    # it awaits its acknowledgement


cdef class Codec:
    cdef readonly OutBuffer out
    cdef Appender appender
    cdef public RouteTable table        # of the user who is logged in; None before
    cdef public bytes user
    cdef public uint32_t frame_max
    cdef readonly Py_ssize_t want       # whole size of the incomplete frame in front; 0: not known, or it fits
    cdef public bint halted             # no further frame is looked at
    cdef public bint packs              # deliveries are compressed
    cdef object host
    cdef dict producers, consumers
    cdef Confirm* pending               # [pending_first, pending_end)
    cdef Py_ssize_t pending_first, pending_end, pending_room
    cdef uint64_t wait_written, wait_synced
    cdef readonly uint64_t published, delivered, acknowledged, confirmed

    cdef int handle(self, uint8_t kind, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1
    cdef int produce(self, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1
    cdef int check(self, const uint8_t* p, Py_ssize_t n, uint32_t count) noexcept
    cdef uint64_t append_all(self, Route route, bytes key, const uint8_t* p, uint32_t count) except 0
    cdef int push(self, uint32_t id, uint64_t sequence, uint32_t count, uint64_t position, uint64_t lsn,
                  bint synced, bint repeated) except -1
    cdef int pack_from(self, Py_ssize_t began) except -1
    cdef int settle(self, uint8_t kind, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1


cdef class Producer:
    cdef readonly uint32_t id
    cdef readonly bytes key             # the key block of its records
    cdef readonly bytes name            # under which the log knows it; empty: it has none
    cdef readonly uint32_t epoch


cdef class Pull:
    cdef readonly uint32_t request
    cdef readonly int64_t messages, size        # how much more it takes at most
    cdef readonly int64_t messages_min, size_min  # how much more it needs to be complete
    cdef readonly uint32_t got
    cdef public object timer


cdef class Consumer:
    cdef Codec codec
    cdef readonly uint32_t id
    cdef public object queue
    cdef readonly int priority
    cdef readonly bint auto             # what is delivered is settled at once
    cdef public bint attached
    cdef readonly int64_t messages, size        # credit: may be below 0 for bytes
    cdef readonly list pulls            # of Pull, the oldest first
    cdef readonly bint starving         # asked, and had no credit
    cdef readonly int64_t unacked_max
    cdef Cursor cursor                  # what its tags belong to
    cdef Unacked* ring                  # entry of tag = ring[tag & mask] for first <= tag < next
    cdef uint64_t mask
    cdef readonly uint64_t first, next
    cdef readonly int64_t unacked
    cdef readonly uint64_t delivered, acknowledged
    cdef readonly object host           # the session it belongs to
    cdef object room
    cdef public KeyShares keys          # None, or who is to be told of what is settled
    cdef readonly str name
    cdef readonly list ranges           # of slots that it wants

    cpdef Py_ssize_t credit(self) except -1
    cpdef Py_ssize_t deliver(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step) except -1
    cdef Py_ssize_t encode_run(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step, Py_ssize_t most,
                               int64_t size_most, uint32_t request, int64_t* used) except -1
    cdef int hold(self, Item* item, double now) except -1
    cdef void advance(self) noexcept
    cdef int done(self, Unacked* entry) except -1
