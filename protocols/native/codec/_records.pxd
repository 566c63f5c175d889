"""A client's side of the native protocol: what the kernels of a consumer's inbox and of a producer's batches call."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.protocols.properties._tables cimport store32

cdef enum:
    RECORD_HEAD = 8                 # of a record that is sent

cdef packed struct StoredHead:      # of a batch, docs/reference/format.md
    uint32_t len, head_crc, blob_off, blob_crc
    uint8_t magic, kind, codec, cols
    uint16_t attrs, producer_epoch
    uint32_t lp, shard_epoch
    uint64_t base_lsn, base_pos, synced_lsn
    int64_t base_ts, max_ts
    uint64_t producer_id
    uint32_t base_seq, count, blob_raw, raw

cdef packed struct StoredRecord:
    uint32_t off, size, props, feed, ts, ttl
    uint16_t key, flags
    uint8_t priority, enc
    uint16_t reserved

cdef struct Spot:                   # one record in a frame
    uint64_t position, tag
    int64_t timestamp_ms
    uint32_t flags, key_size, props_size, body_size
    const uint8_t* key              # its properties and its body follow


cdef inline uint64_t spot_size(const Spot* spot) noexcept nogil:
    """Its size as credit counts it."""
    return 28 + <uint64_t>spot.key_size + spot.props_size + spot.body_size


cdef inline uint8_t* put_record(uint8_t* p, bytes block, bytes body) noexcept:
    """Write a record to be sent, of at most 4 GiB, to where there is room for it; where the next one goes."""
    cdef Py_ssize_t block_size = PyBytes_GET_SIZE(block), body_size = PyBytes_GET_SIZE(body)
    store32(p, <uint32_t>block_size)
    store32(p + 4, <uint32_t>body_size)
    memcpy(p + RECORD_HEAD, PyBytes_AS_STRING(block), block_size)
    memcpy(p + RECORD_HEAD + block_size, PyBytes_AS_STRING(body), body_size)
    return p + RECORD_HEAD + block_size + body_size


cdef class MessageId:
    cdef readonly uint64_t position
    cdef readonly int64_t due_ms
    cdef readonly object routed


cdef class Record:
    cdef readonly uint64_t position
    cdef readonly int64_t timestamp_ms
    cdef readonly uint64_t tag
    cdef readonly bytes body
    cdef readonly bytes key_block
    cdef readonly bytes block
    cdef readonly int given_back
    cdef readonly bint redelivered
    cdef public object source


cdef class Chunk:
    """The records of one frame, checked as a whole, each made when it is taken."""

    cdef object owner               # of what `p` points into
    cdef const uint8_t* p           # the next record; of stored ones its batch
    cdef uint32_t index             # of stored ones the next record in its batch
    cdef bint stored
    cdef uint64_t tag               # of the next record
    cdef Py_ssize_t left
    cdef bytes key_block, block     # the last record's

    @staticmethod
    cdef Chunk of_delivery(object owner, const uint8_t* p, Py_ssize_t payload_size, uint32_t* pull)
    @staticmethod
    cdef Chunk of_stored(object owner, const uint8_t* p, Py_ssize_t payload_size)
    cdef void look(self, Spot* spot) noexcept
    cdef Record next(self, type kind, object source, uint64_t* size)
    cdef Chunk copied(self)
