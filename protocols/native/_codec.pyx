# cython: auto_pickle=False
"""The native protocol's kernel: frames in, records into the log, deliveries and confirms out.

Owns what happens per message: checking a produced batch, appending it, encoding deliveries out of the log's
batches, and the table of delivery tags. All integers are big-endian.

    frame      size u32, of what follows | type u8 | flags u8 = 0 | reserved u16 = 0 | id u32 | payload
    PRODUCE    sequence u64 | acks u8 | compression u8 | reserved u16 = 0 | count u32 | count records
               (compression 1: they are packed, see `packing`)
      record   properties size u32 | body size u32 | properties | body
    CONFIRM    sequence u64 | position u64 | count u32 | flags u32 (1: it had been appended before)
    CREDIT     messages u32 | bytes u32                               what is granted in addition
    DELIVER    first tag u64 | count u32 | pull u32 | count records
      record   position u64 | time i64, ms since the epoch | key size u16 | given back u16 (15 bits, and the
               highest: redelivered) | properties size u32 | body size u32 | key block | properties | body
    DELIVER_PACKED   what a DELIVER has, packed
    ACK        request u32 | flags u8 (1: cumulative) | reserved u8 u16 | n x (first tag u64, last tag u64)
    NACK       delay i32, ms (-1: the subscription's) | flags u8 (1: reject) | reserved u8 u16 | ranges as ACK

Properties are AMQP's content header from its flags on (protocols/_properties.pyx), the key block is AMQP's
(u8 size, exchange, u8 size, routing key): records are copied, never encoded again. docs/protocols/native.md is
the reference; anything but these frames is the session's, which gets it in order.

A batch is checked whole before anything of it is appended. Confirms leave in the order of the batches.

Delivery tags count from 1 per consumer, in the order of delivery, and stand in a ring that begins at the oldest
unsettled one. What is acknowledged twice, or was taken back meanwhile, is passed over.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from array import array

from penstock.log_core._appender cimport Appender
from penstock.log_core._batch cimport ENC_AMQP091, F_PERSISTENT, Batch, RecordHeader
from penstock.protocols._properties cimport Properties, checked_size, read_properties
from penstock.protocols._tables cimport load16, load32, load64, store16, store32, store64
from penstock.protocols._translated cimport translated
from penstock.protocols.native.packing import pack
from penstock.protocols.outbuffer cimport OutBuffer
from penstock.router._routes cimport Route, RouteTable
from penstock.subscriptions._cursor cimport Cursor
from penstock.subscriptions._taken cimport TAKEN, Item
from penstock.subscriptions._keys cimport NO_SLOT, KeyShares, slot_of

cdef enum:
    HEAD = 12                   # of a frame, its size included
    BATCH_HEAD = 16
    RECORD_HEAD = 8
    DELIVERED_HEAD = 28
    T_PRODUCE = 0x10
    T_CONFIRM = 0x12
    T_CREDIT = 0x20
    T_DELIVER = 0x21
    T_ACK = 0x22
    T_NACK = 0x23
    T_PULLED = 0x25
    T_DELIVER_PACKED = 0x28
    ACKS_NONE = 0
    ACKS_WRITTEN = 1
    ACKS_FSYNC = 2
    OK = 0
    MALFORMED = 1
    RESERVED = 2
    FOREIGN_USER = 3
    DELIVER_SPLIT = 262144      # a delivery goes on in another frame from this size on
    TAKE_MAX = 1024             # items a cursor gives at once
    PACK_MIN = 512              # bytes of a delivery that is worth compressing

CHECKS = ("ok", "malformed", "reserved_header", "foreign_user")


cdef inline void put_head(uint8_t* p, Py_ssize_t payload, uint8_t kind, uint32_t id) noexcept:
    store32(p, <uint32_t>(payload + HEAD - 4))
    p[4] = kind
    p[5] = p[6] = p[7] = 0
    store32(p + 8, id)


cdef class Producer:
    def __cinit__(self, uint32_t id, bytes key not None, bytes name not None, uint32_t epoch):
        self.id = id
        self.key = key
        self.name = name
        self.epoch = epoch


cdef class Codec:
    def __cinit__(self, OutBuffer out not None, Appender appender not None, object host, uint32_t frame_max):
        self.out = out
        self.appender = appender
        self.host = host
        self.frame_max = frame_max
        self.user = b""
        self.producers = {}
        self.consumers = {}

    def __dealloc__(self):
        free(self.pending)

    def add_producer(self, Producer producer not None):
        self.producers[producer.id] = producer

    def add_consumer(self, Consumer consumer not None):
        self.consumers[consumer.id] = consumer

    def producer(self, uint32_t id):
        return self.producers.get(id)

    def consumer(self, uint32_t id):
        return self.consumers.get(id)

    def remove(self, uint32_t id):
        return self.producers.pop(id, None), self.consumers.pop(id, None)

    def has(self, uint32_t id):
        return id in self.producers or id in self.consumers

    def handles(self):
        return len(self.producers) + len(self.consumers)

    def all_consumers(self):
        return list(self.consumers.values())

    # Frames

    def receive(self, const uint8_t[::1] buffer not None, Py_ssize_t at, Py_ssize_t size):
        cdef const uint8_t* p = &buffer[0]
        cdef Py_ssize_t n, left
        self.want = 0
        while not self.halted:
            left = size - at
            if left < 4:
                break
            n = load32(p + at)
            if n < HEAD - 4 or n > <Py_ssize_t>self.frame_max:
                self.host.fault("frame_size", f"a frame of {n} bytes; sizes are from {HEAD - 4} to {self.frame_max}")
                return size
            if left < n + 4:
                self.want = n + 4
                break
            if p[at + 5] | p[at + 6] | p[at + 7]:
                self.host.fault("malformed", "the flags and reserved bytes of a frame are 0 in version 1")
                return size
            left = at + HEAD
            at += n + 4
            self.handle(p[left - 8], load32(p + left - 4), p + left, n + 4 - HEAD)
        return at

    cdef int handle(self, uint8_t kind, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1:
        cdef Consumer consumer
        if self.table is not None:
            if kind == T_PRODUCE:
                return self.produce(id, p, n)
            if kind == T_ACK or kind == T_NACK:
                return self.settle(kind, id, p, n)
            if kind == T_CREDIT:
                if n != 8:
                    self.host.fault("malformed", f"CREDIT has 8 bytes, not {n}")
                    return 0
                consumer = self.consumers.get(id)
                if consumer is None:
                    self.host.unknown_handle(kind, id)
                else:
                    consumer.grant(load32(p), load32(p + 4))
                return 0
        self.host.frame(kind, id, PyBytes_FromStringAndSize(<const char*>p, n))
        return 0

    # Producing

    cdef int check(self, const uint8_t* p, Py_ssize_t n, uint32_t count) noexcept:
        """Whether the n bytes at p are `count` records that this user may send."""
        cdef const uint8_t* end = p + n
        cdef const uint8_t* known = NULL
        cdef uint32_t known_size = 0, props_size, body_size, i
        cdef Properties found
        for i in range(count):
            if end - p < RECORD_HEAD:
                return MALFORMED
            props_size = load32(p)
            body_size = load32(p + 4)
            p += RECORD_HEAD
            if <uint64_t>props_size + body_size > <uint64_t>(end - p):
                return MALFORMED
            if known == NULL or props_size != known_size or memcmp(p, known, props_size) != 0:
                if read_properties(p, props_size, &found) < 0:
                    return MALFORMED
                if found.special:
                    return RESERVED
                if found.user_id != NULL and (
                    found.user_id_size != PyBytes_GET_SIZE(self.user)
                    or memcmp(found.user_id, PyBytes_AS_STRING(self.user), found.user_id_size) != 0
                ):
                    return FOREIGN_USER
                known = p
                known_size = props_size
            p += props_size + body_size
        return OK if p == end else MALFORMED

    cdef uint64_t append_all(self, Route route, bytes key, const uint8_t* p, uint32_t count) except 0:
        """Append checked records; the LSN of the first. `count` is above 0."""
        cdef const uint8_t* known = NULL
        cdef const uint8_t* key_block = <const uint8_t*>PyBytes_AS_STRING(key)
        cdef uint16_t key_size = <uint16_t>PyBytes_GET_SIZE(key), flags = 0
        cdef uint32_t known_size = 0, props_size, body_size, i
        cdef uint64_t first = self.appender.next_lsn
        cdef Properties found
        for i in range(count):
            props_size = load32(p)
            body_size = load32(p + 4)
            p += RECORD_HEAD
            if known == NULL or props_size != known_size or memcmp(p, known, props_size) != 0:
                read_properties(p, props_size, &found)
                flags = F_PERSISTENT if found.delivery_mode == 2 else 0
                known = p
                known_size = props_size
            self.appender.append(route.lp, route.target, key_block, key_size, p, props_size, p + props_size,
                                 body_size, flags, found.priority, ENC_AMQP091, found.ttl, 0)
            p += props_size + body_size
        self.published += count
        return first

    cdef int produce(self, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1:
        cdef Producer producer
        cdef Route route
        cdef uint64_t sequence, first, lsn
        cdef uint32_t count
        cdef uint8_t acks
        cdef int checked
        cdef const uint8_t* records = p + BATCH_HEAD
        cdef Py_ssize_t size = n - BATCH_HEAD
        cdef bytes raw
        if n < BATCH_HEAD:
            self.host.fault("malformed", f"PRODUCE has at least {BATCH_HEAD} bytes, not {n}")
            return 0
        sequence = load64(p)
        acks = p[8]
        count = load32(p + 12)
        if acks > ACKS_FSYNC or p[9] > 1 or p[10] | p[11]:
            self.host.fault("malformed", "PRODUCE: acks is 0, 1 or 2, compression 0 or 1; reserved bytes are 0")
            return 0
        if p[9]:
            raw = self.host.unpacked(PyBytes_FromStringAndSize(<const char*>records, size))
            if raw is None:
                return 0
            records = <const uint8_t*>PyBytes_AS_STRING(raw)
            size = PyBytes_GET_SIZE(raw)
        producer = self.producers.get(id)
        if producer is None:
            self.host.refused(id, sequence, count, "unknown_handle")
            return 0
        checked = self.check(records, size, count) if count else MALFORMED
        if checked == MALFORMED:
            self.host.fault("malformed", f"a batch of {count} records does not fit its {size} bytes, or "
                            "has properties that are none")
            return 0
        if checked != OK:
            self.host.refused(id, sequence, count, CHECKS[checked])
            return 0
        if producer.name:
            position = self.host.admit(producer, sequence, count)
            if position is None:
                return 0
            if position:
                if acks != ACKS_NONE:
                    first = position if position > 0 else 0
                    lsn = first + count - 1 if first else -position
                    self.push(id, sequence, count, first, lsn, acks == ACKS_FSYNC, True)
                return 0
        route = self.table.lookup(<const uint8_t*>PyBytes_AS_STRING(producer.key), PyBytes_GET_SIZE(producer.key))
        if route.error is not None:
            self.host.refused(id, sequence, count, route.error)
            return 0
        if route.special:
            # Somebody must look at each: queues that may refuse, exchanges that read headers.
            self.host.publish_each(producer, sequence, acks, split(records, count))
            return 0
        if producer.name:
            self.host.begin_unit()
        first = self.append_all(route, producer.key, records, count)
        lsn = self.appender.next_lsn - 1
        if producer.name:
            self.host.note(producer, sequence, count, first)
        if acks != ACKS_NONE:
            self.push(id, sequence, count, first, lsn, acks == ACKS_FSYNC, False)
        return 0

    def check_records(self, bytes records not None, uint32_t count):
        cdef int found = self.check(<const uint8_t*>PyBytes_AS_STRING(records), PyBytes_GET_SIZE(records), count)
        return CHECKS[found if count else MALFORMED]

    def append_records(self, Route route not None, bytes key not None, bytes records not None, uint32_t count):
        return self.append_all(route, key, <const uint8_t*>PyBytes_AS_STRING(records), count)

    def route(self, bytes key not None):
        return self.table.lookup(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))

    # Confirms

    cdef int push(self, uint32_t id, uint64_t sequence, uint32_t count, uint64_t position, uint64_t lsn,
                  bint synced, bint repeated) except -1:
        cdef Py_ssize_t room, n = self.pending_end - self.pending_first, i
        cdef Confirm* grown
        cdef Confirm* entry
        if self.pending_end == self.pending_room:
            if n * 2 <= self.pending_room and self.pending_room:
                for i in range(n):
                    self.pending[i] = self.pending[self.pending_first + i]
            else:
                room = max(2 * self.pending_room, <Py_ssize_t>16)
                grown = <Confirm*>malloc(room * sizeof(Confirm))
                if grown == NULL:
                    raise MemoryError
                for i in range(n):
                    grown[i] = self.pending[self.pending_first + i]
                free(self.pending)
                self.pending = grown
                self.pending_room = room
            self.pending_first = 0
            self.pending_end = n
        entry = &self.pending[self.pending_end]
        entry.id = id
        entry.sequence = sequence
        entry.count = count
        entry.position = position
        entry.lsn = lsn
        entry.synced = synced
        entry.repeated = repeated
        self.pending_end += 1
        if synced:
            self.wait_synced = max(self.wait_synced, lsn)
        else:
            self.wait_written = max(self.wait_written, lsn)
        return 0

    def expect(self, uint32_t id, uint64_t sequence, uint32_t count, uint64_t position, uint64_t lsn, bint synced):
        self.push(id, sequence, count, position, lsn, synced, False)

    def take_waits(self):
        cdef tuple waits = (self.wait_written, self.wait_synced)
        self.wait_written = self.wait_synced = 0
        return waits

    def confirm(self, uint64_t written, uint64_t synced):
        cdef Confirm* entry
        cdef uint8_t* p
        cdef bint any = False
        while self.pending_first < self.pending_end:
            entry = &self.pending[self.pending_first]
            if entry.lsn > (synced if entry.synced else written):
                break
            p = self.out.reserve(HEAD + 24)
            put_head(p, 24, T_CONFIRM, entry.id)
            store64(p + HEAD, entry.sequence)
            store64(p + HEAD + 8, entry.position)
            store32(p + HEAD + 16, entry.count)
            store32(p + HEAD + 20, entry.repeated)
            self.out.commit(HEAD + 24)
            self.confirmed += entry.count
            self.pending_first += 1
            any = True
        return any

    def drop_pending(self):
        cdef list dropped = []
        cdef Py_ssize_t i
        for i in range(self.pending_first, self.pending_end):
            dropped.append((self.pending[i].id, self.pending[i].sequence, self.pending[i].count))
        self.pending_first = self.pending_end = 0
        return dropped

    @property
    def unconfirmed(self):
        return self.pending_end - self.pending_first

    # Settling

    cdef int settle(self, uint8_t kind, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1:
        cdef Consumer consumer
        cdef Py_ssize_t at = 8
        cdef int32_t delay
        if n < 8 or (n - 8) % 16 or p[4] > 1 or p[5] or p[6] | p[7]:
            self.host.fault("malformed", f"an acknowledgement of {n} bytes, or with reserved bytes that are not 0")
            return 0
        consumer = self.consumers.get(id)
        if consumer is None:
            self.host.unknown_handle(kind, id)
            return 0
        delay = <int32_t>load32(p)
        if kind == T_ACK and p[4] and not self.host.may_cumulate(consumer):
            return 0
        while at < n:
            if kind == T_NACK:
                consumer.nack(load64(p + at), load64(p + at + 8), delay, p[4])
            else:
                consumer.ack(0 if p[4] else load64(p + at), load64(p + at + 8))
            at += 16
        if kind == T_ACK and delay:
            self.host.acknowledged(consumer, <uint32_t>delay)
        consumer.feed()
        return 0

    # Output

    def send(self, uint8_t kind, uint32_t id, bytes payload not None):
        cdef Py_ssize_t n = PyBytes_GET_SIZE(payload)
        cdef uint8_t* p = self.out.reserve(HEAD + n)
        put_head(p, n, kind, id)
        memcpy(p + HEAD, PyBytes_AS_STRING(payload), n)
        self.out.commit(HEAD + n)


    cdef int pack_from(self, Py_ssize_t began) except -1:
        """Compress the delivery that is the output from there on, if that makes it smaller."""
        cdef OutBuffer out = self.out
        cdef Py_ssize_t raw = out.size - began - HEAD, size
        cdef uint8_t* p = out._start + began
        cdef bytes packed = pack(PyBytes_FromStringAndSize(<const char*>p + HEAD, raw))
        size = PyBytes_GET_SIZE(packed)
        if size < raw:
            put_head(p, size, T_DELIVER_PACKED, load32(p + 8))
            memcpy(p + HEAD, PyBytes_AS_STRING(packed), size)
            out.size = began + HEAD + size
        return 0


cdef list split(const uint8_t* p, uint32_t count):
    cdef list records = []
    cdef uint32_t props_size, body_size, i
    for i in range(count):
        props_size = load32(p)
        body_size = load32(p + 4)
        p += RECORD_HEAD
        records.append((PyBytes_FromStringAndSize(<const char*>p, props_size),
                        PyBytes_FromStringAndSize(<const char*>p + props_size, body_size)))
        p += props_size + body_size
    return records


def split_records(bytes records not None, uint32_t count):
    return split(<const uint8_t*>PyBytes_AS_STRING(records), count)


cdef uint32_t slot_of_item(Item* item) noexcept:
    """The slot of a record's ordering key: its header x-key when that is text, else what it was routed by."""
    cdef Batch batch = <Batch>item.batch
    cdef RecordHeader* record = &batch.headers[item.index]
    cdef const uint8_t* key = batch.blob + record.off
    cdef const uint8_t* props = key + record.key
    cdef Py_ssize_t at = 2, end
    if record.enc != ENC_AMQP091:
        return slot_of(key, record.key)
    if record.props >= 6 and props[0] & 0x20:
        if props[0] & 0x80:
            at += 1 + props[at]
        if props[0] & 0x40:
            at += 1 + props[at]
        end = at + 4 + load32(props + at)
        at += 4
        while at < end:
            if props[at] == 5 and memcmp(props + at + 1, b"x-key", 5) == 0 and (
                props[at + 6] == c"S" or props[at + 6] == c"x"
            ):
                return slot_of(props + at + 11, load32(props + at + 7))
            at += 1 + props[at]
            at += 1 + checked_size(props[at], props + at + 1, end - at - 1)
    if record.key < 2 or 2 + key[0] > record.key:
        return slot_of(key, record.key)
    return slot_of(key + 2 + key[0], record.key - 2 - key[0])


