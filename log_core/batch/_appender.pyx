# cython: auto_pickle=False
"""The open batch of the running tick: what kernels append records to.

Owns the batch that is being filled and those closed since the last `take_closed`. Records are copied once,
into the place they have on disk; a batch is closed, with its CRCs, when it is full, when records of another
kind come, or when the tick ends. Each record gets the next LSN and is pushed to the feeds of its Target.
Knows nothing of files, threads, queues or protocols.
"""

cimport cython
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from penstock.log_core.batch._batch cimport (
    ATTR_MORE, BATCH_ALIGN, BATCH_BLOB_MAX, BATCH_HEADER, BATCH_MAGIC, BATCH_RECORDS_MAX, COL_DELIVER_AT, COL_ORIGIN,
    COL_POS, ENC_NONE, F_DELAYED, F_LIST, F_PERSISTENT, F_TOMBSTONE, F_UNROUTED, KIND_DELAYED, KIND_NOTE, KIND_RECORDS,
    KIND_STATE, RECORD_BYTES_MAX, RECORD_HEADER, SLAB_BYTES, Batch, BatchHeader, RecordHeader, Slab, batch_of,
    common_attrs, new_slab, padded,
)
from penstock.log_core.batch._crc cimport crc32c_of
from penstock.log_core.feeds._feed cimport ENTRY_TRANSIENT, Feed

cdef enum:
    ROOM_MIN = 65536                 # a slab with less room left is not used for a new batch

cdef extern from "time.h" nogil:
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* now)
    enum:
        CLOCK_REALTIME


