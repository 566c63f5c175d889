"""A channel's state in C: unacknowledged deliveries, a message under way; and its consumers.

Owns what happens per message on a channel outside of scanning: encoding deliveries out of the log's batches, the
table of delivery tags. Knows no socket and no queue's inside; the scanner is `_codec.pyx`, the frames are
`_frames.pyx`'s, the numbers of publisher confirms `_confirms.pyx`'s, everything rare is the session's.

Deliveries. A record born in AMQP is copied: its key block is already the two short strings exchange and routing key,
its properties block the content header from the flags on. Records of other protocols go through `protocols.properties.translate`.
Arguments of basic.deliver: consumer tag s | delivery-tag u64 | redelivered u8 | key block.

Delivery tags count from 1 per channel. Unacknowledged deliveries stand in a ring by tag, which begins at the
oldest unsettled tag; the entry owns its cursor, so that a deleted queue's deliveries can still be settled (into
nothing). Deliveries without acknowledgement use up a tag and leave an empty entry only if the ring is not empty.

A consumer of a stream tells each message's offset in one more header, x-stream-offset.

Transactions. On a transactional channel an acknowledgement is planned: its delivery stays out and holds its credit until
`settle_planned`, or is free to be acknowledged again after `drop_planned`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF, Py_DECREF
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from penstock.log_core.batch._batch cimport ENC_AMQP091, F_SECTIONS, Batch, RecordHeader
from penstock.log_core.feeds._feed cimport Feed
from penstock.protocols.properties._tables cimport load32, store32, store64
from penstock.protocols.properties._translated cimport translated
from penstock.protocols.amqp.codec._frames cimport (
    DELIVER, FRAME_END, GET_OK, METHOD_HEAD, begin_method, count_entry, offset_entry, put_content, put_return, with_entry,
)
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.tick._fast_path cimport Served, FastPath
from penstock.subscriptions.cursor._take_result cimport COUNTED, TAKEN, Item

from penstock.protocols.properties.editing import without_header
from penstock.protocols.properties.properties import SECTIONS_HEADER

cdef enum:
    HEADERS = 0x20              # in the first byte of a properties block
    TAKE_MAX = 1024             # items a cursor gives at once
    BODY_FIRST = 65536          # first size of a body buffer; it grows with what arrives


cdef class Channel(Confirms):
    def __cinit__(self, int number, OutBuffer out not None, uint32_t frame_max, object owner, object dirty):
        if frame_max < 64:
            raise ValueError("a frame has at least 64 bytes")
        self.body_max = frame_max - 8
        self.owner = owner
        self.dirty = dirty
        self.first_tag = self.next_tag = 1
        self.starved = []
        self.waiting = []
        self.granted = []

    def let_go(self):
        self.owner = self.give_back = self.tap = None

    def __dealloc__(self):
        cdef uint64_t tag
        cdef Unacked* entry
        if self.unacked != NULL:
            for tag in range(self.first_tag, self.next_tag):
                entry = &self.unacked[tag & self.unacked_mask]
                Py_XDECREF(entry.cursor)
                Py_XDECREF(entry.consumer)
        free(self.unacked)
        free(self.props)
        free(self.body)

    # Content under way

    cdef int begin_content(self, const uint8_t* key, uint16_t key_size, uint8_t bits) except -1:
        memcpy(self.key, key, key_size)
        self.key_size = key_size
        self.bits = bits
        self.phase = HEADER
        return 0

    cdef int keep_header(self, const uint8_t* props, uint32_t size, uint64_t body_size) except -1:
        cdef uint8_t* grown
        if size > self.props_capacity:
            grown = <uint8_t*>realloc(self.props, size)
            if grown == NULL:
                raise MemoryError
            self.props = grown
            self.props_capacity = size
        memcpy(self.props, props, size)
        self.props_size = size
        self.body_size = body_size
        self.body_have = 0
        self.phase = BODY
        return 0

    cdef int keep_body(self, const uint8_t* p, uint64_t n) except -1:
        """Append; the caller has checked the running sum against body_size."""
        cdef uint64_t capacity = self.body_capacity
        cdef uint8_t* grown
        if n == 0:
            return 0
        if self.body_have + n > capacity:
            capacity = max(2 * capacity, <uint64_t>BODY_FIRST)
            if capacity > self.body_size:
                capacity = self.body_size
            if capacity < self.body_have + n:
                capacity = self.body_have + n
            grown = <uint8_t*>realloc(self.body, capacity)
            if grown == NULL:
                raise MemoryError
            self.body = grown
            self.body_capacity = capacity
        memcpy(self.body + self.body_have, p, n)
        self.body_have += n
        return 0

    cdef void end_content(self) noexcept:
        self.phase = IDLE
        if self.body_capacity > BODY_FIRST:
            free(self.body)
            self.body = NULL
            self.body_capacity = 0
        self.body_have = self.body_size = 0

    # Deliveries

    cdef uint64_t hold(self, PyObject* cursor, PyObject* consumer, uint64_t seq) except 0:
        """The next delivery tag; what it delivers awaits an acknowledgement."""
        cdef uint64_t tag = self.next_tag, capacity, i
        cdef Unacked* grown
        cdef Unacked* entry
        if self.unacked == NULL or tag - self.first_tag > self.unacked_mask:
            capacity = 32 if self.unacked == NULL else 2 * (self.unacked_mask + 1)
            grown = <Unacked*>malloc(capacity * sizeof(Unacked))
            if grown == NULL:
                raise MemoryError
            for i in range(self.first_tag, tag):
                grown[i & (capacity - 1)] = self.unacked[i & self.unacked_mask]
            free(self.unacked)
            self.unacked = grown
            self.unacked_mask = capacity - 1
        entry = &self.unacked[tag & self.unacked_mask]
        entry.cursor = cursor
        entry.consumer = consumer
        entry.seq = seq
        if cursor != NULL:
            Py_INCREF(<object>cursor)
        if consumer != NULL:
            Py_INCREF(<object>consumer)
            (<Consumer>consumer).in_flight += 1
            self.outstanding += 1
        self.next_tag = tag + 1
        return tag

    cdef uint64_t skip_tag(self) except 0:
        """The next delivery tag, for a delivery that is not acknowledged."""
        cdef uint64_t tag = self.next_tag
        if tag == self.first_tag:
            self.first_tag = self.next_tag = tag + 1
            return tag
        # Others before it are still out: an empty entry keeps the ring without gaps.
        return self.hold(NULL, NULL, 0)

    cdef int finish(self, Unacked* entry, int how) except -1:
        cdef Cursor cursor = <Cursor>entry.cursor
        cdef Consumer consumer
        cdef uint64_t seq = entry.seq
        Py_DECREF(cursor)
        entry.cursor = NULL
        if entry.consumer != NULL:
            consumer = <Consumer>entry.consumer
            Py_DECREF(consumer)
            entry.consumer = NULL
            consumer.in_flight -= 1
            self.outstanding -= 1
        if how == ACKED:
            self.acked += 1
            cursor.settle(seq)
        elif how == REQUEUED and self.give_back is not None:
            self.give_back(cursor, seq)
        elif how != DROPPED:
            cursor.requeue(seq)
        else:
            cursor.reject(seq)
        return 0

    cdef int settle(self, uint64_t tag, bint multiple, int how) except -1:
        """Ends one delivery, or all up to `tag` (0 = all). 1, or 0: the tag is unknown and nothing changed."""
        cdef uint64_t t
        cdef Unacked* entry
        if tag == 0:
            if not multiple:
                return 0
            if self.next_tag == self.first_tag:
                return 1
            tag = self.next_tag - 1
        elif tag < self.first_tag or tag >= self.next_tag or self.unacked[tag & self.unacked_mask].cursor == NULL:
            return 0
        if multiple:
            for t in range(self.first_tag, tag + 1):
                entry = &self.unacked[t & self.unacked_mask]
                if entry.cursor != NULL:
                    self.finish(entry, how)
            self.first_tag = tag + 1
        else:
            self.finish(&self.unacked[tag & self.unacked_mask], how)
        self.advance()
        return 1

    cdef void advance(self) noexcept:
        """The ring begins at the oldest delivery that is not settled."""
        while self.first_tag < self.next_tag and self.unacked[self.first_tag & self.unacked_mask].cursor == NULL:
            self.first_tag += 1

    def requeue_all(self):
        """Give back every delivery that is neither settled nor, on an open channel, planned to be; how many."""
        cdef uint64_t t
        cdef Py_ssize_t n = 0
        cdef Unacked* entry
        if self.closing:
            self.drop_planned()
        for t in range(self.first_tag, self.next_tag):
            entry = &self.unacked[t & self.unacked_mask]
            if entry.cursor != NULL and not (self.planned and t in self.planned):
                self.finish(entry, RETURNED)
                n += 1
        self.advance()
        return n

    def queues_before(self, uint64_t tag):
        """The queues, each once, that have deliveries out with tags below `tag`."""
        cdef uint64_t t
        cdef Unacked* entry
        cdef dict queues = {}
        for t in range(self.first_tag, min(tag, self.next_tag)):
            entry = &self.unacked[t & self.unacked_mask]
            if entry.cursor != NULL and (<Cursor>entry.cursor).queue is not None:
                queues[(<Cursor>entry.cursor).queue] = None
        return list(queues)

    # Transactions

    def tx_select(self):
        """Plan acknowledgements from now on. Idempotent."""
        if not self.transactional:
            self.transactional = True
            self.planned = {}

    cdef int plan(self, uint64_t tag, bint multiple, int how) except -1:
        """`settle` for a transaction; what is planned already is not known a second time."""
        cdef uint64_t t
        if tag == 0:
            if not multiple:
                return 0
            if self.next_tag == self.first_tag:
                return 1
            tag = self.next_tag - 1
        elif (
            tag < self.first_tag
            or tag >= self.next_tag
            or self.unacked[tag & self.unacked_mask].cursor == NULL
            or tag in self.planned
        ):
            return 0
        for t in range(self.first_tag if multiple else tag, tag + 1):
            if self.unacked[t & self.unacked_mask].cursor != NULL and t not in self.planned:
                self.planned[t] = how
        return 1

    def settle_planned(self):
        """End what was planned; the queues it came from that are still there, each once."""
        cdef dict planned = self.planned
        cdef dict queues = {}
        cdef uint64_t tag
        cdef int how
        cdef Unacked* entry
        self.planned = {}
        for tag, how in planned.items():
            entry = &self.unacked[tag & self.unacked_mask]
            queues[(<Cursor>entry.cursor).queue] = None
            self.finish(entry, how)
        self.advance()
        queues.pop(None, None)          # of queues that were deleted meanwhile
        return list(queues)

    def drop_planned(self):
        """Forget what was planned: these deliveries await their acknowledgement again."""
        if self.transactional:
            self.planned = {}

    @property
    def unacked_count(self):
        """Deliveries that are not settled, basic.get's included."""
        cdef uint64_t t
        cdef Py_ssize_t n = 0
        for t in range(self.first_tag, self.next_tag):
            n += self.unacked[t & self.unacked_mask].cursor != NULL
        return n

    cpdef feed_starved(self):
        """Tell the queues of the consumers that had no credit that they may have some again."""
        cdef Consumer consumer
        cdef FastPath way
        starved, self.starved = self.starved, []
        for consumer in starved:
            consumer.starving = False
            if consumer.attached:
                way = (<Served>consumer.queue).fast_path if isinstance(consumer.queue, Served) else None
                if way is not None:
                    way.wake()          # it is the only one
                else:
                    consumer.queue.credit_gained(consumer)
        if self.waiting:
            self.grant()

    # The shared limit. Consumers of a channel take turns: the one that got nothing for longest gets a share first, and
    # keeps it until the queues that were woken have been served. The rest goes to those behind them. Without
    # turns a queue that is always fed would take each credit that an acknowledgement frees.

    cdef Py_ssize_t free_for(self, Consumer consumer) except -1:
        """How much of the shared limit a consumer may use now."""
        cdef Py_ssize_t free = <Py_ssize_t>self.limit - <Py_ssize_t>self.outstanding
        if not self.granted:
            return 0 if self.waiting else free
        return min(consumer.share, free)

    cdef int grant(self) except -1:
        """Share what is free among those that wait longest, and wake their queues."""
        cdef Consumer consumer
        cdef Py_ssize_t free, n, share
        if self.granted:
            return 0                # the tick comes back to it: see pump
        self.waiting = sorted([one for one in self.waiting if (<Consumer>one).attached], key=_served)
        n = len(self.waiting)
        if self.limit:
            free = <Py_ssize_t>self.limit - <Py_ssize_t>self.outstanding
            n = min(n, free)
        else:
            free = n * TAKE_MAX
        if n <= 0:
            return 0
        self.granted, self.waiting = self.waiting[:n], self.waiting[n:]
        share = free // n
        for consumer in self.granted:
            consumer.waits = False
            consumer.share = share
            consumer.queue.credit_gained(consumer)
        consumer = self.granted[n - 1]
        consumer.queue.pump_behind(self)
        return 0

    def pump(self):
        """Called by the tick behind the queues that were woken: shares lapse, and others get what is left."""
        cdef Consumer consumer
        granted, self.granted = self.granted, []
        for consumer in granted:
            consumer.share = 0
        if self.waiting and not self.closing:
            self.grant()

    cdef int encode(self, OutBuffer out, uint16_t method, const uint8_t* head, Py_ssize_t head_size, Cursor cursor,
                    Item* item, const uint8_t* tail, Py_ssize_t tail_size, uint64_t tag, bytes entry) except -1:
        """basic.deliver or basic.get-ok of one item: head | tag | redelivered | key block | tail, then content."""
        cdef Batch batch = <Batch>item.batch
        cdef RecordHeader* record = &batch.headers[item.index]
        cdef const uint8_t* blob = batch.blob + record.off
        cdef const uint8_t* key = blob
        cdef const uint8_t* props = blob + record.key
        cdef uint32_t props_size = record.props
        cdef Py_ssize_t key_size = record.key, size
        cdef uint8_t* p
        cdef bytes other_key, other_props
        if record.enc != ENC_AMQP091:
            other_key, other_props = translated(record, blob, batch.base_ts, cursor._log)
            key = <const uint8_t*>PyBytes_AS_STRING(other_key)
            key_size = PyBytes_GET_SIZE(other_key)
            props = <const uint8_t*>PyBytes_AS_STRING(other_props)
            props_size = <uint32_t>PyBytes_GET_SIZE(other_props)
        if record.flags & F_SECTIONS:
            other_props = without_header(props[:props_size], SECTIONS_HEADER)
            props = <const uint8_t*>PyBytes_AS_STRING(other_props)
            props_size = <uint32_t>PyBytes_GET_SIZE(other_props)
        if item.redelivered == COUNTED:
            if props[0] & HEADERS:          # it may bring a count of another queue
                other_props = without_header(props[:props_size], "x-delivery-count")
                props = <const uint8_t*>PyBytes_AS_STRING(other_props)
                props_size = <uint32_t>PyBytes_GET_SIZE(other_props)
            entry = count_entry(item.count)
        if entry is not None:
            other_props = with_entry(props, props_size, entry)
            props = <const uint8_t*>PyBytes_AS_STRING(other_props)
            props_size = <uint32_t>PyBytes_GET_SIZE(other_props)
        size = head_size + 9 + key_size + tail_size
        p = begin_method(out, self.number, method, size)
        if head_size:
            memcpy(p, head, head_size)
            p += head_size
        store64(p, tag)
        p[8] = item.redelivered != 0
        self.redelivered += p[8]
        memcpy(p + 9, key, key_size)
        p += 9 + key_size
        if tail_size:
            memcpy(p, tail, tail_size)
            p += tail_size
        p[0] = FRAME_END
        out.commit(METHOD_HEAD + size + 1)
        return put_content(out, self.number, self.body_max, props, props_size, blob + record.key + record.props,
                           <uint64_t>(record.size - record.key - record.props))

    def encode_get(self, Cursor cursor not None, bint no_ack, left not None):
        """basic.get-ok of TAKEN.items[0] as bytes. Without acknowledgement it is settled.

        `left` tells how many messages remain; it may look at the queue, which overwrites TAKEN.
        """
        cdef OutBuffer out = OutBuffer()
        cdef uint8_t tail[4]
        cdef uint8_t* p
        cdef Item* item = &TAKEN.items[0]
        cdef uint64_t tag, seq = item.seq
        cdef bytes answer
        store32(tail, 0)
        tag = self.skip_tag() if no_ack else self.hold(<PyObject*>cursor, NULL, seq)
        self.encode(out, GET_OK, NULL, 0, cursor, item, tail, 4, tag, None)
        if self.tap is not None:
            self.tap(cursor.queue, <Batch>item.batch, item.index, item.redelivered != 0)
        self.delivered += 1
        self.got += 1
        if no_ack:
            self.got_auto += 1
            cursor.settle(seq)
        answer = out.take()
        p = <uint8_t*>PyBytes_AS_STRING(answer)     # nobody else has it yet; the count ends the method's frame
        store32(p + METHOD_HEAD + load32(p + 3) - 8, <uint32_t>left())
        return answer

    def encode_direct(self, bytes tag not None, bytes key not None, bytes props not None, bytes body not None):
        """basic.deliver of a message that is in no queue, into the output. It awaits no acknowledgement."""
        cdef Py_ssize_t tag_size = PyBytes_GET_SIZE(tag), key_size = PyBytes_GET_SIZE(key)
        cdef Py_ssize_t size = 1 + tag_size + 9 + key_size
        cdef uint64_t number
        cdef uint8_t* p
        if tag_size > 255:
            raise ValueError("a consumer tag has at most 255 bytes")
        number = self.skip_tag()
        p = begin_method(self.out, self.number, DELIVER, size)
        p[0] = <uint8_t>tag_size
        memcpy(p + 1, PyBytes_AS_STRING(tag), tag_size)
        p += 1 + tag_size
        store64(p, number)
        p[8] = 0
        memcpy(p + 9, PyBytes_AS_STRING(key), key_size)
        p[9 + key_size] = FRAME_END
        self.out.commit(METHOD_HEAD + size + 1)
        put_content(self.out, self.number, self.body_max, <const uint8_t*>PyBytes_AS_STRING(props),
                    <uint32_t>PyBytes_GET_SIZE(props), <const uint8_t*>PyBytes_AS_STRING(body),
                    <uint64_t>PyBytes_GET_SIZE(body))
        self.delivered += 1

    def encode_return(self, uint16_t code, bytes text not None, bytes key not None, bytes props not None,
                      bytes body not None):
        """basic.return of a whole message, into the output."""
        put_return(self.out, self.number, self.body_max, code, text, <const uint8_t*>PyBytes_AS_STRING(key),
                   PyBytes_GET_SIZE(key), <const uint8_t*>PyBytes_AS_STRING(props), <uint32_t>PyBytes_GET_SIZE(props),
                   <const uint8_t*>PyBytes_AS_STRING(body), <uint64_t>PyBytes_GET_SIZE(body))


