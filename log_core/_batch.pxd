cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from penstock.log_core._feed cimport Feed

cdef packed struct RecordHeader:      # 32 bytes, little-endian; docs/format.md
    uint32_t off                      # place in the blob: key block, properties block, body
    uint32_t size
    uint32_t props                    # length of the properties block
    uint32_t feed                     # feed id; with F_LIST an index into the feed lists
    uint32_t ts                       # ms after the batch's base_ts
    uint32_t ttl                      # ms until expiry; 0 = never
    uint16_t key                      # length of the key block
    uint16_t flags
    uint8_t priority
    uint8_t enc                       # encoding of the key block and of the properties block
    uint16_t reserved

cdef packed struct BatchHeader:       # 96 bytes, little-endian; docs/format.md
    uint32_t len
    uint32_t head_crc
    uint32_t blob_off
    uint32_t blob_crc
    uint8_t magic
    uint8_t kind
    uint8_t codec
    uint8_t cols
    uint16_t attrs
    uint16_t producer_epoch
    uint32_t lp
    uint32_t shard_epoch
    uint64_t base_lsn
    uint64_t base_pos
    uint64_t synced_lsn
    int64_t base_ts
    int64_t max_ts
    uint64_t producer_id
    uint32_t base_seq
    uint32_t count
    uint32_t blob_raw
    uint32_t reserved

cdef enum:
    BATCH_HEADER = 96
    RECORD_HEADER = 32
    BATCH_ALIGN = 32
    BATCH_MAGIC = 1
    BATCH_RECORDS_MAX = 65536
    BATCH_BLOB_MAX = 1048576          # a larger blob only for a single larger record
    RECORD_BYTES_MAX = 0x40000000

cdef enum:                            # record flags
    F_LIST = 1
    F_PERSISTENT = 2
    F_REF = 4
    F_DELAYED = 8
    F_HALF = 16
    F_RETAIN = 32
    F_TOMBSTONE = 64
    F_CHUNK = 128
    F_UNROUTED = 256
    F_EXACTLY_ONCE = 512

cdef enum:                            # encodings
    ENC_NONE = 0
    ENC_AMQP091 = 1
    ENC_MQTT5 = 2
    ENC_NATIVE = 3

cdef enum:                            # kinds of batches
    KIND_LOST = 0                     # never on disk: stands for records that can no longer be read; settle and skip them
    KIND_RECORDS = 1
    KIND_STATE = 2
    KIND_NOTE = 3

cdef enum:
    ATTR_MORE = 1                     # the next batch belongs to the same atomic unit

cdef enum:                            # optional columns
    COL_DELIVER_AT = 1
    COL_KEY_HASH = 2
    COL_POS = 4
    COL_EXPIRY = 8
    COL_ORIGIN = 16


@cython.final
cdef class Slab:                      # memory that several batches share; goes back to a pool with the last of them
    cdef uint8_t* data
    cdef size_t size
    cdef size_t used
    cdef object owner                 # keeps `data` alive when it is not ours

cdef Slab new_slab(size_t size)


@cython.final
cdef class Batch:                     # a closed batch: immutable
    cdef BatchHeader* header
    cdef RecordHeader* headers
    cdef const uint8_t* blob
    cdef uint32_t* origins            # NULL, or `count` entries
    cdef const uint32_t* lists        # the feed lists
    cdef uint32_t lists_size          # in u32
    cdef readonly uint32_t count
    cdef readonly uint32_t lp, kind
    cdef readonly uint64_t base_lsn
    cdef readonly int64_t base_ts     # ms since epoch
    cdef readonly size_t nbytes       # on disk, padding included
    cdef size_t head_size             # header block
    cdef Slab head_slab, blob_slab
    cdef int feeds_of(self, uint32_t i, const uint32_t** ids) noexcept

# Takes p[0, available) apart. NULL reason and a positive length when a valid batch lies there;
# 0 when there is none (a zero length); -1 and a reason when what is there is no valid batch.
cdef struct Found:
    size_t length
    const char* reason
    uint32_t crc_expected, crc_found
cdef size_t columns_size(uint8_t cols, size_t count) noexcept nogil
cdef int check_batch(const uint8_t* p, size_t available, Found* found) noexcept nogil
cdef Batch view_batch(const uint8_t* p, Slab slab)      # of bytes that check_batch found valid


@cython.final
cdef class Target:                    # where a route's records go: an immutable set of feeds
    cdef readonly tuple feeds
    cdef readonly bint durable        # some member of some feed is durable
    cdef uint32_t count
    cdef uint64_t list_batch          # the batch (its Appender.serial) whose feed lists hold this one's at list_at
    cdef uint32_t list_at


@cython.final
cdef class Appender:                  # the open batch of this tick
    cdef readonly uint64_t next_lsn
    cdef readonly uint64_t segment_base     # base LSN of the WAL segment that takes the next flush
    cdef readonly uint64_t appended_bytes   # of closed batches, ever
    cdef public uint64_t synced_lsn         # written into each batch header
    cdef public uint32_t epoch
    cdef public object failure              # an exception: every append raises it
    cdef object clock_ms
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
    cdef int close_batch(self) except -1
    cdef int64_t now(self) except -1