cdef class Pull:
    def __cinit__(self, uint32_t request, uint32_t messages, uint32_t size, uint32_t messages_min, uint32_t size_min):
        self.request = request
        self.messages = messages
        self.size = size
        self.messages_min = messages_min
        self.size_min = size_min

    @property
    def complete(self):
        return self.messages <= 0 or self.size <= 0 or (self.got > 0 and self.messages_min <= 0 and self.size_min <= 0)


cdef class Consumer:
    def __cinit__(self, Codec codec not None, uint32_t id, object queue, object host, object room, *, int priority=0,
                  bint auto=False, int64_t unacked_max=50_000, str name="", list ranges=None):
        self.codec = codec
        self.id = id
        self.queue = queue
        self.host = host
        self.room = room
        self.priority = priority
        self.auto = auto
        self.unacked_max = unacked_max
        self.name = name
        self.ranges = ranges or []
        self.pulls = []
        self.first = self.next = 1

    def __dealloc__(self):
        free(self.ring)

    # Credit

    def grant(self, uint32_t messages, uint32_t size):
        self.messages = min(self.messages + messages, <int64_t>1 << 40)
        self.size = min(self.size + size, <int64_t>1 << 40)
        self.feed()

    def pull(self, Pull pull not None):
        self.pulls.append(pull)
        self.feed()

    def end_pull(self, Pull pull not None):
        """It is over, with what it got: say so."""
        cdef uint8_t* p
        if pull in self.pulls:
            self.pulls.remove(pull)
            if pull.timer is not None:
                pull.timer.cancel()
                pull.timer = None
            p = self.codec.out.reserve(HEAD + 8)
            put_head(p, 8, T_PULLED, self.id)
            store32(p + HEAD, pull.request)
            store32(p + HEAD + 4, pull.got)
            self.codec.out.commit(HEAD + 8)
            self.host.dirty()

    def feed(self):
        """It may have credit again."""
        if self.starving and self.attached:
            self.starving = False
            self.queue.credit_gained()

    cpdef Py_ssize_t credit(self) except -1:
        cdef int64_t left = 0
        cdef Pull pull
        if not self.attached:
            return 0
        if self.messages > 0 and self.size > 0:
            left = self.messages
        if self.pulls:
            pull = <Pull>self.pulls[0]
            left += pull.messages
        if not self.auto:
            left = min(left, self.unacked_max - self.unacked)
        if left <= 0:
            self.starving = True
            return 0
        if self.room() <= 0:
            return 0
        return min(<Py_ssize_t>left, <Py_ssize_t>TAKE_MAX)

    # Delivering

    cpdef Py_ssize_t deliver(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step) except -1:
        cdef Py_ssize_t took = 0, n, i = first
        cdef int64_t used = 0
        cdef Pull pull
        cdef Py_ssize_t most = self.credit(), full
        if most <= 0:
            return 0
        if self.cursor is not cursor:
            self.forget()
            self.cursor = cursor
        full = self.codec.out.size + <Py_ssize_t>self.room()
        while i < TAKEN.n and took < most and self.codec.out.size < full:
            if self.messages > 0 and self.size > 0:
                n = self.encode_run(cursor, i, step, min(most - took, <Py_ssize_t>self.messages), self.size, 0, &used)
                self.messages -= n
                self.size -= used
            elif self.pulls:
                pull = <Pull>self.pulls[0]
                n = self.encode_run(cursor, i, step, min(most - took, <Py_ssize_t>pull.messages), pull.size,
                                    pull.request, &used)
                pull.messages -= n
                pull.messages_min -= n
                pull.size -= used
                pull.size_min -= used
                pull.got += <uint32_t>n
                if pull.complete:
                    self.end_pull(pull)
            else:
                break
            took += n
            i += n * step
        self.delivered += took
        self.codec.delivered += took
        if took:
            self.host.dirty()
        return took

    cdef Py_ssize_t encode_run(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step, Py_ssize_t most,
                               int64_t size_most, uint32_t request, int64_t* used) except -1:
        """One DELIVER frame; how many items it has, at least one. `used`: the bytes they count for."""
        cdef OutBuffer out = self.codec.out
        cdef Py_ssize_t began = out.size, i = first, n = 0, total
        cdef Item* item
        cdef Batch batch
        cdef RecordHeader* record
        cdef const uint8_t* blob
        cdef uint8_t* p
        cdef bytes other_key, other_props
        cdef double now = 0 if self.auto else self.host.now()
        out.reserve(HEAD + 16)
        out.commit(HEAD + 16)
        used[0] = 0
        while i < TAKEN.n and n < most and used[0] < size_most and out.size - began < DELIVER_SPLIT:
            item = &TAKEN.items[i]
            batch = <Batch>item.batch
            record = &batch.headers[item.index]
            blob = batch.blob + record.off
            if record.enc == ENC_AMQP091:
                total = DELIVERED_HEAD + record.size
                p = out.reserve(total)
                store16(p + 16, record.key)
                store32(p + 20, record.props)
                memcpy(p + DELIVERED_HEAD, blob, record.size)
            else:
                other_key, other_props = translated(record, blob, batch.base_ts, cursor._log)
                total = (DELIVERED_HEAD + PyBytes_GET_SIZE(other_key) + PyBytes_GET_SIZE(other_props)
                         + record.size - record.key - record.props)
                p = out.reserve(total)
                store16(p + 16, <uint16_t>PyBytes_GET_SIZE(other_key))
                store32(p + 20, <uint32_t>PyBytes_GET_SIZE(other_props))
                memcpy(p + DELIVERED_HEAD, PyBytes_AS_STRING(other_key), PyBytes_GET_SIZE(other_key))
                memcpy(p + DELIVERED_HEAD + PyBytes_GET_SIZE(other_key), PyBytes_AS_STRING(other_props),
                       PyBytes_GET_SIZE(other_props))
                memcpy(p + DELIVERED_HEAD + PyBytes_GET_SIZE(other_key) + PyBytes_GET_SIZE(other_props),
                       blob + record.key + record.props, record.size - record.key - record.props)
            store64(p, batch.base_lsn + item.index)
            store64(p + 8, <uint64_t>(batch.base_ts + record.ts))
            store16(p + 18, min(item.count, <uint16_t>0x7FFF) | (<uint16_t>0x8000 if item.redelivered else 0))
            store32(p + 24, record.size - record.key - record.props)
            if self.auto:
                self.next += 1
                cursor.settle(item.seq)
            else:
                self.hold(item, now)
            out.commit(total)
            used[0] += total
            n += 1
            i += step
        p = out._start + began
        put_head(p, out.size - began - HEAD, T_DELIVER, self.id)
        store64(p + HEAD, self.next - n)
        store32(p + HEAD + 8, <uint32_t>n)
        store32(p + HEAD + 12, request)
        if self.auto:
            self.first = self.next
        if self.codec.packs and out.size - began >= PACK_MIN:
            self.codec.pack_from(began)
        return n

    cdef int hold(self, Item* item, double now) except -1:
        cdef uint64_t capacity, i
        cdef Unacked* grown
        cdef Unacked* entry
        if self.ring == NULL or self.next - self.first > self.mask:
            capacity = 64 if self.ring == NULL else 2 * (self.mask + 1)
            grown = <Unacked*>malloc(capacity * sizeof(Unacked))
            if grown == NULL:
                raise MemoryError
            for i in range(self.first, self.next):
                grown[i & (capacity - 1)] = self.ring[i & self.mask]
            free(self.ring)
            self.ring = grown
            self.mask = capacity - 1
        entry = &self.ring[self.next & self.mask]
        entry.seq = item.seq
        entry.at = now
        entry.count = item.count
        entry.slot = NO_SLOT if self.keys is None else slot_of_item(item)
        entry.out = True
        self.next += 1
        self.unacked += 1
        return 0

    cdef void advance(self) noexcept:
        while self.first < self.next and not self.ring[self.first & self.mask].out:
            self.first += 1

    cdef int done(self, Unacked* entry) except -1:
        """The delivery is not out any more."""
        entry.out = False
        if entry.slot != NO_SLOT:
            self.keys.settled(entry.slot)
        return 0

    def slots(self, Cursor cursor not None):
        """The slots of the items of the last take."""
        cdef Py_ssize_t i
        cdef object made = array("H", bytes(2 * TAKEN.n))
        cdef uint16_t[::1] slots = made
        for i in range(TAKEN.n):
            slots[i] = <uint16_t>slot_of_item(&TAKEN.items[i])
        return made

    # Settling

    def ack(self, uint64_t first, uint64_t last):
        cdef uint64_t tag
        cdef Unacked* entry
        cdef Py_ssize_t n = 0
        if self.next == self.first:
            return 0
        first = max(first, self.first)
        last = min(last, self.next - 1)
        tag = first
        while tag <= last:
            entry = &self.ring[tag & self.mask]
            if entry.out:
                self.cursor.settle(entry.seq)
                self.done(entry)
                n += 1
            tag += 1
        self.unacked -= n
        self.acknowledged += n
        self.codec.acknowledged += n
        self.advance()
        return n

    def nack(self, uint64_t first, uint64_t last, int32_t delay_ms, bint reject):
        cdef uint64_t tag
        cdef Unacked* entry
        cdef Py_ssize_t n = 0
        if self.next == self.first:
            return 0
        first = max(first, self.first)
        last = min(last, self.next - 1)
        tag = first
        while tag <= last:
            entry = &self.ring[tag & self.mask]
            if entry.out:
                n += 1
                if reject:
                    self.cursor.reject(entry.seq)
                elif delay_ms == 0:
                    self.cursor.requeue(entry.seq)
                else:
                    self.host.give_back_later(self, self.cursor, entry.seq, entry.count, delay_ms)
                self.done(entry)
            tag += 1
        self.unacked -= n
        self.advance()
        return n

    def planned(self, uint64_t first, uint64_t last):
        """The tags of [first, last] that await an acknowledgement."""
        cdef list found = []
        cdef uint64_t tag
        first = max(first, self.first)
        tag = first
        while tag <= last and tag < self.next:
            if self.ring[tag & self.mask].out:
                found.append(tag)
            tag += 1
        return found

    def expire(self, double before):
        """Give back what was delivered before that moment; how many."""
        cdef Unacked* entry
        cdef uint64_t tag = self.first
        cdef Py_ssize_t n = 0
        while tag < self.next:
            entry = &self.ring[tag & self.mask]
            if entry.out:
                if entry.at >= before:
                    break
                n += 1
                self.cursor.requeue(entry.seq)
                self.done(entry)
            tag += 1
        self.unacked -= n
        self.advance()
        return n

    def oldest(self):
        """When the oldest unacknowledged delivery was made, in seconds; None: there is none."""
        if self.unacked == 0:
            return None
        return self.ring[self.first & self.mask].at

    def release(self):
        """Give back everything that is not acknowledged; how many."""
        cdef uint64_t tag
        cdef Py_ssize_t n = 0
        for tag in range(self.first, self.next):
            if self.ring[tag & self.mask].out:
                self.cursor.requeue(self.ring[tag & self.mask].seq)
                self.done(&self.ring[tag & self.mask])
                n += 1
        self.forget()
        return n

    def forget(self):
        """Its deliveries are void: the cursor they came from is gone, or they are another's."""
        self.first = self.next
        self.unacked = 0

    def void(self):
        """Its deliveries are void: the subscription goes on elsewhere."""
        self.forget()
        self.host.voided(self)

    def told(self, bint active):
        """Whether it is the active one."""
        self.host.event(self.id, {"event": "active" if active else "inactive"})

    def cancelled(self, str reason):
        """The queue let go of it."""
        self.attached = False
        self.host.cancelled(self, reason)
