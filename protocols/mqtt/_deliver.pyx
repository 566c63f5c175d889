"""Encoding deliveries: the records a cursor gives become PUBLISH packets in the connection's output.

    u8 3<<4 | dup<<3 | qos<<1 | retain ; varint size ; u16 + topic ; [u16 packet id]
    ; 5.0: [varint + (record's properties, expiry counted down, subscription identifiers)] ; payload

Topic, properties and payload are copied from the log's batch, once. A record that was born in AMQP is translated
first (`penstock.protocols.translate`), behind a memo of one: traffic comes in runs of the same key and properties.

What a match of a record means for the session (`Choice`: QoS, retain as published, identifiers, no-local) is asked
of the session once per distinct set of matching subscriptions.

**Fan-out**. When many sessions at QoS 0 follow one feed, they deliver the same run of its entries in the same tick.
The run is encoded once into a shared block, keyed by (batch, feed, first entry, count) and what shapes the bytes
(version, identifiers, retain as published); the others copy it. A run is kept at its second sight, so that a feed
with one session never pays for it.

Aliases towards the client (as many as it takes, first come) are for its own bytes only: a client that takes any has
no part in shared runs.

QoS 2 to a session that outlives us: the packet id must be durable before the client can see it, or a restart
would give the same message another id, and the client would take it for another message. Such packets go to `held`.

Source: MQTT 5.0 sections 3.3, 4.3, 4.9.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from penstock.log_core._batch cimport (
    ENC_AMQP091, ENC_MQTT5, F_EXACTLY_ONCE, F_PERSISTENT, F_RETAIN, KIND_LOST, Batch, RecordHeader,
)
from penstock.protocols.mqtt._ids cimport WAIT_COMP, Flight, Inflight
from penstock.protocols.mqtt._wire cimport FROM_CLIENT, Block, varint_width, walk_block, write_varint
from penstock.protocols.outbuffer cimport OutBuffer
from penstock.subscriptions._cursor cimport Cursor
from penstock.subscriptions._taken cimport MAX_TAKE, TAKEN, Item
from penstock.subscriptions._straight cimport Straight

cdef enum:
    RUNS = 8                    # shared runs kept; the oldest makes room
    RUN_BYTES_MAX = 1048576
    LARGEST = 268435455

cdef uint32_t NO_MATCH = 0xFFFFFFFF


cdef class Choice:
    def __init__(self, int qos, bint retain_as_published, bytes ids not None, Choice own=None, bint no_local=False):
        if not 0 <= qos <= 2:
            raise ValueError("qos is 0, 1 or 2")
        self.qos = qos
        self.retain_as_published = retain_as_published
        self.ids = ids
        self.own = own if no_local else self


cdef Choice COMPLETE = Choice(2, False, b"")


cdef struct Run:
    void* batch                 # owned reference: no other batch can have this address meanwhile
    uint64_t feed, first
    uint32_t count, index       # index of the first record in its batch
    int version, qos
    bint retain_as_published
    void* ids                   # owned reference to bytes
    uint8_t* data               # NULL: seen once, not kept
    Py_ssize_t size, largest    # all bytes (-1: not the same for all); the largest packet
    uint64_t payloads           # bytes of these

cdef Run _runs[RUNS]
cdef int _next_run = 0
for _i in range(RUNS):
    _runs[_i].batch = NULL
    _runs[_i].ids = NULL
    _runs[_i].data = NULL

cdef extern from "Python.h":
    void Py_INCREF_ "Py_INCREF"(void* o)
    void Py_XDECREF_ "Py_XDECREF"(void* o)


cdef Run* _find_run(Cursor cursor, int version, Choice choice) noexcept:
    cdef int i
    cdef Run* run
    for i in range(RUNS):
        run = &_runs[i]
        if (run.batch == <void*>TAKEN.items[0].batch and run.first == TAKEN.run_first
                and run.feed == TAKEN.run_feed and run.count == TAKEN.run_count
                and run.index == TAKEN.items[0].index and run.version == version
                and run.retain_as_published == choice.retain_as_published and run.qos == choice.qos
                and PyBytes_GET_SIZE(<bytes>run.ids) == PyBytes_GET_SIZE(choice.ids)
                and memcmp(PyBytes_AS_STRING(<bytes>run.ids), PyBytes_AS_STRING(choice.ids),
                           PyBytes_GET_SIZE(choice.ids)) == 0):
            return run
    return NULL


cdef Run* _note_run(Cursor cursor, int version, Choice choice) noexcept:
    global _next_run
    cdef Run* run = &_runs[_next_run]
    _next_run = (_next_run + 1) % RUNS
    _forget_run(run)
    run.batch = <void*>TAKEN.items[0].batch
    Py_INCREF_(run.batch)
    run.ids = <void*>choice.ids
    Py_INCREF_(run.ids)
    run.feed = TAKEN.run_feed
    run.first = TAKEN.run_first
    run.count = TAKEN.run_count
    run.index = TAKEN.items[0].index
    run.version = version
    run.qos = choice.qos
    run.retain_as_published = choice.retain_as_published
    return run


cdef void _forget_run(Run* run) noexcept:
    free(run.data)
    run.data = NULL
    run.size = 0
    Py_XDECREF_(run.batch)
    Py_XDECREF_(run.ids)
    run.batch = NULL
    run.ids = NULL


def forget_runs():
    """Drop every shared run: nothing keeps a batch of a closed log alive."""
    cdef int i
    for i in range(RUNS):
        _forget_run(&_runs[i])


cdef class Deliverer:
    def __cinit__(self, Inflight inflight not None, OutBuffer out not None, int version, object choose,
                  object translate):
        self.inflight = inflight
        self.out = out
        self.held = OutBuffer()
        self.version = version
        self.max_packet = LARGEST
        self.aliases = {}
        self.choices = {}
        self.pubrels = []
        self.claimed = []
        self.choose = choose
        self.translate = translate
        self.memo_match = NO_MATCH

    def forget_choices(self):
        self.choices.clear()
        self.memo_match = NO_MATCH

    cdef Choice choice_of(self, Cursor cursor, uint32_t match):
        cdef Choice choice
        if match == self.memo_match:
            return self.memo_choice
        found = self.choices.get(match)
        if found is None:
            if len(self.choices) > 4096:
                self.choices.clear()
            found = self.choose(cursor.match_tags(match))
            self.choices[match] = found
        choice = found
        self.memo_match = match
        self.memo_choice = choice
        return choice

    cdef int read(self, Batch batch, uint32_t index, int64_t now_ms, bint started, Message* message) except -1:
        """Take the record apart; 0 = it cannot be said in MQTT, or its time is over and it was never sent."""
        cdef RecordHeader* header = &batch.headers[index]
        cdef const uint8_t* start = batch.blob + header.off
        cdef const uint8_t* props = start + header.key
        cdef Py_ssize_t key_size = header.key, props_size = header.props
        cdef Block found
        cdef int64_t elapsed_s
        message.body = props + props_size
        message.body_size = <Py_ssize_t>header.size - key_size - props_size
        message.retain = (header.flags & F_RETAIN) != 0
        message.expiry_at = 0
        if header.enc == ENC_MQTT5:
            message.topic = start
            message.topic_size = key_size
            message.block = props
            message.block_size = props_size
            message.qos = 0 if not header.flags & F_PERSISTENT else 2 if header.flags & F_EXACTLY_ONCE else 1
        elif header.enc == ENC_AMQP091:
            if (self.foreign_key is None or PyBytes_GET_SIZE(self.foreign_key) != key_size
                    or PyBytes_GET_SIZE(self.foreign_props) != props_size
                    or memcmp(PyBytes_AS_STRING(self.foreign_key), start, key_size) != 0
                    or memcmp(PyBytes_AS_STRING(self.foreign_props), props, props_size) != 0):
                self.foreign_key = PyBytes_FromStringAndSize(<const char*>start, key_size)
                self.foreign_props = PyBytes_FromStringAndSize(<const char*>props, props_size)
                self.foreign_topic, self.foreign_block = self.translate(self.foreign_key, self.foreign_props)
            if self.foreign_topic is None:
                return 0
            message.topic = <const uint8_t*>PyBytes_AS_STRING(self.foreign_topic)
            message.topic_size = PyBytes_GET_SIZE(self.foreign_topic)
            message.block = <const uint8_t*>PyBytes_AS_STRING(self.foreign_block)
            message.block_size = PyBytes_GET_SIZE(self.foreign_block)
            message.qos = 1 if header.flags & F_PERSISTENT else 0
        else:
            return 0
        if message.block_size:
            walk_block(message.block, message.block_size, FROM_CLIENT, False, &found)
            if found.expiry_at:
                elapsed_s = (now_ms - batch.base_ts - header.ts) // 1000
                if elapsed_s < 0:
                    elapsed_s = 0
                if elapsed_s >= <int64_t>found.expiry_s:
                    if not started:
                        return 0
                    elapsed_s = found.expiry_s
                message.expiry_at = found.expiry_at
                message.remaining_s = found.expiry_s - <uint32_t>elapsed_s
        return 1

    cdef Py_ssize_t encode(self, OutBuffer out, Message* message, int first, uint32_t packet_id,
                           bytes ids) except -1:
        """One PUBLISH; its size, or 0 when it is larger than the client takes."""
        cdef Py_ssize_t block_size = 0, ids_size = 0, size, whole
        cdef Py_ssize_t topic_size = message.topic_size
        cdef uint8_t* start
        cdef uint8_t* p
        cdef uint32_t remaining, alias = 0
        cdef bint known = False
        # Held packets leave later than those that might rely on an alias they set.
        if self.alias_maximum and out is self.out:
            alias = self.alias_of(message, &known)
        while True:
            size = 2 + topic_size + message.body_size
            if known:
                size -= topic_size
            if packet_id:
                size += 2
            if self.version == 5:
                ids_size = PyBytes_GET_SIZE(ids)
                block_size = message.block_size + ids_size + (3 if alias else 0)
                if block_size > LARGEST:
                    return 0
                size += varint_width(<uint32_t>block_size) + block_size
            whole = 1 + varint_width(<uint32_t>size) + size
            if size <= LARGEST and whole <= <Py_ssize_t>self.max_packet:
                break
            if not alias or known:
                return 0
            alias = 0  # setting it made the packet too large
        if known:
            topic_size = 0
        elif alias:
            self.aliases[PyBytes_FromStringAndSize(<const char*>message.topic, topic_size)] = alias
        start = p = out.reserve(whole)
        p[0] = <uint8_t>first
        p = write_varint(p + 1, <uint32_t>size)
        p[0] = <uint8_t>(topic_size >> 8)
        p[1] = <uint8_t>topic_size
        memcpy(p + 2, message.topic, topic_size)
        p += 2 + topic_size
        if packet_id:
            p[0] = <uint8_t>(packet_id >> 8)
            p[1] = <uint8_t>packet_id
            p += 2
        if self.version == 5:
            p = write_varint(p, <uint32_t>block_size)
            if alias:
                p[0] = 0x23
                p[1] = <uint8_t>(alias >> 8)
                p[2] = <uint8_t>alias
                p += 3
            if message.block_size:
                memcpy(p, message.block, message.block_size)
                if message.expiry_at:
                    remaining = message.remaining_s
                    p[message.expiry_at] = remaining >> 24
                    p[message.expiry_at + 1] = remaining >> 16 & 255
                    p[message.expiry_at + 2] = remaining >> 8 & 255
                    p[message.expiry_at + 3] = remaining & 255
                p += message.block_size
            if ids_size:
                memcpy(p, PyBytes_AS_STRING(ids), ids_size)
                p += ids_size
        memcpy(p, message.body, message.body_size)
        out.commit(p + message.body_size - start)
        self.delivered_bytes += <uint64_t>message.body_size
        return whole

    cdef uint32_t alias_of(self, Message* message, bint* known) except? 0:
        """The topic's alias on this connection, a new one while there are any; 0 = none."""
        cdef object alias
        if message.topic_size <= 3:
            return 0
        alias = self.aliases.get(PyBytes_FromStringAndSize(<const char*>message.topic, message.topic_size))
        known[0] = alias is not None
        if alias is not None:
            return alias
        return len(self.aliases) + 1 if <uint32_t>len(self.aliases) < self.alias_maximum else 0

    cdef Py_ssize_t shared_run(self, Cursor cursor, Choice choice, Py_ssize_t room, int64_t now_ms) except -1:
        """Deliver all items from or into a shared run; 0 = it cannot be shared, nothing was done."""
        cdef Run* run = _find_run(cursor, self.version, choice)
        cdef Message message
        cdef Py_ssize_t i, size, began
        cdef Item* item
        cdef int first
        cdef uint64_t payloads = self.delivered_bytes
        if run == NULL:
            _note_run(cursor, self.version, choice)
            return 0
        if run.data == NULL:
            if run.size < 0:
                return 0
            # The second sight: encode here, and keep the bytes for those who come after.
            began = self.out.size
            run.largest = 0
            for i in range(TAKEN.n):
                item = &TAKEN.items[i]
                if ((<Batch>item.batch).kind == KIND_LOST
                        or self.read(<Batch>item.batch, item.index, now_ms, False, &message) == 0
                        or message.expiry_at or min(message.qos, choice.qos)):
                    self.out.size = began
                    self.delivered_bytes = payloads
                    run.size = -1
                    return 0
                if self.out.size - began > room:
                    self.out.size = began
                    self.delivered_bytes = payloads
                    return 0
                first = 0x30 | (message.retain and choice.retain_as_published)
                size = self.encode(self.out, &message, first, 0, choice.ids)
                if size == 0:
                    self.out.size = began
                    self.delivered_bytes = payloads
                    return 0
                run.largest = max(run.largest, size)
            run.size = self.out.size - began
            run.payloads = self.delivered_bytes - payloads
            if run.size <= RUN_BYTES_MAX:
                run.data = <uint8_t*>malloc(run.size)
                if run.data != NULL:
                    memcpy(run.data, self.out._start + began, run.size)
        else:
            if run.size > room or run.largest > <Py_ssize_t>self.max_packet:
                return 0
            memcpy(self.out.reserve(run.size), run.data, run.size)
            self.out.commit(run.size)
            self.delivered_bytes += run.payloads
        for i in range(TAKEN.n):
            cursor.settle(TAKEN.items[i].seq)
        self.delivered += TAKEN.n
        return TAKEN.n

    cpdef Py_ssize_t deliver(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step, Py_ssize_t room,
                             int64_t now_ms, Choice shared=None, dict claims=None) except -1:
        cdef Item* item
        cdef Batch batch
        cdef Choice choice
        cdef Message message
        cdef OutBuffer out
        cdef Flight* flight
        cdef Py_ssize_t took = 0, i, began = self.out.size + self.held.size, size
        cdef uint32_t packet_id
        cdef uint64_t lsn
        cdef int qos, header
        cdef uint16_t source = 0
        if first < 0 or step < 1:
            raise ValueError("first is at least 0, step at least 1")
        if (shared is None and step == 1 and first == 0 and TAKEN.run_count > 1 and TAKEN.run_count == TAKEN.n
                and self.inflight.unsent == 0 and room > 0 and not self.alias_maximum):
            item = &TAKEN.items[0]
            batch = <Batch>item.batch
            choice = self.choice_of(cursor, item.match)
            if choice is not None and choice.own is choice and batch.base_lsn + item.index >= self.skip_qos0_before:
                took = self.shared_run(cursor, choice, room, now_ms)
                if took:
                    return took
        while source < len(self.inflight.cursors) and self.inflight.cursors[source] is not cursor:
            source += 1
        i = first
        while i < TAKEN.n:
            item = &TAKEN.items[i]
            batch = <Batch>item.batch
            lsn = batch.base_lsn + item.index
            choice = shared if shared is not None else self.choice_of(cursor, item.match)
            if (choice is not None and choice.own is not choice and batch.origins != NULL and self.origin
                    and batch.origins[item.index] == self.origin):
                choice = choice.own
            packet_id = 0
            flight = NULL
            if claims is not None and lsn in claims:
                # Somebody's since before a restart: it stays out, and its owner learns which delivery it is.
                self.claimed.append((lsn, item.seq))
                took += 1
                i += step
                continue
            if self.inflight.unsent and shared is None:
                flight = self.inflight.resumed(lsn, &packet_id)
                if flight != NULL and flight.state == WAIT_COMP:
                    # The client has it; only its PUBCOMP is awaited.
                    cursor.settle(item.seq)
                    took += 1
                    i += step
                    continue
                if flight == NULL and lsn > self.inflight.resume_last:
                    self.orphans = True
            if choice is None and flight != NULL:
                # Unsubscribed since, but delivery was begun and is completed (mqtt5:3.10.4-3).
                choice = COMPLETE
            # What was sent does not expire any more (mqtt5:4.3.3-7).
            if (choice is None or batch.kind == KIND_LOST
                    or self.read(batch, item.index, now_ms, flight != NULL, &message) == 0):
                self.drop(cursor, item.seq, flight, packet_id)
                took += 1
                i += step
                continue
            qos = min(message.qos, choice.qos)
            header = 0x30 | (message.retain and choice.retain_as_published)
            if qos == 0:
                if shared is not None or lsn >= self.skip_qos0_before:
                    if self.encode(self.out, &message, header, 0, choice.ids):
                        self.delivered += 1
                    else:
                        self.skipped += 1
                cursor.settle(item.seq)
            else:
                out = self.out
                if flight != NULL:
                    if flight.sent:
                        # Given twice: the first one counts.
                        took += 1
                        i += step
                        continue
                    if self.inflight.room() <= 0:
                        break
                    qos = 2 if flight.state != 1 else 1
                    header |= qos << 1 | 8
                else:
                    # After an unclean stop nobody knows what was sent at QoS 1; at QoS 2 the ids are on disk.
                    # A member of a group gets under a new id what is new to it.
                    header |= qos << 1 | (8 if qos == 1 and item.redelivered and shared is None else 0)
                    if self.inflight.room() <= 0:
                        break
                # The size is known before an id is spent on it.
                if self.too_large(&message, choice.ids):
                    self.skipped += 1
                    self.drop(cursor, item.seq, flight, packet_id)
                    took += 1
                    i += step
                    continue
                if flight != NULL:
                    flight.seq = item.seq
                    flight.source = source
                    flight.sent = 1
                    self.inflight.sent += 1
                    self.inflight.unsent -= 1
                else:
                    packet_id = self.inflight.assign(lsn, item.seq, source, qos)
                    if packet_id == 0:
                        break
                    if qos == 2 and self.persistent:
                        out = self.held
                self.encode(out, &message, header, packet_id, choice.ids)
                self.delivered += 1
            took += 1
            i += step
            if self.out.size + self.held.size - began >= room:
                break
        return took

    cdef bint too_large(self, Message* message, bytes ids) noexcept:
        # 4 + 4: the widest varints; exact only where it matters.
        cdef Py_ssize_t size = 5 + 4 + 4 + message.topic_size + message.block_size + PyBytes_GET_SIZE(ids) + message.body_size
        cdef Py_ssize_t block
        if size <= <Py_ssize_t>self.max_packet and size <= LARGEST:
            return False
        size = 4 + message.topic_size + message.body_size
        if self.version == 5:
            block = message.block_size + PyBytes_GET_SIZE(ids)
            if block > LARGEST:
                return True
            size += varint_width(<uint32_t>block) + block
        return size > LARGEST or 1 + varint_width(<uint32_t>size) + size > <Py_ssize_t>self.max_packet

    cdef drop(self, Cursor cursor, uint64_t seq, Flight* flight, uint32_t packet_id):
        """Done with the record without sending it; its id, if it had one, is given up as well."""
        cursor.settle(seq)
        if flight != NULL and not flight.sent and self.inflight.abandon(flight):
            self.pubrels.append(packet_id)

    def again(self, Batch batch not None, uint32_t index, Choice choice not None, uint32_t packet_id, int64_t now_ms):
        """A message of a shared subscription once more, at QoS 2; False: it cannot be sent any more."""
        cdef Message message
        if (batch.kind == KIND_LOST or self.read(batch, index, now_ms, True, &message) == 0
                or self.too_large(&message, choice.ids)):
            return False
        self.encode(self.out, &message, 0x30 | 2 << 1 | 8 | (message.retain and choice.retain_as_published),
                    packet_id, choice.ids)
        self.delivered += 1
        return True

    def take_claimed(self):
        """(position, delivery) of the claims met since the last call."""
        cdef list found = self.claimed
        if found:
            self.claimed = []
        return found

    def publish(self, bytes topic not None, bytes block not None, bytes body not None, int qos, bint retain,
                bytes ids not None, uint32_t packet_id, bint duplicate, int64_t elapsed_s):
        """One PUBLISH that is no item of a cursor (a retained message)."""
        cdef Message message
        cdef Block found
        cdef int first = 0x30 | qos << 1 | retain | (8 if duplicate else 0)
        message.topic = <const uint8_t*>PyBytes_AS_STRING(topic)
        message.topic_size = PyBytes_GET_SIZE(topic)
        message.block = <const uint8_t*>PyBytes_AS_STRING(block)
        message.block_size = PyBytes_GET_SIZE(block)
        message.body = <const uint8_t*>PyBytes_AS_STRING(body)
        message.body_size = PyBytes_GET_SIZE(body)
        message.expiry_at = 0
        if message.topic_size > 65535:
            raise ValueError("a topic has at most 65,535 bytes")
        if message.block_size:
            if walk_block(message.block, message.block_size, FROM_CLIENT, False, &found):
                raise ValueError("no block of properties")
            if found.expiry_at:
                if elapsed_s >= <int64_t>found.expiry_s:
                    if not duplicate:
                        return False
                    elapsed_s = found.expiry_s
                message.expiry_at = found.expiry_at
                message.remaining_s = found.expiry_s - <uint32_t>max(elapsed_s, 0)
        if not self.encode(self.out, &message, first, packet_id if qos else 0, ids):
            self.skipped += 1
            return False
        self.delivered += 1
        return True

    def take_pubrels(self):
        """Ids for which PUBREL is to be sent: their messages will not be sent again."""
        cdef list found = self.pubrels
        if self.orphans:
            self.orphans = False
            found = found + self.inflight.orphans()
        if found:
            self.pubrels = []
        return found


cdef class SessionWay(Straight):
    def __init__(self, Deliverer deliverer not None, Served queue not None, Sink sink not None, after):
        self.deliverer = deliverer
        self.queue = queue
        self.cursor = queue.cursor
        self.appender = queue.log.appender
        self.sink = sink
        self.after = after

    cdef bint serve(self) except -1:
        cdef Cursor cursor = self.cursor
        cdef Deliverer deliverer = self.deliverer
        cdef Inflight inflight = deliverer.inflight
        cdef Py_ssize_t wanted = MAX_TAKE, room, n, took
        if self.needs_ids:
            wanted = min(inflight.room(), wanted)
        room = self.sink.room_left()
        if room <= 0 or wanted <= 0 or cursor.scheduled:
            return False
        n = cursor.take(wanted)
        if n:
            took = deliverer.deliver(cursor, 0, 1, room, self.appender.now())
            if deliverer.pubrels or (deliverer.persistent and inflight.changed):
                self.after()
            self.sink.send_out()
            self.queue.delivered += took
            if took < n:
                cursor.put_back(0, 1, took)
                return False
        return n < wanted and not (TAKEN.more or TAKEN.unwritten or TAKEN.cold or TAKEN.cold_feed != NULL)
