# cython: auto_pickle=False
"""Batches: the packed records of one tick, in the one form they have in memory and on disk.

Owns the layout of batch and record headers (docs/reference/format.md is the reference), the memory of closed
batches, and the check of bytes that claim to be a batch; `_appender` fills new ones. Knows nothing of files,
threads, queues or protocols.

A batch, little-endian, `len` bytes, a multiple of 32:

    +-----------+------------------+---------------------------+------------------+------+-----+
    | header 96 | records 32*count | optional columns, by bit  | feed lists u32[] | blob | pad |
    +-----------+------------------+---------------------------+------------------+------+-----+
    0           96                                                                ^blob_off    ^len
    head_crc = CRC-32C of [8, blob_off)         blob_crc = CRC-32C of [blob_off, blob_off + blob_raw)

In memory the header block [0, blob_off) and the blob with its padding are two stretches of memory, cut
from slabs of 1 MiB that many batches share, so that a tick of one message costs its own size and a tick of
a megabyte is never copied a second time. Slabs are recycled: fresh ones cost a page fault per 4 KiB.
"""

cimport cython
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from penstock.log_core.batch._crc cimport crc32c_of

from collections import namedtuple

cdef extern from *:
    """
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the log's structures are used in place");
    """

if sizeof(RecordHeader) != RECORD_HEADER or sizeof(BatchHeader) != BATCH_HEADER:
    raise AssertionError("the compiler padded a packed structure")

LIST = F_LIST
PERSISTENT = F_PERSISTENT
REF = F_REF
DELAYED = F_DELAYED
HALF = F_HALF
RETAIN = F_RETAIN
TOMBSTONE = F_TOMBSTONE
CHUNK = F_CHUNK
UNROUTED = F_UNROUTED
EXACTLY_ONCE = F_EXACTLY_ONCE
SECTIONS = F_SECTIONS
NONE = ENC_NONE
AMQP091 = ENC_AMQP091
MQTT5 = ENC_MQTT5
NATIVE = ENC_NATIVE
EVENTS = <uint32_t>EVENTS_LP
LOST = KIND_LOST
RECORDS = KIND_RECORDS
STATE = KIND_STATE
NOTE = KIND_NOTE
DELAYED_RECORDS = KIND_DELAYED
BLOCK = KIND_BLOCK
MORE = ATTR_MORE
ALIGN = BATCH_ALIGN
RECORDS_MAX = BATCH_RECORDS_MAX

# --- memory ---

cdef enum:
    POOL_SLABS = 16

cdef uint8_t* pool[POOL_SLABS]
cdef int pool_size = 0


@cython.final
@cython.no_gc
cdef class Slab:
    def __dealloc__(self):
        global pool_size
        if self.data == NULL or self.owner is not None:
            return
        if self.size == SLAB_BYTES and pool_size < POOL_SLABS:
            pool[pool_size] = self.data
            pool_size += 1
        else:
            free(self.data)


cdef Slab new_slab(size_t size):
    global pool_size
    cdef Slab slab = Slab.__new__(Slab)
    if size <= SLAB_BYTES:
        size = SLAB_BYTES
        if pool_size:
            pool_size -= 1
            slab.data = pool[pool_size]
    if slab.data == NULL:
        slab.data = <uint8_t*>malloc(size)
        if slab.data == NULL:
            raise MemoryError(f"{size} bytes for a batch")
    slab.size = size
    slab.used = 0
    return slab


# --- closed batches ---

cdef size_t columns_size(uint8_t cols, size_t count) noexcept nogil:
    cdef size_t width = 0
    if cols & COL_DELIVER_AT:
        width += 8
    if cols & COL_KEY_HASH:
        width += 4
    if cols & COL_POS:
        width += 8
    if cols & COL_EXPIRY:
        width += 8
    if cols & COL_ORIGIN:
        width += 4
    return width * count


cdef int refuse(Found* found, const char* reason) noexcept nogil:
    found.reason = reason
    return -1


