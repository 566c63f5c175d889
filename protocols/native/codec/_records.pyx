# cython: auto_pickle=False
"""A client's side of the native protocol: records made in one go, deliveries taken apart in one go.

The layouts stand in `_producer.pyx` and `_consumer.pyx`. Knows nothing of the gateway: the SDK loads this kernel and no other part.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport Py_EQ, Py_GT, Py_LE, Py_LT, Py_NE, PyObject, PyTypeObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from penstock.protocols.properties._tables cimport load16, load32, load64

cdef extern from "crc32c.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_update(uint32_t crc, const uint8_t* p, size_t n)

cdef extern from *:
    """
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "stored batches are used in place");
    """

crc32c_prepare()

cdef enum:
    STORED_HEAD = 24
    DELIVERED_HEAD = 28


def encode_records(list bodies not None, list props not None):
    cdef Py_ssize_t n = len(bodies), i, size = n * RECORD_HEAD
    cdef bytes made
    cdef uint8_t* p
    if len(props) != n:
        raise ValueError(f"{n} bodies and {len(props)} properties")
    for i in range(n):
        size += PyBytes_GET_SIZE(<bytes?>bodies[i]) + PyBytes_GET_SIZE(<bytes?>props[i])
    made = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t*>PyBytes_AS_STRING(made)
    for i in range(n):
        p = put_record(p, <bytes>props[i], <bytes>bodies[i])
    return made


cdef class MessageId:
    def __cinit__(self, uint64_t position, int64_t due_ms=0, routed=None):
        self.position = position
        self.due_ms = due_ms
        self.routed = routed

    def __richcmp__(self, other, int op):
        if not isinstance(other, MessageId):
            return NotImplemented
        cdef MessageId one = self, two = other
        cdef int order = (one.position > two.position) - (one.position < two.position)
        if not order:
            order = (one.due_ms > two.due_ms) - (one.due_ms < two.due_ms)
        if op == Py_EQ:
            return order == 0
        if op == Py_NE:
            return order != 0
        if op == Py_LT:
            return order < 0
        if op == Py_LE:
            return order <= 0
        if op == Py_GT:
            return order > 0
        return order >= 0

    def __hash__(self):
        return hash((self.position, self.due_ms))

    def __reduce__(self):
        return MessageId, (self.position, self.due_ms, self.routed)

    def __str__(self):
        return f"pos:{self.position}"

    def __repr__(self):
        return f"MessageId(position={self.position}, due_ms={self.due_ms})"


cdef tuple NOTHING = ()


cdef class Record:
    """The words are in _records.pyi."""


cdef class Chunk:
    @staticmethod
    cdef Chunk of_delivery(object owner, const uint8_t* p, Py_ssize_t payload_size, uint32_t* pull):
        """Of the payload of a DELIVER frame, whose pull is told. Raises ValueError."""
        cdef const uint8_t* end = p + payload_size
        cdef uint64_t size
        cdef Py_ssize_t i
        cdef Chunk self = Chunk.__new__(Chunk)
        if end - p < 16:
            raise ValueError("a delivery that is cut short")
        self.owner = owner
        self.tag = load64(p)
        self.left = load32(p + 8)
        pull[0] = load32(p + 12)
        self.p = p = p + 16
        for i in range(self.left):
            if end - p < DELIVERED_HEAD:
                raise ValueError("a delivery that is cut short")
            size = <uint64_t>load16(p + 16) + load32(p + 20) + load32(p + 24)
            if size > <uint64_t>(end - p - DELIVERED_HEAD):
                raise ValueError("a delivery that is cut short")
            p += DELIVERED_HEAD + size
        if p != end:
            raise ValueError("a delivery with bytes left over")
        return self

    @staticmethod
    cdef Chunk of_stored(object owner, const uint8_t* p, Py_ssize_t payload_size):
        """Of the payload of a DELIVER_STORED frame. Raises ValueError."""
        cdef const uint8_t* end = p + payload_size
        cdef uint64_t position, end_position
        cdef Chunk self = Chunk.__new__(Chunk)
        if end - p < STORED_HEAD:
            raise ValueError("a stored batch that is cut short")
        self.owner = owner
        self.stored = True
        self.tag = load64(p)
        self.left = load32(p + 16)
        position = load64(p + 8)
        end_position = position + <uint64_t>self.left
        self.p = p = p + STORED_HEAD
        while p < end:
            check_stored(p, end, position)
            position += (<const StoredHead*>p).count
            if position > end_position:
                break
            p += (<const StoredHead*>p).len
        if position != end_position:
            raise ValueError("a stored batch that is not of the delivery it came in")
        return self

    cdef void look(self, Spot* spot) noexcept:
        """Where the next record lies, and step behind it; only while something is left."""
        cdef const StoredHead* head
        cdef const StoredRecord* stored
        cdef const uint8_t* p
        spot.tag = self.tag
        self.tag += 1
        self.left -= 1
        if self.stored:
            head = <const StoredHead*>self.p
            while self.index >= head.count:
                self.p += head.len
                head = <const StoredHead*>self.p
                self.index = 0
            stored = <const StoredRecord*>(self.p + sizeof(StoredHead)) + self.index
            spot.position = head.base_lsn + self.index
            spot.timestamp_ms = head.base_ts + stored.ts
            spot.flags = 0
            spot.key = self.p + head.blob_off + stored.off
            spot.key_size = stored.key
            spot.props_size = stored.props
            spot.body_size = stored.size - stored.key - stored.props
            self.index += 1
        else:
            p = self.p
            spot.position = load64(p)
            spot.timestamp_ms = <int64_t>load64(p + 8)
            spot.key_size = load16(p + 16)
            spot.flags = load16(p + 18)
            spot.props_size = load32(p + 20)
            spot.body_size = load32(p + 24)
            spot.key = p + DELIVERED_HEAD
            self.p = spot.key + spot.key_size + spot.props_size + spot.body_size

    cdef Record next(self, type kind, object source, uint64_t* size):
        """The next record; only while something is left. Its bytes of credit are added to `size`."""
        cdef Spot spot
        cdef const uint8_t* p
        # As kind.__new__(kind), without looking that up and without a call of Python's.
        cdef Record record = <Record>(<PyTypeObject*>kind).tp_new(kind, <PyObject*>NOTHING, NULL)
        self.look(&spot)
        record.position = spot.position
        record.timestamp_ms = spot.timestamp_ms
        record.tag = spot.tag
        record.given_back = spot.flags & 0x7FFF
        record.redelivered = spot.flags >> 15
        p = spot.key
        # Neighbours mostly have the same keys and properties: then they share the objects.
        if self.key_block is None or not same(p, spot.key_size, self.key_block):
            self.key_block = p[:spot.key_size]
        record.key_block = self.key_block
        p += spot.key_size
        if self.block is None or not same(p, spot.props_size, self.block):
            self.block = p[:spot.props_size]
        record.block = self.block
        record.body = (p + spot.props_size)[:spot.body_size]
        record.source = source
        size[0] += spot_size(&spot)
        return record

    cdef Chunk copied(self):
        """One of the same records, to be taken apart from these."""
        cdef Chunk other = Chunk.__new__(Chunk)
        other.owner = self.owner
        other.stored = self.stored
        other.p = self.p
        other.index = self.index
        other.tag = self.tag
        other.left = self.left
        return other


cdef inline bint same(const uint8_t* p, uint32_t size, bytes known) noexcept:
    return <Py_ssize_t>size == PyBytes_GET_SIZE(known) and memcmp(p, PyBytes_AS_STRING(known), size) == 0


cdef int check_stored(const uint8_t* p, const uint8_t* end, uint64_t position) except -1:
    """Whether a valid batch lies at `p` that begins with the position."""
    cdef const StoredHead* head = <const StoredHead*>p
    cdef const StoredRecord* stored
    cdef uint32_t i
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
    stored = <const StoredRecord*>(p + sizeof(StoredHead))
    for i in range(head.count):
        if (<uint64_t>stored[i].off + stored[i].size > head.blob_raw
                or <uint64_t>stored[i].key + stored[i].props > stored[i].size):
            raise ValueError("a stored batch with a record outside of it")
    return 0