cdef int64_t wall_ms() noexcept:
    """The machine's clock, ms since the epoch."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000



@cython.final
cdef class Target:
    def __cinit__(self, feeds, bint durable=False):
        cdef object feed
        self.feeds = tuple(feeds)
        for feed in self.feeds:
            if not isinstance(feed, Feed):
                raise TypeError(f"a Target is made of feeds, not {feed!r}")
        if len(set(self.feeds)) != len(self.feeds):
            raise ValueError("a feed is in a Target once")
        self.durable = durable
        self.count = <uint32_t>len(self.feeds)

    def __repr__(self):
        return f"<Target {[feed.id for feed in self.feeds]}{' durable' if self.durable else ''}>"


cdef uint64_t batches_opened = 0             # by any Appender: tells a Target's memo of one batch from all others

@cython.final
cdef class Appender(RowLog):
    def __cinit__(self, object clock_ms=None, uint64_t next_lsn=1, uint32_t epoch=1):
        self.clock_ms = clock_ms
        self.next_lsn = next_lsn
        self.segment_base = next_lsn
        self.epoch = epoch
        self.closed = []
        self.dirty = []
        self.segment_feeds = []

    def __dealloc__(self):
        free(self.lists)
        free(self.origins)
        free(self.dues)
        free(self.places)

    cdef uint64_t append(self, uint32_t lp, Target target, const uint8_t* key, uint16_t key_len,
                         const uint8_t* props, uint32_t props_len, const uint8_t* body, uint32_t body_len,
                         uint16_t flags, uint8_t priority, uint8_t enc, uint32_t ttl_ms, uint32_t origin) except 0:
        cdef RecordHeader* record = self.place(lp, KIND_RECORDS, key, key_len, props, props_len, body, body_len)
        cdef uint64_t lsn = self.next_lsn
        cdef uint32_t entry, k
        cdef Feed feed
        flags &= ~(F_LIST | F_UNROUTED)
        if target.count == 1:
            record.feed = (<Feed>PyTuple_GET_ITEM(target.feeds, 0)).id
        elif target.count == 0:
            flags |= F_UNROUTED
        else:
            flags |= F_LIST
            record.feed = self.list_of(target)
        record.ttl = ttl_ms
        record.flags = flags
        record.priority = priority
        record.enc = enc
        if origin != 0 or self.has_origins:
            self.set_origin(origin)
        entry = <uint32_t>(lsn - self.segment_base)
        if not flags & F_PERSISTENT:
            entry |= ENTRY_TRANSIENT
        for k in range(target.count):
            feed = <Feed>PyTuple_GET_ITEM(target.feeds, k)
            if feed.push(self.segment_base, entry, record.size):
                self.segment_feeds.append(feed)
            if not feed.dirty:
                feed.dirty = True
                self.dirty.append(feed)
        self.count += 1
        self.next_lsn = lsn + 1
        return lsn

    cdef RecordHeader* place(self, uint32_t lp, uint32_t kind, const uint8_t* key, size_t key_len,
                             const uint8_t* props, size_t props_len, const uint8_t* body, size_t body_len) except NULL:
        # The bytes of one record into the blob, its place into a cleared record header. The caller fills the rest
        # of the header and then counts the record.
        cdef size_t size = key_len + props_len + body_len
        cdef RecordHeader* record
        cdef uint8_t* at
        if (self.count >= self.count_limit or size > self.blob_limit - self.blob_size or self.lp != lp
                or self.kind != kind):
            self.make_room(lp, kind, size)
        at = self.blob + self.blob_size
        if key_len:
            memcpy(at, key, key_len)
        if props_len:
            memcpy(at + key_len, props, props_len)
        if body_len:
            memcpy(at + key_len + props_len, body, body_len)
        record = &self.headers[self.count]
        record.off = <uint32_t>self.blob_size
        record.size = <uint32_t>size
        record.props = <uint32_t>props_len
        record.feed = 0
        record.ts = 0
        record.ttl = 0
        record.key = <uint16_t>key_len
        record.flags = 0
        record.priority = 0
        record.enc = 0
        record.reserved = 0
        self.blob_size += size
        return record

    cdef int make_room(self, uint32_t lp, uint32_t kind, size_t size) except -1:
        global batches_opened
        cdef size_t room
        if self.failure is not None:
            raise self.failure
        if size > RECORD_BYTES_MAX:
            raise ValueError(f"a record of {size} bytes; the most is {RECORD_BYTES_MAX}")
        self.close_batch()
        if self.head_shared is None or self.head_shared.size - self.head_shared.used < ROOM_MIN:
            self.head_shared = new_slab(0)
        room = 0 if self.blob_shared is None else self.blob_shared.size - self.blob_shared.used
        if room >= ROOM_MIN and room >= size + BATCH_ALIGN:
            self.blob_slab = self.blob_shared
        elif size + BATCH_ALIGN <= SLAB_BYTES // 4:
            self.blob_shared = self.blob_slab = new_slab(0)
        else:                                # a large record gets a slab of its own; the shared one stays for the next
            self.blob_slab = new_slab(size + BATCH_ALIGN)
        self.head_slab = self.head_shared
        self.header = <BatchHeader*>(self.head_slab.data + self.head_slab.used)
        self.headers = <RecordHeader*>(self.head_slab.data + self.head_slab.used + BATCH_HEADER)
        self.blob = self.blob_slab.data + self.blob_slab.used
        self.blob_size = 0
        self.blob_limit = self.blob_slab.size - self.blob_slab.used - BATCH_ALIGN
        if self.blob_limit > BATCH_BLOB_MAX and self.blob_limit > size:
            self.blob_limit = max(size, <size_t>BATCH_BLOB_MAX)
        # Room for an origin (4 bytes) per record; feed lists that do not fit are dealt with at the close.
        room = (self.head_slab.size - self.head_slab.used - BATCH_HEADER) // (RECORD_HEADER + 4)
        self.count_limit = <uint32_t>min(room, <size_t>BATCH_RECORDS_MAX)
        self.count = 0
        self.lp = lp
        self.kind = kind
        self.base_lsn = self.next_lsn
        self.lists_size = 0
        self.has_origins = False
        batches_opened += 1
        self.serial = batches_opened
        self.now()
        return 0

    cdef uint32_t list_of(self, Target target) except 0xffffffff:
        cdef uint32_t at, k, capacity
        cdef uint32_t* lists
        if target.list_batch == self.serial:
            return target.list_at
        at = self.lists_size
        if self.lists_capacity - at < target.count + 1:
            capacity = max(2 * self.lists_capacity, at + target.count + 1, <uint32_t>256)
            lists = <uint32_t*>realloc(self.lists, <size_t>capacity * sizeof(uint32_t))
            if lists == NULL:
                raise MemoryError()
            self.lists = lists
            self.lists_capacity = capacity
        self.lists[at] = target.count
        for k in range(target.count):
            self.lists[at + 1 + k] = (<Feed>PyTuple_GET_ITEM(target.feeds, k)).id
        self.lists_size = at + 1 + target.count
        target.list_batch = self.serial
        target.list_at = at
        return at

    cdef int set_origin(self, uint32_t origin) except -1:
        cdef uint32_t* origins
        if self.origins_capacity < self.count_limit:
            origins = <uint32_t*>realloc(self.origins, <size_t>self.count_limit * sizeof(uint32_t))
            if origins == NULL:
                raise MemoryError()
            self.origins = origins
            self.origins_capacity = self.count_limit
        if not self.has_origins:
            memset(self.origins, 0, <size_t>self.count * sizeof(uint32_t))
            self.has_origins = True
        self.origins[self.count] = origin
        return 0

    cdef int set_delay(self, int64_t due, uint64_t place) except -1:
        cdef uint32_t capacity
        cdef int64_t* dues
        cdef uint64_t* places
        if self.count >= self.delayed_capacity:
            capacity = max(2 * self.delayed_capacity, <uint32_t>64)
            dues = <int64_t*>realloc(self.dues, <size_t>capacity * sizeof(int64_t))
            if dues == NULL:
                raise MemoryError()
            self.dues = dues
            places = <uint64_t*>realloc(self.places, <size_t>capacity * sizeof(uint64_t))
            if places == NULL:
                raise MemoryError()
            self.places = places
            self.delayed_capacity = capacity
        self.dues[self.count] = due
        self.places[self.count] = place
        return 0

    cdef int close_batch(self) except -1:
        # Fills in the header of the open batch and lists it as closed. Nothing to do when none is open.
        cdef size_t records, extra, head, total, column = 8 * <size_t>self.count
        cdef BatchHeader* header
        cdef Slab slab, blob_slab
        cdef uint8_t* at
        if self.count_limit == 0:
            return 0
        self.count_limit = 0
        self.blob_limit = self.blob_size     # no room: the next append comes to make_room
        blob_slab = self.blob_slab
        slab = self.head_slab
        self.blob_slab = self.head_slab = None
        if self.count == 0:
            return 0
        records = BATCH_HEADER + RECORD_HEADER * <size_t>self.count
        extra = sizeof(uint32_t) * (<size_t>self.lists_size + (self.count if self.has_origins else 0))
        if self.kind == KIND_DELAYED:
            extra += 2 * column
        head = records + extra
        header = self.header
        if slab.size - slab.used < padded(head):
            slab = new_slab(head)
            memcpy(slab.data, header, records)
            header = <BatchHeader*>slab.data
        at = <uint8_t*>header + records
        if self.kind == KIND_DELAYED:
            memcpy(at, self.dues, column)
            memcpy(at + column, self.places, column)
            at += 2 * column
        if self.has_origins:
            memcpy(at, self.origins, sizeof(uint32_t) * <size_t>self.count)
            at += sizeof(uint32_t) * <size_t>self.count
        if self.lists_size:
            memcpy(at, self.lists, sizeof(uint32_t) * <size_t>self.lists_size)
        slab.used += padded(head)
        total = padded(head + self.blob_size)
        memset(self.blob + self.blob_size, 0, total - head - self.blob_size)
        blob_slab.used += padded(total - head)
        memset(header, 0, BATCH_HEADER)
        header.len = <uint32_t>total
        header.blob_off = <uint32_t>head
        header.blob_crc = crc32c_of(0, self.blob, self.blob_size)
        header.magic = BATCH_MAGIC
        header.kind = <uint8_t>self.kind
        header.cols = COL_ORIGIN if self.has_origins else 0
        if self.kind == KIND_DELAYED:
            header.cols |= COL_DELIVER_AT | COL_POS
        if self.kind == KIND_RECORDS:
            header.attrs = common_attrs(<const RecordHeader*>(<uint8_t*>header + BATCH_HEADER), self.count)
        if self.unit:
            header.attrs |= ATTR_MORE
        header.lp = self.lp
        header.shard_epoch = self.epoch
        header.base_lsn = self.base_lsn
        header.base_pos = self.base_lsn
        header.synced_lsn = self.synced_lsn
        header.base_ts = self.tick_ms
        header.max_ts = self.tick_ms
        header.count = self.count
        header.blob_raw = <uint32_t>self.blob_size
        header.head_crc = crc32c_of(0, <uint8_t*>header + 8, head - 8)
        self.closed.append(batch_of(header, slab, self.blob, blob_slab))
        self.appended_bytes += total
        self.count = 0
        return 0

    cdef int64_t now(self) except -1:
        if self.tick_ms == 0:
            self.tick_ms = wall_ms() if self.clock_ms is None else self.clock_ms()
            if self.tick_ms < self.last_ms:  # the log's time never runs backwards
                self.tick_ms = self.last_ms
            self.last_ms = self.tick_ms
        return self.tick_ms

    # Calls of the Log and of tests, per tick or off the hot path.

    def append_record(self, uint32_t lp, Target target not None, bytes key=b"", bytes props=b"", bytes body=b"",
                      uint16_t flags=0, uint8_t priority=0, uint8_t enc=0, uint32_t ttl_ms=0, uint32_t origin=0):
        if len(key) > 0xffff:
            raise ValueError(f"a key block of {len(key)} bytes; the most is 65535")
        if len(body) > RECORD_BYTES_MAX or len(props) > RECORD_BYTES_MAX:
            raise ValueError(f"a record of more than {RECORD_BYTES_MAX} bytes")
        return self.append(lp, target, key, <uint16_t>len(key), props, <uint32_t>len(props), body, <uint32_t>len(body),
                           flags, priority, enc, ttl_ms, origin)

    def append_delayed(self, int64_t due_ms, uint64_t place, bytes key not None, bytes props not None,
                       bytes body not None, uint16_t flags=0, uint8_t priority=0, uint8_t enc=0, uint32_t ttl_ms=0):
        cdef RecordHeader* record
        cdef uint64_t lsn
        if len(key) > 0xffff:
            raise ValueError(f"a key block of {len(key)} bytes; the most is 65535")
        if len(body) > RECORD_BYTES_MAX or len(props) > RECORD_BYTES_MAX:
            raise ValueError(f"a record of more than {RECORD_BYTES_MAX} bytes")
        record = self.place(0, KIND_DELAYED, key, len(key), props, len(props), body, len(body))
        record.ttl = ttl_ms
        record.flags = (flags & ~(F_LIST | F_UNROUTED)) | F_DELAYED
        record.priority = priority
        record.enc = enc
        lsn = self.state_lsn = self.next_lsn
        self.set_delay(due_ms, place if place else lsn)
        self.count += 1
        self.next_lsn = lsn + 1
        return lsn

    def append_repeated(self, uint32_t n, uint32_t lp, Target target not None, bytes key, bytes props, bytes body,
                        uint16_t flags):
        cdef uint32_t k
        cdef const uint8_t* at_key = key
        cdef const uint8_t* at_props = props
        cdef const uint8_t* at_body = body
        if len(key) > 0xffff or len(body) + len(props) > RECORD_BYTES_MAX:
            raise ValueError("a record too large")
        for k in range(n):
            self.append(lp, target, at_key, <uint16_t>len(key), at_props, <uint32_t>len(props), at_body,
                        <uint32_t>len(body), flags, 0, ENC_NONE, 0, 0)
        return self.next_lsn - 1

    def append_state(self, bytes key not None, bytes value not None, bint tombstone=False):
        return self.append_row(key, value, tombstone)

    cdef uint64_t append_row(self, bytes key, bytes value, bint tombstone) except 0:
        cdef RecordHeader* record
        cdef uint64_t lsn
        if len(key) > 0xffff:
            raise ValueError(f"a state key of {len(key)} bytes; the most is 65535")
        record = self.place(0, KIND_STATE, key, len(key), NULL, 0, value, len(value))
        record.flags = F_PERSISTENT | (F_TOMBSTONE if tombstone else 0)
        if self.has_origins:
            self.set_origin(0)
        lsn = self.state_lsn = self.next_lsn
        self.count += 1
        self.next_lsn = lsn + 1
        return lsn

    def append_note(self):
        self.make_room(0, KIND_NOTE, 0)
        cdef BatchHeader* header = self.header
        self.count_limit = 0
        self.blob_limit = 0
        memset(header, 0, BATCH_HEADER)
        header.len = BATCH_HEADER
        header.blob_off = BATCH_HEADER
        header.magic = BATCH_MAGIC
        header.kind = KIND_NOTE
        header.shard_epoch = self.epoch
        header.base_lsn = header.base_pos = self.next_lsn
        header.synced_lsn = self.synced_lsn
        header.base_ts = header.max_ts = self.tick_ms
        header.head_crc = crc32c_of(0, <uint8_t*>header + 8, BATCH_HEADER - 8)
        self.head_slab.used += BATCH_HEADER
        self.closed.append(batch_of(header, self.head_slab, self.blob, self.blob_slab))
        self.appended_bytes += BATCH_HEADER

    def begin_unit(self):
        if self.unit == 0:
            self.close_batch()
            self.unit_first = PyList_GET_SIZE(self.closed)
        self.unit += 1

    def end_unit(self):
        cdef Batch batch
        self.unit -= 1
        if self.unit:
            return
        self.close_batch()                   # without MORE, since the unit is over
        self.state_lsn = self.next_lsn - 1
        if PyList_GET_SIZE(self.closed) > self.unit_first:
            batch = self.closed[PyList_GET_SIZE(self.closed) - 1]
            if batch.header.attrs & ATTR_MORE:
                batch.header.attrs &= ~ATTR_MORE
                batch.header.head_crc = crc32c_of(0, <uint8_t*>batch.header + 8, batch.head_size - 8)

    def start(self, uint64_t next_lsn, uint32_t epoch):
        if self.appended_bytes or self.count or self.segment_feeds:
            raise AssertionError("the appender is in use")
        self.next_lsn = self.segment_base = next_lsn
        self.epoch = epoch

    @property
    def in_unit(self):
        return self.unit > 0

    def now_ms(self):
        return self.now()

    cpdef list take_closed(self):
        cdef list closed
        if self.unit:
            raise AssertionError("the tick ends inside an atomic unit")
        self.close_batch()
        closed = self.closed
        self.closed = []
        self.tick_ms = 0
        return closed

    cpdef list take_dirty(self):
        cdef list dirty = self.dirty
        cdef Py_ssize_t k
        self.dirty = []
        for k in range(PyList_GET_SIZE(dirty)):
            (<Feed>PyList_GET_ITEM(dirty, k)).dirty = False
        return dirty

    def roll(self):
        if self.count_limit and self.count or self.closed:
            raise AssertionError("a roll in the middle of a tick")
        cdef list feeds = self.segment_feeds
        self.segment_feeds = []
        self.segment_base = self.next_lsn
        return feeds