def _served(Consumer consumer not None):
    return consumer.served


cdef class Consumer:
    def __cinit__(self, Channel channel not None, bytes tag not None, object queue, bint no_ack, uint64_t limit,
                  int priority, object output_capacity, object on_cancelled):
        if PyBytes_GET_SIZE(tag) > 255:
            raise ValueError("a consumer tag has at most 255 bytes")
        self.channel = channel
        self.tag = tag
        self.queue = queue
        self.no_ack = no_ack
        self.limit = limit
        self.priority = priority
        self.output_capacity = output_capacity
        self.on_cancelled = on_cancelled
        self.head[0] = <uint8_t>PyBytes_GET_SIZE(tag)
        memcpy(&self.head[1], PyBytes_AS_STRING(tag), PyBytes_GET_SIZE(tag))
        self.head_size = 1 + PyBytes_GET_SIZE(tag)

    def peer(self):
        return "" if self.named is None else self.named()

    cdef Py_ssize_t room(self) except -1:
        """Messages it would take now."""
        cdef Py_ssize_t left = TAKE_MAX, shared
        cdef Channel channel = self.channel
        if channel.closing or not self.attached:
            return 0
        if self.limit and not self.no_ack:
            left = min(left, <Py_ssize_t>self.limit - <Py_ssize_t>self.in_flight)
            if left <= 0:
                if not self.starving:
                    self.starving = True
                    channel.starved.append(self)
                return 0
        if channel.limit:
            # One without acknowledgement uses nothing of the shared limit, but gets nothing while it is used up.
            shared = channel.free_for(self)
            if shared <= 0:
                if not self.waits:
                    self.waits = True
                    channel.waiting.append(self)
                return 0
            if not self.no_ack:
                left = min(left, shared)
        if self._output_capacity() <= 0:
            return 0
        return left

    cdef int send_out(self) except -1:
        if self.channel.sink is not None:
            self.channel.sink.send_out()
        return 0

    cdef Py_ssize_t _output_capacity(self) except -1:
        """Bytes that its connection may still encode."""
        return self.output_capacity() if self.channel.sink is None else self.channel.sink._output_capacity()

    cdef Py_ssize_t put(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step) except -1:
        """Encode items first, first + step ... of `cursor`; how many."""
        cdef Channel channel = self.channel
        cdef OutBuffer out = channel.out
        cdef Py_ssize_t i = first, took = 0, most = self.room(), full
        cdef Item* item
        cdef uint64_t tag
        cdef bytes offset = None
        if most <= 0:
            return 0
        full = out.size + self._output_capacity()
        while i < TAKEN.n and took < most and out.size < full:
            item = &TAKEN.items[i]
            if self.offsets is not None:
                if self.wanted is not None and not self.wanted(<Batch>item.batch, item.index):
                    cursor.settle(item.seq)
                    took += 1
                    i += step
                    continue
                offset = offset_entry(self.offset_base + <int64_t>self.offsets.index_of(
                    (<Batch>item.batch).base_lsn + item.index))
            tag = channel.skip_tag() if self.no_ack else channel.hold(<PyObject*>cursor, <PyObject*>self, item.seq)
            channel.encode(out, DELIVER, self.head, self.head_size, cursor, item, NULL, 0, tag, offset)
            if channel.tap is not None:
                channel.tap(self.queue, <Batch>item.batch, item.index, item.redelivered != 0)
            if self.no_ack:
                cursor.settle(item.seq)
            took += 1
            i += step
        channel.delivered += took
        if self.no_ack:
            channel.delivered_auto += took
        elif self.share:
            self.share -= took
        if not took:
            return 0
        self.served = channel.next_tag
        if channel.sink is None:
            channel.dirty()
        else:
            channel.sink.has_output()
        return took

    def of_stream(self, Feed offsets not None, int64_t base, object wanted):
        self.offsets = offsets
        self.offset_base = base
        self.wanted = wanted

    def cancelled(self, str reason):
        """The queue let go of it."""
        self.attached = False
        self.on_cancelled(self, reason)
