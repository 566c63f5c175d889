"""Runs of batches out of the page cache. The words are in _resident.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport BatchHeader
from penstock.log_core.feeds._feed cimport Feed
from penstock.log_core.segments._segment_file cimport SegmentFile, Stretch


cdef struct Run:
    uint32_t count                          # records of its batches
    uint64_t blobs                          # bytes of their keys, properties and bodies


# Count a batch that is to be handed on whole, `small` of those before it being small: False when its records had
# better be taken out of it, for too many are. Records stored one by one are not sent in batches.
cdef bint is_worth(const BatchHeader* head, int* small) noexcept


cdef class Resident:
    cdef list files                         # of SegmentFile
    cdef object open_behind
    cdef readonly uint64_t runs, bytes      # read so far
    cdef readonly uint64_t sent             # bytes that went out without being read
    cdef readonly uint64_t brought          # times that something was missing ahead of a reader

    cdef SegmentFile find(self, uint64_t lsn)
    cdef int begin(self, SegmentFile file) except -1


cdef class Place:                           # where one reader is
    cdef SegmentFile file
    cdef uint64_t lsn, offset               # the batch at `offset` begins with `lsn`, or before it
    cdef BatchHeader head                   # of the batch at `head_at`; 0: none was read yet
    cdef uint64_t head_at
    cdef uint64_t behind                    # up to this offset the page cache was looked at
    cdef uint64_t whole_from, whole_to      # it had these bytes of the file
    cdef int64_t whole_at                   # when that was asked, in ns

    # Whether `lsn` comes next to who reads on in files, and lies in one that is open.
    cdef bint goes_on(self, Resident resident, uint64_t lsn)
    cdef bint has_pages(self, uint64_t offset, size_t size) noexcept

    cdef bint read_head(self, uint64_t offset) noexcept
    cdef int look_ahead(self, Resident resident, uint64_t offset) except -1
    # Go to the batch that begins with `lsn`, which is entry `index` of `feed`: its size when it may be the first one
    # of a run; 0: it is none, or not in the page cache.
    cdef size_t seek(self, Resident resident, uint64_t lsn, Feed feed, uint64_t index, uint64_t limit) except? 0
    # As many whole batches as fit into `capacity` bytes, from the one that `seek` found on; None: they are to be read, for their heads
    # do not tell enough, or the page cache does not have them. `small` as for is_worth.
    cdef Stretch find_run(self, Resident resident, Feed feed, uint64_t index, uint64_t limit, bint timeless, size_t capacity,
                          int* small, Run* run)
    # Read as many: bytes, 0 for none.
    cdef size_t read_run(self, Resident resident, Feed feed, uint64_t index, uint64_t limit, bint timeless, uint8_t* into,
                         size_t capacity, int* small, Run* run) noexcept
