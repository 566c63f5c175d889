"""Deliveries: the records a cursor gives become PUBLISH packets (`_publish`) in the connection's output.

The meaning of a match for the session (`Choice`: QoS, retain as published, identifiers, no-local) is asked
of the session once per distinct set of matching subscriptions.

**Fan-out**. When many sessions at QoS 0 follow one feed, they deliver the same run of its entries in the same tick.
The run is encoded once into a shared block (`_runs`); the others copy it. Topic aliases are for a client's own
bytes only: a client that takes any has no part in shared runs.

QoS 2 to a session that outlives us: the packet id must be durable before the client can see it, or a restart
would give the same message another id, and the client would take it for another message. Such packets go to `held`.

Source: MQTT 5.0 sections 4.3, 4.9.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.log_core.batch._batch cimport KIND_LOST, Batch
from penstock.protocols.mqtt.codec._packet_ids cimport WAIT_COMP, Flight, Inflight
from penstock.protocols.mqtt.codec._publish cimport Message, PublishEncoder
from penstock.protocols.mqtt.codec._shared_packets cimport Run, find_run, keep_run, note_run
from penstock.protocols.mqtt.codec._wire cimport FROM_CLIENT, Block, walk_block
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._take_result cimport MAX_TAKE, TAKEN, Item
from penstock.subscriptions.tick._fast_path cimport CAUGHT_UP, REST, STARVED, FastPath

cdef uint32_t NO_MATCH = 0xFFFFFFFF
cdef Py_ssize_t VERDICTS_MAX = 4096    # topics that a connection remembers the verdict of its guard about


cdef class Choice:
    def __init__(self, int qos, bint retain_as_published, bytes ids not None, Choice own=None, bint no_local=False):
        if not 0 <= qos <= 2:
            raise ValueError("qos is 0, 1 or 2")
        self.qos = qos
        self.retain_as_published = retain_as_published
        self.ids = ids
        self.no_local = no_local
        self.own = own


cdef Choice COMPLETE = Choice(2, False, b"")


cdef class Deliverer(PublishEncoder):
    def __init__(self, Inflight inflight not None, OutBuffer out not None, int version, object choose,
                 object translate):
        PublishEncoder.__init__(self, out, version, translate)
        self.inflight = inflight
        self.held = OutBuffer()
        self.choices = {}
        self.verdicts = {}
        self.pubrels = []
        self.claimed = []
        self.choose = choose
        self.memo_match = NO_MATCH

    def forget_choices(self):
        self.choices.clear()
        self.memo_match = NO_MATCH

    def filter(self, object guard):
        self.guard = guard
        self.verdicts.clear()

    def may_send(self, bytes topic not None):
        return self.guard is None or self.is_readable(topic)

    cdef bint is_readable(self, bytes topic) except -1:
        """Whether the guard lets the client have the topic; asked once, until the guard is set anew."""
        found = self.verdicts.get(topic)
        if found is None:
            if len(self.verdicts) >= VERDICTS_MAX:
                self.verdicts.clear()
            found = self.verdicts[topic] = bool(self.guard(topic))
        return found

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

    cdef Py_ssize_t shared_run(self, Cursor cursor, Choice choice, Py_ssize_t capacity, int64_t now_ms) except -1:
        """Deliver all items from or into a shared run; 0 = it cannot be shared, nothing was done."""
        cdef Run* run = find_run(self.version, choice.qos, choice.retain_as_published, choice.ids)
        cdef Message message
        cdef Py_ssize_t i, size, began
        cdef Item* item
        cdef int first
        cdef uint64_t payloads = self.delivered_bytes
        if run == NULL:
            note_run(self.version, choice.qos, choice.retain_as_published, choice.ids)
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
                if self.out.size - began > capacity:
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
            keep_run(run, self.out._start + began)
        else:
            if run.size > capacity or run.largest > <Py_ssize_t>self.max_packet:
                return 0
            memcpy(self.out.reserve(run.size), run.data, run.size)
            self.out.commit(run.size)
            self.delivered_bytes += run.payloads
        for i in range(TAKEN.n):
            cursor.settle(TAKEN.items[i].seq)
        self.delivered += TAKEN.n
        return TAKEN.n

    cpdef Py_ssize_t deliver(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step, Py_ssize_t capacity,
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
                and self.inflight.unsent == 0 and capacity > 0 and not self.alias_maximum and self.guard is None):
            item = &TAKEN.items[0]
            batch = <Batch>item.batch
            choice = self.choice_of(cursor, item.match)
            if choice is not None and not choice.no_local and batch.base_lsn + item.index >= self.skip_qos0_before:
                took = self.shared_run(cursor, choice, capacity, now_ms)
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
            if (choice is not None and choice.no_local and batch.origins != NULL and self.origin
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
            # A sent message does not expire any more (mqtt5:4.3.3-7).
            if (choice is None or batch.kind == KIND_LOST
                    or self.read(batch, item.index, now_ms, flight != NULL, &message) == 0
                    or (self.guard is not None and flight == NULL and not self.is_readable(
                        PyBytes_FromStringAndSize(<const char*>message.topic, message.topic_size)))):
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
                    if self.inflight.send_quota() <= 0:
                        break
                    qos = 2 if flight.state != 1 else 1
                    header |= qos << 1 | 8
                else:
                    # After an unclean stop nobody knows what was sent at QoS 1; at QoS 2 the ids are on disk.
                    # A member of a group gets under a new id what is new to it.
                    header |= qos << 1 | (8 if qos == 1 and item.redelivered and shared is None else 0)
                    if self.inflight.send_quota() <= 0:
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
            if self.out.size + self.held.size - began >= capacity:
                break
        return took

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


cdef class SessionFastPath(FastPath):
    def __init__(self, Deliverer deliverer not None, Served queue not None, Sink sink not None, after):
        FastPath.__init__(self, queue)
        self.deliverer = deliverer
        self.appender = queue.log.appender
        self.sink = sink
        self.after = after

    cdef int serve(self, bint at_once) except -1:
        cdef Cursor cursor = self.cursor
        cdef Deliverer deliverer = self.deliverer
        cdef Inflight inflight = deliverer.inflight
        cdef Py_ssize_t wanted = MAX_TAKE, capacity, n, took
        cdef unsigned long long settled
        if cursor.scheduled:
            return STARVED              # it has its turn in any case
        capacity = self.sink._output_capacity()
        if capacity <= 0:
            return STARVED
        if self.needs_ids:
            wanted = min(inflight.send_quota(), wanted)
            if wanted <= 0:
                return STARVED
        n = cursor.take(wanted)
        if n:
            settled = cursor.settled
            took = deliverer.deliver(cursor, 0, 1, capacity, self.appender.now())
            if deliverer.pubrels or deliverer.orphans or (deliverer.persistent and inflight.needs_saving()):
                self.after()
            if at_once:
                self.sink.send_out()
            else:
                self.sink.has_output()
            self.queue.delivered += took
            self.queue.unasked += cursor.settled - settled
            if took < n:
                cursor.put_back(0, 1, took)
                return REST
        if n < wanted and not (TAKEN.more or TAKEN.unwritten or TAKEN.cold or TAKEN.cold_feed != NULL):
            return CAUGHT_UP
        return REST
