cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    ENTRY_TRANSIENT = 0x80000000   # high bit of an entry: the record is not PERSISTENT
    ENTRY_RECORD = 0x7fffffff      # the rest: record number in the segment = LSN - base

cdef struct Chunk:                 # the part of a feed that lies in one WAL segment
    uint64_t base                  # base LSN of the segment
    uint64_t first                 # index in the feed of its first entry
    uint64_t nbytes                # of the records that were pushed, not of those `add_stored` knows of
    uint32_t* entries              # NULL: not in memory, ask for it with Log.load_feed
    uint32_t count                 # entries of the feed in this segment
    uint32_t capacity              # of `entries`; 0 = not in memory
    uint32_t first_record          # record numbers of its first and last entry (valid when count > 0)
    uint32_t last_record

@cython.final
cdef class Feed:
    cdef readonly uint32_t id
    cdef uint32_t mask             # of what is pushed: without ENTRY_TRANSIENT when everything survives a restart
    cdef readonly uint64_t start   # index of the first entry still kept
    cdef readonly uint64_t end     # number of entries ever pushed
    cdef readonly uint64_t persistent_end   # index after the last entry of a PERSISTENT record
    cdef public dict waiters       # keys: objects with .wake(), called by the tick after the write
    cdef public uint32_t users     # memberships of queues; a reader of another kind counts none
    cdef public bint dirty         # pushed since the last Unwritten.take_dirty
    cdef public bint dropped
    cdef public bint is_history    # its entries lie in a file of its own
    cdef object store              # loads chunks: .load_chunk(feed, base) -> bytes of u32 entries
    cdef Chunk* chunks
    cdef uint32_t chunk_count, chunk_capacity
    cdef Chunk* last               # &chunks[chunk_count - 1], or NULL

    # Appends the record number `entry` (with ENTRY_TRANSIENT), of `size` bytes, of the segment at `base`; 1 if that
    # made a new chunk.
    cdef int push(self, uint64_t base, uint32_t entry, size_t size) except -1
    cdef int push_slowly(self, uint64_t base, uint32_t entry, size_t size) except -1
    cdef int add_stored(self, uint64_t base, uint32_t count, uint32_t first_record, uint32_t last_record) except -1
    cdef Chunk* chunk_of(self, uint64_t index) noexcept
    # LSN of entry `index`, start <= index < end; 0 when its chunk is not in memory.
    cdef uint64_t position(self, uint64_t index) noexcept
    # The same; of a chunk that has every record of a range, also when it is not in memory.
    cdef uint64_t position_known(self, uint64_t index) noexcept
    # Whether the record of entry `index` is not PERSISTENT; 0 when its chunk is not in memory.
    cdef bint is_transient(self, uint64_t index) noexcept
    # Positions of entries [index, index + n) into `out`; returns how many, stopping at `end` and at a chunk that is not in memory.
    cdef Py_ssize_t copy(self, uint64_t index, Py_ssize_t n, uint64_t* out) noexcept
    # The first chunk whose last position is >= `position`, or NULL.
    cdef Chunk* chunk_from(self, uint64_t position) noexcept
    cpdef uint64_t index_of(self, uint64_t position) except? 0xffffffffffffffff
    cdef Chunk* chunk_at(self, uint64_t base) noexcept
    cpdef size_t drop_before(self, uint64_t base)
    cpdef size_t spill(self, uint64_t base)
    cpdef size_t restore_chunk(self, uint64_t base, const uint8_t[::1] entries)
