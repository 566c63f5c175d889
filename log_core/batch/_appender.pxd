cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport BatchHeader, RecordHeader, Slab
from penstock.log_core.state._rows cimport RowLog


@cython.final
cdef class Target:                    # where a route's records go: an immutable set of feeds
    cdef readonly tuple feeds
    cdef readonly bint durable        # some member of some feed is durable
    cdef uint32_t count
    cdef uint64_t list_batch          # the batch (its Appender.serial) whose feed lists hold this one's at list_at
    cdef uint32_t list_at


@cython.final
cdef class Appender(RowLog):          # the open batch of this tick
    cdef readonly uint64_t next_lsn
    cdef readonly uint64_t segment_base     # base LSN of the WAL segment that takes the next flush
    cdef readonly uint64_t appended_bytes   # of closed batches, ever
    cdef public uint64_t state_lsn          # the last record that is no message for queues alone: state, delayed, units
    cdef public uint64_t synced_lsn         # written into each batch header
    cdef public uint32_t epoch
    cdef public object failure              # an exception: every append raises it
    cdef public bint keeps_origins          # somebody wants no messages of its own: records say who sent them
    cdef object clock_ms                    # None = the machine's clock
    cdef int64_t tick_ms                    # 0 = not asked yet in this tick
    cdef int64_t last_ms
    cdef list closed, dirty, segment_feeds
    cdef Slab blob_shared, head_shared      # the slabs that batches are cut from
    # the open batch; limits of 0 = none is open
    cdef Slab blob_slab, head_slab
    cdef BatchHeader* header
    cdef RecordHeader* headers
    cdef uint8_t* blob
    cdef size_t blob_size, blob_limit
    cdef uint32_t count, count_limit
    cdef uint32_t lp, kind
    cdef uint64_t base_lsn, serial
    cdef uint32_t* lists
    cdef uint32_t lists_size, lists_capacity
    cdef uint32_t* origins
    cdef uint32_t origins_capacity
    cdef bint has_origins
    cdef int64_t* dues                      # of an open KIND_DELAYED batch
    cdef uint64_t* places
    cdef uint32_t delayed_capacity
    cdef int unit                           # depth of atomic units
    cdef Py_ssize_t unit_first              # len(closed) when the unit began

    cdef uint64_t append(self, uint32_t lp, Target target, const uint8_t* key, uint16_t key_len,
                         const uint8_t* props, uint32_t props_len, const uint8_t* body, uint32_t body_len,
                         uint16_t flags, uint8_t priority, uint8_t enc, uint32_t ttl_ms, uint32_t origin) except 0
    cdef RecordHeader* place(self, uint32_t lp, uint32_t kind, const uint8_t* key, size_t key_len,
                             const uint8_t* props, size_t props_len, const uint8_t* body, size_t body_len) except NULL
    cdef int make_room(self, uint32_t lp, uint32_t kind, size_t size) except -1
    cdef uint32_t list_of(self, Target target) except 0xffffffff
    cdef int set_origin(self, uint32_t origin) except -1
    cdef int set_delay(self, int64_t due, uint64_t place) except -1
    cdef int close_batch(self) except -1
    cdef int64_t now(self) except -1
    cpdef list take_closed(self)
    cpdef list take_dirty(self)
