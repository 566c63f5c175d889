# cython: auto_pickle=False
"""A client's side of the native protocol: batches made in one go, deliveries taken apart in one go.

The layouts stand in `_producer.pyx` and `_consumer.pyx`. Knows nothing of the gateway: the SDK loads this kernel and no other part.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.protocols._tables cimport load16, load32, load64, store32, store64

cdef extern from "crc32c.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_update(uint32_t crc, const uint8_t* p, size_t n)

cdef extern from *:
    """
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "stored batches are used in place");
    """

crc32c_prepare()

cdef packed struct StoredHead:      # of a batch, docs/format.md
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

cdef enum:
    STORED_HEAD = 24
    HEAD = 12
    BATCH_HEAD = 16
    RECORD_HEAD = 8
    DELIVERED_HEAD = 28
    PRODUCE = 0x10


cdef Py_ssize_t records_size(list bodies, list props, Py_ssize_t same) except -1:
    cdef Py_ssize_t n = len(bodies), i, size = n * RECORD_HEAD
    if props is not None and len(props) != n:
        raise ValueError(f"{n} bodies and {len(props)} properties")
    for i in range(n):
        size += PyBytes_GET_SIZE(<bytes?>bodies[i])
        size += same if props is None else PyBytes_GET_SIZE(<bytes?>props[i])
    return size


cdef void put_records(uint8_t* p, list bodies, list props, bytes same):
    cdef Py_ssize_t n = len(bodies), i, props_size, body_size
    cdef bytes one = same
    for i in range(n):
        if props is not None:
            one = <bytes>props[i]
        props_size = PyBytes_GET_SIZE(one)
        body_size = PyBytes_GET_SIZE(<bytes>bodies[i])
        store32(p, <uint32_t>props_size)
        store32(p + 4, <uint32_t>body_size)
        memcpy(p + RECORD_HEAD, PyBytes_AS_STRING(one), props_size)
        memcpy(p + RECORD_HEAD + props_size, PyBytes_AS_STRING(<bytes>bodies[i]), body_size)
        p += RECORD_HEAD + props_size + body_size


def encode_records(list bodies not None, list props, bytes same not None):
    cdef Py_ssize_t size = records_size(bodies, props, PyBytes_GET_SIZE(same))
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size)
    put_records(<uint8_t*>PyBytes_AS_STRING(made), bodies, props, same)
    return made


def encode_produce(uint32_t handle, uint64_t sequence, uint8_t acks, list bodies not None, list props,
                   bytes same not None):
    cdef Py_ssize_t size = records_size(bodies, props, PyBytes_GET_SIZE(same))
    cdef bytes made = PyBytes_FromStringAndSize(NULL, HEAD + BATCH_HEAD + size)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(made)
    if size > 0x7FFFFFFF:
        raise ValueError(f"a batch of {size} bytes; a frame has at most 2 GiB")
    store32(p, <uint32_t>(HEAD - 4 + BATCH_HEAD + size))
    p[4] = PRODUCE
    p[5] = p[6] = p[7] = 0
    store32(p + 8, handle)
    p += HEAD
    store64(p, sequence)
    p[8] = acks
    p[9] = p[10] = p[11] = 0
    store32(p + 12, <uint32_t>len(bodies))
    put_records(p + BATCH_HEAD, bodies, props, same)
    return made


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


def decode_delivery(bytes payload not None, type kind not None, object source):
    """(first tag, pull, records) of the payload of a DELIVER frame."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(payload)
    cdef const uint8_t* end = p + PyBytes_GET_SIZE(payload)
    cdef uint64_t first
    cdef uint32_t count, pull, i, props_size, body_size
    cdef uint16_t key_size, flags
    cdef list records = []
    cdef Record record
    cdef bytes key_block = b"", block = b""
    if not issubclass(kind, Record):
        raise TypeError("kind is a class of records")
    if end - p < 16:
        raise ValueError("a delivery that is cut short")
    first = load64(p)
    count = load32(p + 8)
    pull = load32(p + 12)
    p += 16
    for i in range(count):
        if end - p < DELIVERED_HEAD:
            raise ValueError("a delivery that is cut short")
        key_size = load16(p + 16)
        flags = load16(p + 18)
        props_size = load32(p + 20)
        body_size = load32(p + 24)
        if <uint64_t>key_size + props_size + body_size > <uint64_t>(end - p - DELIVERED_HEAD):
            raise ValueError("a delivery that is cut short")
        record = <Record>kind.__new__(kind)
        record.position = load64(p)
        record.timestamp_ms = <int64_t>load64(p + 8)
        record.tag = first + i
        record.given_back = flags & 0x7FFF
        record.redelivered = flags >> 15
        p += DELIVERED_HEAD
        # Neighbours mostly have the same keys and properties: then they share the objects.
        if key_size != PyBytes_GET_SIZE(key_block) or p[:key_size] != key_block:
            key_block = p[:key_size]
        record.key_block = key_block
        p += key_size
        if props_size != PyBytes_GET_SIZE(block) or p[:props_size] != block:
            block = p[:props_size]
        record.block = block
        p += props_size
        record.body = p[:body_size]
        p += body_size
        record.source = source
        records.append(record)
    if p != end:
        raise ValueError("a delivery with bytes left over")
    return first, pull, records


