from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport BatchHeader, RecordHeader

cdef struct Output:                  # bytes that grow
    uint8_t* data
    size_t size, room

cdef class Needs:                    # which records of one segment somebody still needs
    cdef readonly uint64_t base, end
    cdef uint8_t* bits               # by record number
    cdef uint32_t* first             # by feed id: its records from this number on ...
    cdef uint32_t* last              # ... to before this one are needed
    cdef uint8_t* retention_feeds            # by feed id: it alone says how long what is in it is kept
    cdef uint32_t feeds              # entries of `first`, `last` and `retention_feeds`
    cdef set partitions              # all of whose records are needed
    cpdef int need(self, uint64_t position) except -1
    cdef int know(self, uint32_t feed) except -1
    cpdef int need_feed(self, uint32_t feed, uint64_t from_pos, uint64_t to_pos) except -1
    cdef bint in_retention_feed(self, const RecordHeader* record, const uint32_t* lists) noexcept nogil
    cdef bint needs_feed(self, uint32_t feed, uint32_t record) noexcept nogil
    cdef bint is_needed(self, const RecordHeader* record, uint64_t lsn, const uint32_t* lists) noexcept nogil
    cdef bint stays(self, const BatchHeader* header, const RecordHeader* record, uint32_t number,
                    const uint32_t* lists, bint whole) noexcept nogil
    cdef size_t staying_of(self, const BatchHeader* header, bint whole) noexcept nogil
    cdef int take(self, const BatchHeader* header, Output* out, uint64_t* kept, bint whole) noexcept nogil
