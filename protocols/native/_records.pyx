# cython: auto_pickle=False
"""A client's side of the native protocol: batches made in one go, deliveries taken apart in one go.

The layouts stand in `_producer.pyx` and `_consumer.pyx`. Knows nothing of the gateway: the SDK loads this kernel and no other part.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.protocols._tables cimport load16, load32, load64, store32, store64

cdef enum:
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