cdef int check_head(const uint8_t* p, size_t available, Found* found) noexcept nogil:
    cdef const BatchHeader* header = <const BatchHeader*>p
    cdef const RecordHeader* record
    cdef const uint32_t* lists
    cdef size_t k, blob_end, lists_at, lists_size, at
    found.length = 0
    found.reason = NULL
    found.crc_expected = 0
    found.crc_found = 0
    if available < 4 or header.len == 0:
        return 0
    if available < BATCH_HEADER:
        return refuse(found, b"no room for a batch header")
    if header.magic != BATCH_MAGIC:
        return refuse(found, b"unknown magic")
    if header.len < BATCH_HEADER or header.len > available or header.len & (BATCH_ALIGN - 1):
        return refuse(found, b"impossible length")
    if header.blob_off < BATCH_HEADER or header.blob_off > header.len or header.blob_off & 3:
        return refuse(found, b"impossible place of the blob")
    found.crc_expected = header.head_crc
    found.crc_found = crc32c_of(0, p + 8, header.blob_off - 8)
    if found.crc_found != found.crc_expected:
        return refuse(found, b"head CRC")
    # The header block is as it was written; what follows guards against a writer's mistakes and forged files.
    if header.kind < KIND_RECORDS or header.kind > KIND_BLOCK:
        return refuse(found, b"unknown kind of batch")
    if header.codec != (CODEC_ZSTD if header.kind == KIND_BLOCK else CODEC_NONE):
        return refuse(found, b"unknown codec")
    if header.kind == KIND_BLOCK and (header.count or header.cols or header.attrs or header.raw > BLOCK_RAW_MAX
                                      or header.base_pos <= header.base_lsn):
        return refuse(found, b"no block of batches")
    if header.cols & ~(COL_DELIVER_AT | COL_KEY_HASH | COL_POS | COL_EXPIRY | COL_ORIGIN):
        return refuse(found, b"unknown column")
    if header.kind == KIND_DELAYED and ~header.cols & (COL_DELIVER_AT | COL_POS):
        return refuse(found, b"delayed records without their times")
    if header.count > BATCH_RECORDS_MAX:
        return refuse(found, b"too many records")
    blob_end = <size_t>header.blob_off + header.blob_raw
    if padded(blob_end) != header.len:
        return refuse(found, b"length and blob do not fit")
    lists_at = BATCH_HEADER + RECORD_HEADER * <size_t>header.count + columns_size(header.cols, header.count)
    if lists_at > header.blob_off:
        return refuse(found, b"header block too short")
    if header.base_lsn + header.count < header.base_lsn:
        return refuse(found, b"LSN overflow")
    lists = <const uint32_t*>(p + lists_at)
    lists_size = (header.blob_off - lists_at) // 4
    record = <const RecordHeader*>(p + BATCH_HEADER)
    for k in range(header.count):
        if <uint64_t>record.off + record.size > header.blob_raw or <uint64_t>record.key + record.props > record.size:
            return refuse(found, b"record outside the blob")
        if record.flags & F_LIST:
            at = record.feed
            if at >= lists_size or lists[at] >= lists_size - at:
                return refuse(found, b"feed list outside the header block")
        record += 1
    found.length = header.len
    return 1


cdef int check_batch(const uint8_t* p, size_t available, Found* found) noexcept nogil:
    cdef const BatchHeader* header = <const BatchHeader*>p
    cdef size_t k
    cdef int verdict = check_head(p, available, found)
    if verdict != 1:
        return verdict
    found.length = 0
    found.crc_expected = header.blob_crc
    found.crc_found = crc32c_of(0, p + header.blob_off, header.blob_raw)
    if found.crc_found != found.crc_expected:
        return refuse(found, b"blob CRC")
    for k in range(header.blob_off + header.blob_raw, header.len):
        if p[k] != 0:
            return refuse(found, b"padding is not zero")
    found.length = header.len
    return 1


cdef uint16_t common_attrs(const RecordHeader* record, uint32_t count) noexcept nogil:
    cdef uint32_t i, other = 0, ttl = 0
    for i in range(count):
        other |= record[i].enc ^ <uint8_t>ENC_AMQP091
        ttl |= record[i].ttl
    return (0 if other else ATTR_AMQP091) | (0 if ttl else ATTR_LASTING)


cdef bint is_plain(const BatchHeader* header, bint timeless) noexcept nogil:
    cdef uint16_t wanted = ATTR_AMQP091 if timeless else ATTR_AMQP091 | ATTR_LASTING
    cdef uint16_t has = header.attrs
    if has & wanted != wanted:
        has = common_attrs(<const RecordHeader*>(<const uint8_t*>header + BATCH_HEADER), header.count)
    return has & wanted == wanted


