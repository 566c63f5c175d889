"""Publisher confirms of one channel. The words are in _confirms.pyx."""

from libc.stdint cimport uint16_t, uint64_t

from penstock.protocols.net.outbuffer cimport OutBuffer


cdef class Confirms:
    cdef readonly uint16_t number           # of the channel
    cdef readonly OutBuffer out
    cdef readonly bint confirming
    cdef bint awaiting                      # stands in its codec's list of those with unconfirmed publishes
    cdef readonly uint64_t published_seq    # of the last publish
    cdef readonly uint64_t confirmed_seq    # every publish up to here is confirmed
    # entry of seq = pending[seq & pending_mask] = lsn << 1 | needs a sync, or REFUSAL
    cdef uint64_t* pending
    cdef uint64_t pending_mask

    cpdef bint confirm(self, uint64_t written, uint64_t synced) except -1
    cdef int expect(self, uint64_t lsn, bint sync) except -1
    cdef void refuse_last(self) noexcept
    cdef int acknowledge(self, uint64_t seq) except -1
