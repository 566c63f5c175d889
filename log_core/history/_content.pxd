cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from penstock.log_core.batch._batch cimport BatchHeader, RecordHeader

cdef struct Needle:
    const uint8_t* data
    size_t size
    uint32_t clause                  # needles of one clause are alternatives, and lie side by side
    bint in_body                     # else in the properties


@cython.final
cdef class Content:
    cdef int64_t since, until        # ms since the epoch, [since, until)
    cdef uint8_t* in_feeds           # by feed id; NULL: whatever feeds
    cdef uint32_t feeds              # entries of `in_feeds`
    cdef Needle* needles
    cdef size_t count
    cdef list owned                  # the bytes that the needles point into
    cdef bint may_hold(self, const BatchHeader* header) noexcept nogil
    cdef bint matches(self, const BatchHeader* header, const RecordHeader* record, const uint32_t* lists,
                      const uint8_t* blob) noexcept nogil