cdef Batch view_batch(const uint8_t* p, Slab slab):
    return batch_of(<BatchHeader*>p, slab, p + (<BatchHeader*>p).blob_off, slab)


cdef Batch batch_of(BatchHeader* header, Slab head_slab, const uint8_t* blob, Slab blob_slab):
    cdef Batch batch = Batch.__new__(Batch)
    cdef size_t columns = BATCH_HEADER + RECORD_HEADER * <size_t>header.count
    cdef size_t lists = columns + columns_size(header.cols, header.count)
    batch.header = header
    batch.headers = <RecordHeader*>(<uint8_t*>header + BATCH_HEADER)
    batch.blob = blob
    batch.lists = <const uint32_t*>(<uint8_t*>header + lists)
    batch.lists_size = <uint32_t>((header.blob_off - lists) // 4)
    if header.cols & COL_ORIGIN:             # the last column
        batch.origins = <uint32_t*>(<uint8_t*>header + lists - 4 * <size_t>header.count)
    if header.kind == KIND_DELAYED:          # in the order of their bits, deliver_at first; check_batch saw both
        batch.dues = <const int64_t*>(<uint8_t*>header + columns)
        columns += 8 * <size_t>header.count
        if header.cols & COL_KEY_HASH:
            columns += 4 * <size_t>header.count
        batch.places = <const uint64_t*>(<uint8_t*>header + columns)
    batch.count = header.count
    batch.lp = header.lp
    batch.kind = header.kind
    batch.base_lsn = header.base_lsn
    batch.base_ts = header.base_ts
    batch.nbytes = header.len
    batch.head_size = header.blob_off
    batch.head_slab = head_slab
    batch.blob_slab = blob_slab
    return batch


Record = namedtuple(
    "Record", "lsn key props body feeds flags priority enc ts ttl origin"
)


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Batch:
    cdef int feeds_of(self, uint32_t i, const uint32_t** ids) noexcept:
        cdef RecordHeader* record = &self.headers[i]
        if record.flags & F_LIST:
            ids[0] = self.lists + record.feed + 1
            return <int>self.lists[record.feed]
        ids[0] = <const uint32_t*>(<const uint8_t*>record + 12)      # &record.feed, of a packed structure
        return 0 if record.feed == 0 else 1

    @staticmethod
    def parse(data):
        cdef const uint8_t[::1] view = data
        cdef Found found
        cdef Slab slab
        cdef int verdict
        if view.shape[0] == 0:
            raise ValueError("no batch: no bytes")
        verdict = check_batch(&view[0], <size_t>view.shape[0], &found)
        if verdict == 0:
            raise ValueError("no batch: its length is 0")
        if verdict < 0:
            raise ValueError(f"no valid batch: {found.reason.decode()}")
        slab = new_slab(found.length)
        memcpy(slab.data, &view[0], found.length)
        return view_batch(slab.data, slab)

    @property
    def attrs(self):
        return self.header.attrs

    @property
    def synced_lsn(self):
        return self.header.synced_lsn

    @property
    def epoch(self):
        return self.header.shard_epoch

    @property
    def max_ts(self):
        return self.header.max_ts

    def record(self, uint32_t i):
        cdef RecordHeader* record
        cdef const uint32_t* ids
        cdef int n, k
        if i >= self.count:
            raise IndexError(i)
        record = &self.headers[i]
        n = self.feeds_of(i, &ids)
        at = self.blob + record.off
        return Record(
            lsn=self.base_lsn + i,
            key=at[:record.key],
            props=at[record.key:record.key + record.props],
            body=at[record.key + record.props:record.size],
            feeds=tuple([ids[k] for k in range(n)]),
            flags=record.flags,
            priority=record.priority,
            enc=record.enc,
            ts=self.base_ts + record.ts,
            ttl=record.ttl,
            origin=self.origins[i] if self.origins != NULL else 0,
        )

    def delay_of(self, uint32_t i):
        if i >= self.count:
            raise IndexError(i)
        if self.dues == NULL:
            return None
        return self.dues[i], self.places[i]

    def __len__(self):
        return self.count

    def __bytes__(self):
        cdef bytes head = (<const uint8_t*>self.header)[:self.head_size]
        return head + self.blob[:self.nbytes - self.head_size]

    def __repr__(self):
        return f"<Batch kind {self.kind} lsn [{self.base_lsn}, {self.base_lsn + self.count}) {self.nbytes} bytes>"
