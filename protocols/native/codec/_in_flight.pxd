"""The unsettled messages of a consumer: its deliveries that are out, by tag. The words are in _held.pyx."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t


cdef struct Unacked:            # a delivery, by its tag
    uint64_t seq                # in its cursor; once it is settled: the tag from which on something may be out
    double at                   # when it was delivered, seconds
    uint16_t count              # deliveries before it
    bint out                    # it awaits its acknowledgement


cdef struct Apart:              # one that is set aside; once it is settled, held.seq is an index
    uint64_t tag
    Unacked held


cdef class Held:
    cdef Unacked* ring          # entry of tag = ring[tag & mask] for first <= tag < next
    cdef uint64_t mask
    cdef readonly uint64_t first, next
    cdef readonly int64_t unacked
    cdef Apart* aside           # older ones, by tag
    cdef Py_ssize_t aside_n, aside_capacity
    cdef Py_ssize_t found       # where aside the last one was that was found there
    cdef readonly int64_t unacked_aside

    cdef int reserve(self, uint64_t more) except -1
    cdef Unacked* add(self) except NULL
    cdef void skip(self, uint64_t count) noexcept
    cdef void add_all(self, uint64_t seq, uint32_t count, double now) noexcept
    cdef Unacked* find(self, uint64_t* tag, uint64_t behind) noexcept
    # Those that are out in a row from the first one on that is, with consecutive seqs: how many are not any more, from
    # which seq on; `tag` goes behind them. 0: none is before `behind`.
    cdef uint64_t settle_run(self, uint64_t* tag, uint64_t behind, uint64_t* seq) noexcept
    cdef void settled(self, Unacked* entry, uint64_t tag) noexcept
    cdef void forget(self) noexcept
    cdef int set_aside(self) except -1
    cdef void advance(self) noexcept
