# cython: auto_pickle=False
"""The consuming side of the native protocol: deliveries out of the log's batches, and the table of their tags.

Owns what happens per delivered message. All integers are big-endian.

    DELIVER    first tag u64 | count u32 | pull u32 | count records
      record   position u64 | time i64, ms since the epoch | key size u16 | given back u16 (15 bits, and the
               highest: redelivered) | properties size u32 | body size u32 | key block | properties | body
    DELIVER_PACKED   what a DELIVER has, packed (see `packing`)
    DELIVER_STORED   first tag u64 | first position u64 | count u32 | pull u32 = 0 | batches as they are stored
    PULLED     request u32 | messages u32

Delivery tags count from 1 per consumer, in the order of delivery (`_in_flight`). Acknowledgements of deliveries that
were settled or taken back before are ignored.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from array import array

from penstock.log_core.batch._batch cimport ENC_AMQP091, Batch, RecordHeader
from penstock.protocols.properties._tables cimport load32, store16, store32, store64, text_header
from penstock.protocols.properties._translated cimport translated
from penstock.protocols.native.codec._frames cimport (
    HEAD,
    T_DELIVER,
    T_DELIVER_PACKED,
    T_DELIVER_STORED,
    T_PULLED,
    put_head,
)
from penstock.protocols.native.codec._in_flight cimport Held, Unacked
from penstock.protocols.native.codec.packing import pack
from penstock.protocols.properties._taken_keys import taken_slots
from penstock.protocols.net.outbuffer cimport FILE_BYTES, OutBuffer
from penstock.log_core.reading._resident cimport Place, Run
from penstock.log_core.segments._segment_file cimport Stretch
from penstock.subscriptions.tick._stored_batches cimport BatchConsumer, Next, find_run, goes_on, next_batch, next_run, read_run, take_whole
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._take_result cimport TAKEN, Item

cdef enum:
    DELIVERED_HEAD = 28
    STORED_HEAD = 24
    DELIVER_SPLIT = 262144      # a delivery goes on in another frame from this size on
    TAKE_MAX = 1024             # items a cursor gives at once
    RUN_BYTES = 2097152         # that go at once out of the page cache, or one batch:
    BATCH_MOST = 4194304        # more than a batch of several records has
    REST_MIN = 16               # records of a batch behind which to stop, so that the next one can be taken whole
    PACK_MIN = 512              # bytes of a delivery that is worth compressing
    PULLS_KEPT = 16             # that are over


cdef class Outgoing:
    def __cinit__(self, OutBuffer out not None):
        self.out = out
        self.packs = ""

    cdef int pack_from(self, Py_ssize_t began) except -1:
        """Compress the delivery that is the output from there on, if that makes it smaller."""
        cdef OutBuffer out = self.out
        cdef Py_ssize_t raw = out.size - began - HEAD, size
        cdef uint8_t* p = out._start + began
        cdef bytes packed = pack(PyBytes_FromStringAndSize(<const char*>p + HEAD, raw), self.packs)
        size = PyBytes_GET_SIZE(packed)
        if size < raw:
            put_head(p, size, T_DELIVER_PACKED, load32(p + 8))
            memcpy(p + HEAD, PyBytes_AS_STRING(packed), size)
            out.size = began + HEAD + size
        return 0


cdef size_t bounded(size_t capacity, size_t least, size_t most) noexcept:
    """Bytes of a run: as many as there is room for, but a first batch of `least` bytes, which are at most `most`."""
    return max(min(min(capacity, <size_t>RUN_BYTES), most), least)


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

    def __lt__(self, Pull other not None):
        return self.due < other.due or (self.due == other.due and self.number < other.number)


cdef class Consumer(BatchConsumer):
    def __cinit__(self, Outgoing outgoing not None, uint32_t id, object queue, object host, object output_capacity, *, int priority=0,
                  bint auto=False, int64_t unacked_max=50_000, str name="", list ranges=None):
        self.outgoing = outgoing
        self.id = id
        self.queue = queue
        self.host = host
        self.output_capacity = output_capacity
        self.priority = priority
        self.auto = auto
        self.unacked_max = unacked_max
        self.name = name
        self.ranges = ranges or []
        self.waiting = []
        self.held = Held()

    @property
    def first(self):
        return self.held.first

    @property
    def next(self):
        return self.held.next

    @property
    def unacked(self):
        return self.held.unacked

    # Credit

    def grant(self, uint32_t messages, uint32_t size):
        self.messages = min(self.messages + messages, <int64_t>1 << 40)
        self.window = max(self.window, self.messages)
        self.size = min(self.size + size, <int64_t>1 << 40)
        self.size_window = max(self.size_window, self.size)
        self.feed()

    def pull(self, Pull pull not None):
        self.waiting.append(pull)
        self.pulls += 1
        self.outgoing.pulls += 1
        self.outgoing.pulled += 1
        pull.number = self.outgoing.pulled
        self.feed()

    def end_pull(self, Pull pull not None):
        """It is over, with what it got: say so."""
        cdef uint8_t* p
        cdef Pull one
        if pull.over:
            return
        pull.over = True
        self.pulls -= 1
        self.outgoing.pulls -= 1
        # Those that end stay in their places until more are over than wait: none is looked for, few are moved.
        if len(self.waiting) > 2 * self.pulls + PULLS_KEPT:
            self.waiting = [one for one in self.waiting[self.first_pull:] if not one.over]
            self.first_pull = 0
        p = self.outgoing.out.reserve(HEAD + 8)
        put_head(p, 8, T_PULLED, self.id)
        store32(p + HEAD, pull.request)
        store32(p + HEAD + 4, pull.got)
        self.outgoing.out.commit(HEAD + 8)
        self.host.dirty()

    def end_pulls(self):
        """All that wait are over, with what they got."""
        for pull in self.waiting[self.first_pull:]:
            self.end_pull(pull)

    cdef Pull oldest_pull(self):
        """That waits; there is one."""
        while (<Pull>self.waiting[self.first_pull]).over:
            self.first_pull += 1
        return <Pull>self.waiting[self.first_pull]

    def feed(self):
        """It may have credit again."""
        if self.starving and self.attached:
            self.starving = False
            self.queue.credit_gained(self)

    cpdef Py_ssize_t credit(self) except -1:
        cdef int64_t left = 0
        cdef Pull pull
        if not self.attached or self.paused:
            return 0
        if self.messages > 0 and self.size > 0:
            left = self.messages
        if self.pulls:
            pull = self.oldest_pull()
            left += pull.messages
        if not self.auto:
            left = min(left, self.unacked_max - self.held.unacked)
        if left <= 0:
            self.starving = True
            return 0
        if self.output_capacity() <= 0:
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
        full = self.outgoing.out.size + <Py_ssize_t>self.output_capacity()
        while i < TAKEN.n and took < most and self.outgoing.out.size < full:
            if self.messages > 0 and self.size > 0:
                n = self.encode_run(cursor, i, step, min(most - took, <Py_ssize_t>self.messages), self.size, 0, &used)
                self.messages -= n
                self.size -= used
            elif self.pulls:
                pull = self.oldest_pull()
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
        self.outgoing.delivered += took
        if took:
            self.delivers()
        return took

    cdef int delivers(self) except -1:
        """Something was encoded, and may be out."""
        cdef object watch = self.watch
        if watch is not None and self.held.unacked:
            self.watch = None
            watch()
        self.host.dirty()
        return 0

    cdef Py_ssize_t encode_run(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step, Py_ssize_t most,
                               int64_t size_most, uint32_t request, int64_t* used) except -1:
        """One DELIVER frame; how many items it has, at least one. `used`: the bytes they count for."""
        cdef OutBuffer out = self.outgoing.out
        cdef Py_ssize_t began = out.size, i = first, n = 0, total
        cdef Item* item
        cdef Unacked* entry
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
                self.held.skip(1)
                cursor.settle(item.seq)
            else:
                entry = self.held.add()
                entry.seq = item.seq
                entry.at = now
                entry.count = item.count
            out.commit(total)
            used[0] += total
            n += 1
            i += step
        p = out._start + began
        put_head(p, out.size - began - HEAD, T_DELIVER, self.id)
        store64(p + HEAD, self.held.next - n)
        store32(p + HEAD + 8, <uint32_t>n)
        store32(p + HEAD + 12, request)
        if self.outgoing.packs and out.size - began >= PACK_MIN:
            self.outgoing.pack_from(began)
        return n

    def peer(self):
        return self.host.name()

    cpdef Py_ssize_t deliver_batch(self, Cursor cursor) except -1:
        """The next batch, or a run of them, as it is stored. Calls that can fail come before it is taken."""
        cdef Next next
        cdef Batch batch
        # A batch that is small beside the credit may overdraw it: else each window would end with one taken apart.
        cdef int64_t most = self.messages + self.window // 4, size_most = self.size + self.size_window // 4
        cdef Py_ssize_t took
        cdef uint8_t* p
        if not self.outgoing.stores or self.outgoing.packs or self.pulls or self.messages <= 0 or self.size <= 0:
            return 0
        if not self.auto:
            most = min(most, self.unacked_max - self.held.unacked)
        if self.place is not None and goes_on(cursor, self.place):
            took = self.deliver_run(cursor, most, size_most)
            if took:
                return took
        next.small = self.small
        batch = next_batch(cursor, most, &next)
        if batch is None:
            return self.deliver_run(cursor, most, size_most) if next.rest < REST_MIN else -<Py_ssize_t>next.rest
        if DELIVERED_HEAD * <int64_t>batch.count + <int64_t>batch.header.blob_raw > size_most:
            return 0
        p = self.outgoing.out.reserve(HEAD + STORED_HEAD + batch.nbytes) + HEAD + STORED_HEAD
        memcpy(p, batch.header, batch.head_size)
        memcpy(p + batch.head_size, batch.blob, batch.nbytes - batch.head_size)
        self.small = next.small
        return self.put_stored(cursor, p, batch.nbytes, None, batch.base_lsn, batch.count, batch.header.blob_raw)

    cdef Py_ssize_t deliver_run(self, Cursor cursor, Py_ssize_t most, int64_t size_most) except -1:
        """A batch that is not in memory, or follows one that was not, goes out of the page cache, if it need not be waited
        for: as a stretch of its file, or read to where it is sent from."""
        cdef Next next
        cdef Run run
        cdef Py_ssize_t capacity = self.output_capacity()
        cdef size_t size
        cdef uint8_t* p
        cdef Stretch stretch
        if self.place is None:
            self.place = Place()
        next.small = self.small
        size = next_run(cursor, self.place, most, &next)
        # Not compressed: in a DELIVER its messages are smaller than their batch is.
        if size == 0 or size > BATCH_MOST or <int64_t>size > size_most:
            return 0
        if self.outgoing.out.takes_files:
            stretch = find_run(cursor, self.place, &next,
                               bounded(<size_t>(FILE_BYTES * capacity), size, <size_t>size_most), &run)
            if stretch is not None:
                self.small = next.small
                p = self.outgoing.out.reserve(HEAD + STORED_HEAD) + HEAD + STORED_HEAD
                return self.put_stored(cursor, p, stretch.size, stretch, next.first, run.count, run.blobs)
        capacity = <Py_ssize_t>bounded(<size_t>capacity, size, <size_t>size_most)
        p = self.outgoing.out.reserve(HEAD + STORED_HEAD + capacity) + HEAD + STORED_HEAD
        size = read_run(cursor, self.place, &next, p, capacity, &run)
        if size == 0:
            return 0
        self.small = next.small
        return self.put_stored(cursor, p, size, None, next.first, run.count, run.blobs)

    cdef Py_ssize_t put_stored(self, Cursor cursor, uint8_t* p, size_t size, Stretch stretch, uint64_t first,
                               uint32_t count, uint64_t blobs) except -1:
        """Batches of `size` bytes lie at p in the output, behind room for their heads, or are the stretch: take them."""
        cdef uint64_t seq
        if self.cursor is not cursor:
            self.forget()
            self.cursor = cursor
        if not self.auto:
            self.held.reserve(count)
        seq = take_whole(cursor, first, count, self.auto)
        put_head(p - STORED_HEAD - HEAD, STORED_HEAD + size, T_DELIVER_STORED, self.id)
        store64(p - 24, self.held.next)
        store64(p - 16, first)
        store32(p - 8, count)
        store32(p - 4, 0)
        if stretch is None:
            self.outgoing.out.commit(HEAD + STORED_HEAD + size)
        else:
            self.outgoing.out.commit(HEAD + STORED_HEAD)
            self.outgoing.out.attach(stretch)
        if self.auto:
            self.held.skip(count)
        else:
            self.held.add_all(seq, count, self.host.now())
        self.messages -= count
        self.size -= DELIVERED_HEAD * <int64_t>count + <int64_t>blobs     # as in a DELIVER
        self.delivered += count
        self.outgoing.delivered += count
        self.delivers()
        return count

    def slots(self, Cursor cursor not None):
        """The slots of the items of the last take."""
        return taken_slots()

    # Settling

    cdef Py_ssize_t end(self, uint64_t first, uint64_t last, Fate fate, int32_t delay_ms) except -1:
        """The deliveries of these tags that are out are not any more; how many."""
        cdef Held held = self.held
        cdef uint64_t tag = first, seq, run
        cdef uint64_t behind = min(last, held.next - 1) + 1
        cdef uint16_t count
        cdef Unacked* entry
        cdef Py_ssize_t n = 0
        while fate == DONE:
            run = held.settle_run(&tag, behind, &seq)
            if run == 0:
                return n
            self.cursor.settle_run(seq, run)
            n += run
        while True:
            entry = held.find(&tag, behind)
            if entry == NULL:
                return n
            seq = entry.seq
            count = entry.count
            held.settled(entry, tag)
            tag += 1
            n += 1
            if fate == REJECTED:
                self.cursor.reject(seq)
            elif delay_ms == 0:
                self.cursor.requeue(seq)
            else:
                self.cursor.unhold(seq)
                self.host.give_back_later(self, self.cursor, seq, count, delay_ms)

    def ack(self, uint64_t first, uint64_t last):
        cdef Py_ssize_t n = self.end(first, last, DONE, 0)
        self.acknowledged += n
        self.outgoing.acknowledged += n
        return n

    def nack(self, uint64_t first, uint64_t last, int32_t delay_ms, bint reject):
        return self.end(first, last, REJECTED if reject else GIVEN_BACK, delay_ms)

    def count_out(self, uint64_t first, uint64_t last):
        cdef uint64_t tag = first, behind = min(last, self.held.next - 1) + 1
        cdef Py_ssize_t n = 0
        while self.held.find(&tag, behind) != NULL:
            tag += 1
            n += 1
        return n

    def extend(self, uint64_t first, uint64_t last):
        cdef uint64_t tag = first, behind = min(last, self.held.next - 1) + 1
        cdef double now = self.host.now()
        cdef Unacked* entry
        cdef Py_ssize_t n = 0
        while True:
            entry = self.held.find(&tag, behind)
            if entry == NULL:
                break
            entry.at = now
            tag += 1
            n += 1
        self.extended = self.extended or n > 0
        return n

    def expire(self, double before):
        """Give back what was delivered, or extended, before that moment; how many."""
        cdef uint64_t tag = 0
        cdef Unacked* entry
        cdef Py_ssize_t n = 0
        self.extended = self.extended and self.held.unacked > 0
        while True:
            entry = self.held.find(&tag, self.held.next)
            if entry == NULL or (entry.at >= before and not self.extended):
                return n
            if entry.at < before:
                n += self.end(tag, tag, GIVEN_BACK, 0)
            tag += 1

    def oldest(self):
        """When the oldest unacknowledged delivery was made, or extended, in seconds; None: there is none."""
        cdef double found = 0
        cdef uint64_t tag = 0
        cdef Unacked* entry = self.held.find(&tag, self.held.next)
        if entry == NULL:
            return None
        found = entry.at
        while self.extended and entry != NULL:
            found = min(found, entry.at)
            tag += 1
            entry = self.held.find(&tag, self.held.next)
        return found

    def release(self):
        """Give back everything that is not acknowledged; how many."""
        cdef Py_ssize_t n = self.end(0, self.held.next - 1, GIVEN_BACK, 0)
        self.forget()
        return n

    def forget(self):
        """Its deliveries are void: the cursor they came from is gone, or they are another's."""
        self.held.forget()

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
