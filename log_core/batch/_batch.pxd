cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef packed struct RecordHeader:      # 32 bytes, little-endian; docs/reference/format.md
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

cdef packed struct BatchHeader:       # 96 bytes, little-endian; docs/reference/format.md
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
    uint32_t raw                      # of KIND_BLOCK: bytes of the batches in it; else 0

cdef enum:
    BATCH_HEADER = 96
    RECORD_HEADER = 32
    BATCH_ALIGN = 32
    BATCH_MAGIC = 1
    BATCH_RECORDS_MAX = 65536
    BATCH_BLOB_MAX = 1048576          # a larger blob only for a single larger record
    RECORD_BYTES_MAX = 0x40000000
    BLOCK_RAW_MAX = 4194304           # what a block may decode to, and so what a reader may be asked to hold

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
    F_SECTIONS = 1024                 # sections of AMQP 1.0 stand in a header that is nobody else's

cdef enum:                            # encodings
    ENC_NONE = 0
    ENC_AMQP091 = 1
    ENC_MQTT5 = 2
    ENC_NATIVE = 3
    ENC_EVENTS = 4                    # no message, but a block of events (subscriptions/cursor/_events.pyx)

cdef enum:
    EVENTS_LP = 0xFFFFFFFD            # the log partition of events, which is no vhost's

cdef enum:                            # kinds of batches
    KIND_LOST = 0                     # never on disk: stands for records that can no longer be read; settle and skip them
    KIND_RECORDS = 1
    KIND_STATE = 2
    KIND_NOTE = 3
    KIND_DELAYED = 4                  # records that wait for their time: in no feed, with deliver_at and pos
    KIND_BLOCK = 5                    # compressed batches of records (_blocks); only in sealed segments

cdef enum:                            # codecs of a blob
    CODEC_NONE = 0
    CODEC_ZSTD = 2                    # of KIND_BLOCK, and only of it

cdef enum:
    ATTR_MORE = 1                     # the next batch belongs to the same atomic unit
    ATTR_AMQP091 = 2                  # all of its records have that encoding
    ATTR_LASTING = 4                  # none of its records has a time to live

cdef enum:                            # optional columns
    COL_DELIVER_AT = 1
    COL_KEY_HASH = 2
    COL_POS = 4
    COL_EXPIRY = 8
    COL_ORIGIN = 16


cdef enum:
    SLAB_BYTES = 1048576 + 65536      # a full blob and some room, so that a batch of 1 MiB fits in one


@cython.final
cdef class Slab:                      # memory that several batches share; goes back to a pool with the last of them
    cdef uint8_t* data
    cdef size_t size
    cdef size_t used
    cdef object owner                 # keeps `data` alive when it is not ours

cdef Slab new_slab(size_t size)      # at least `size` bytes; what is at most SLAB_BYTES has SLAB_BYTES and is recycled


@cython.final
cdef class Batch:                     # a closed batch: immutable
    cdef BatchHeader* header
    cdef RecordHeader* headers
    cdef const uint8_t* blob
    cdef uint32_t* origins            # NULL, or `count` entries
    cdef const int64_t* dues          # of KIND_DELAYED: `count` entries, ms since the epoch; else NULL
    cdef const uint64_t* places       # of KIND_DELAYED: the positions they were scheduled at; else NULL
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
# The same without a look at its blob: what its head says is as it was written.
cdef int check_head(const uint8_t* p, size_t available, Found* found) noexcept nogil
cdef Batch view_batch(const uint8_t* p, Slab slab)      # of bytes that check_batch found valid
# Of ATTR_AMQP091 and ATTR_LASTING those that hold for all of these records.
cdef uint16_t common_attrs(const RecordHeader* record, uint32_t count) noexcept nogil
# Whether all records of a valid batch are AMQP's and, unless `timeless`, have no time to live. Asks the records of a
# batch that does not say so itself: older ones do not.
cdef bint is_plain(const BatchHeader* header, bint timeless) noexcept nogil
cdef Batch batch_of(BatchHeader* header, Slab head_slab, const uint8_t* blob, Slab blob_slab)

cdef inline size_t padded(size_t n) noexcept nogil:
    return (n + BATCH_ALIGN - 1) & ~<size_t>(BATCH_ALIGN - 1)