def decode_stored(bytes payload not None, type kind not None, object source):
    """The records of the payload of a DELIVER_STORED frame."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(payload)
    cdef const uint8_t* end = p + PyBytes_GET_SIZE(payload)
    cdef uint64_t tag, position, end_position
    cdef list records = []
    cdef Blocks blocks = Blocks()
    if not issubclass(kind, Record):
        raise TypeError("kind is a class of records")
    if end - p < STORED_HEAD:
        raise ValueError("a stored batch that is cut short")
    tag = load64(p)
    position = load64(p + 8)
    end_position = position + load32(p + 16)
    p += STORED_HEAD
    while p < end:
        p = check_stored(p, end, position)
        position += (<const StoredHead*>p).count
        if position > end_position:
            break
        take_stored(<const StoredHead*>p, tag, kind, source, blocks, records)
        tag += (<const StoredHead*>p).count
        p += (<const StoredHead*>p).len
    if position != end_position:
        raise ValueError("a stored batch that is not of the delivery it came in")
    return records


cdef class Blocks:              # the last record's: neighbours mostly have the same, then they share the objects
    cdef bytes key, properties

    def __cinit__(self):
        self.key = self.properties = b""


cdef const uint8_t* check_stored(const uint8_t* p, const uint8_t* end, uint64_t position) except NULL:
    """`p`, where a valid batch lies that begins with the position."""
    cdef const StoredHead* head = <const StoredHead*>p
    if end - p < <Py_ssize_t>sizeof(StoredHead) or head.len < sizeof(StoredHead) or head.len > <size_t>(end - p):
        raise ValueError("a stored batch that is cut short")
    if head.magic != 1 or head.kind != 1 or head.codec:
        raise ValueError("a stored batch of another kind")
    if head.base_lsn != position:
        raise ValueError("a stored batch that is not the one it was sent as")
    if (sizeof(StoredHead) + <uint64_t>head.count * sizeof(StoredRecord) > head.blob_off
            or <uint64_t>head.blob_off + head.blob_raw > head.len):
        raise ValueError("a stored batch that is larger than it says")
    if (crc32c_update(0, p + 8, head.blob_off - 8) != head.head_crc
            or crc32c_update(0, p + head.blob_off, head.blob_raw) != head.blob_crc):
        raise ValueError("a stored batch that was damaged on its way: its checksum does not fit")
    return p


cdef int take_stored(const StoredHead* head, uint64_t tag, type kind, object source, Blocks blocks,
                     list records) except -1:
    """Append the records of a valid batch."""
    cdef const StoredRecord* stored = <const StoredRecord*>(<const uint8_t*>head + sizeof(StoredHead))
    cdef const uint8_t* at
    cdef uint32_t i
    cdef Py_ssize_t key_size, props_size
    cdef Record record
    for i in range(head.count):
        if (<uint64_t>stored.off + stored.size > head.blob_raw
                or <uint64_t>stored.key + stored.props > stored.size):
            raise ValueError("a stored batch with a record outside of it")
        at = <const uint8_t*>head + head.blob_off + stored.off
        key_size = stored.key
        props_size = stored.props
        record = <Record>kind.__new__(kind)
        record.position = head.base_lsn + i
        record.timestamp_ms = head.base_ts + stored.ts
        record.tag = tag + i
        if key_size != PyBytes_GET_SIZE(blocks.key) or at[:key_size] != blocks.key:
            blocks.key = at[:key_size]
        record.key_block = blocks.key
        at += key_size
        if props_size != PyBytes_GET_SIZE(blocks.properties) or at[:props_size] != blocks.properties:
            blocks.properties = at[:props_size]
        record.block = blocks.properties
        record.body = at[props_size:stored.size - stored.key]
        record.source = source
        records.append(record)
        stored += 1
    return 0
