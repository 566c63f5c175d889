"""Scanning a read: PUBLISH goes to the log, acknowledgements to their packet ids, all else out as events.

`scan` is given everything that is there of the connection's input and works until the first packet that Python
has to see, the end, or a fault; then it is called again. So the order of packets is the order of effects. Per
PUBLISH it checks

    u8 3<<4 | dup<<3 | qos<<1 | retain ; varint size ; u16 + topic ; [u16 packet id] ; [varint + properties] ; payload

to the last bound, resolves topic aliases, asks the route table, and copies topic, properties (without the alias)
and payload once, into the open batch of the log. Nothing is kept of the input.

Answers (PUBACK, PUBREC, PUBCOMP, and PUBREL for a PUBREC) go through one queue, in the order of what they answer
(mqtt5:4.6.0-2, mqtt5:4.6.0-3), each with the position it waits for and the class of that wait. Where the
position is a row that is written after the scan (QoS 2 state), it is stamped on then.

Faults are 5.0 reason codes; the session turns them into DISCONNECT or a plain close. Source: MQTT 5.0 chapters 2-4.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from penstock.log_core.batch._appender cimport Appender
from penstock.log_core.batch._batch cimport ENC_MQTT5, F_EXACTLY_ONCE, F_PERSISTENT, F_RETAIN
from penstock.protocols.mqtt.codec._packet_ids cimport Inflight, Received
from penstock.protocols.mqtt.codec._wire cimport (
    ACKNOWLEDGEMENT, FROM_CLIENT, Block, is_topic, read_varint, u16, walk_block,
)
from penstock.protocols.net._stream cimport QuickReader
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.router.routes._routes cimport Route, RouteTable

# The answers of `scan`.
MORE = _MORE
PACKET = _PACKET
PUBLISH = _PUBLISH
RETAIN = _RETAIN
UNIT = _UNIT
FAULT = _FAULT
# The events that an answer waits for.
NOW = _NOW
WRITTEN = _WRITTEN
SYNCED = _SYNCED

cdef enum:
    _NOW = 0
    _WRITTEN = 1
    _SYNCED = 2

cdef enum:
    PUBACK = 0x40
    PUBREC = 0x50
    PUBREL = 0x62
    PUBCOMP = 0x70

cdef enum:
    REASON_NO_SUBSCRIBERS = 0x10
    REASON_MALFORMED = 0x81
    REASON_VIOLATION = 0x82
    REASON_TOPIC_INVALID = 0x90
    REASON_NOT_FOUND = 0x92
    REASON_RECEIVE_MAXIMUM = 0x93
    REASON_ALIAS = 0x94
    REASON_TOO_LARGE = 0x95

cdef enum:
    ANSWERS_AT_ONCE = 1024
    TTL_MAX_S = 4294967         # what a record's ttl in ms can say; the encoder sees to longer ones

cdef uint64_t LATER = 0xFFFFFFFFFFFFFFFFULL


cdef class Scanner(QuickReader):
    def __cinit__(self, Appender appender not None, RouteTable table not None, Inflight inflight not None,
                  Received received not None, int version):
        self.appender = appender
        self.table = table
        self.inflight = inflight
        self.received = received
        self.version = version
        self.max_packet = 268435455
        self.receive_maximum = 65535
        self.max_levels = 65535
        self.aliases = []
        self.memo_size = -1
        self.found = -1
        self.stamp_from = LATER

    def __dealloc__(self):
        free(self.memo)
        free(self.scratch)
        free(self.ring)

    @property
    def quiet(self):
        return self.head == self.tail and self.is_quiet()

    cdef bint is_quiet(self) noexcept:
        """Nothing is to be put or delivered because of what was scanned."""
        return not (self.inflight.freed or self.unstamped
                    or (self.persistent and (self.inflight.needs_saving() or self.received.changed)))

    cdef Py_ssize_t read(self, const uint8_t* p, Py_ssize_t size) except -2:
        cdef int found = self.run(p, 0, size)
        if found == _MORE and self.is_quiet():
            self.answers = self.head != self.tail
            return self.at
        self.found = found
        return -1

    cdef Py_ssize_t answer(self, OutBuffer out, uint64_t written, uint64_t synced) except -2:
        if self.tail - self.head > ANSWERS_AT_ONCE:
            return -1                   # the connection may be held because of them
        self.release(written, synced, out)
        return <Py_ssize_t>(self.tail - self.head)

    def begin(self, const uint8_t[::1] data not None, Py_ssize_t at, Py_ssize_t end):
        cdef int found = self.found
        if found < 0:
            return self.scan(data, at, end)
        self.found = -1
        return found

    def scan(self, const uint8_t[::1] data not None, Py_ssize_t at, Py_ssize_t end):
        if at < 0 or end > data.shape[0] or at > end:
            raise ValueError("[at, end) is not inside the data")
        return self.run(&data[0] if at < end else NULL, at, end)

    cdef int run(self, const uint8_t* p, Py_ssize_t at, Py_ssize_t end) except -1:
        cdef Py_ssize_t width
        cdef uint32_t size = 0
        cdef int kind, done
        self.want = 0
        self.stopped = False
        while True:
            self.at = at
            if end - at < 2:
                return _MORE
            width = read_varint(p + at + 1, end - at - 1, &size)
            if width == 0:
                return _MORE
            if width < 0:
                return self.refuse(REASON_MALFORMED, "a packet length that is none")
            # On what is announced, before it is read (mqtt5:3.1.2-24 is about the other direction).
            if 1 + width + <Py_ssize_t>size > self.max_packet:
                return self.refuse(REASON_TOO_LARGE, f"a packet of {1 + width + size} bytes, above the maximum packet "
                                   f"size of {self.max_packet} (mqtt.max_packet_bytes)")
            if end - at < 1 + width + <Py_ssize_t>size:
                self.want = 1 + width + size
                return _MORE
            self.kind = kind = p[at] >> 4
            self.flags = p[at] & 15
            self.start = at + 1 + width
            self.stop = self.start + size
            if kind == 3:
                if self.stop_publishes:
                    self.stopped = True
                    return _MORE
                done = self.publish(p, self.start, self.stop)
            elif 4 <= kind <= 7:
                done = self.answer_from_peer(p, self.start, self.stop)
            else:
                self.at = self.stop
                return _PACKET
            if done == _UNIT or done == _FAULT:
                return done
            at = self.stop
            if done != _GO_ON:
                self.at = at
                return done

    cdef int refuse(self, int fault, str complaint):
        self.fault = fault
        self.complaint = complaint
        return _FAULT

    cdef int check_topic(self, const uint8_t* topic, Py_ssize_t size) except -1:
        """0 or the fault; what was right for the packet before is right."""
        cdef Py_ssize_t i
        cdef uint32_t levels = 1
        cdef uint8_t* memo
        if size == self.memo_size and memcmp(topic, self.memo, size) == 0:
            return 0
        if not is_topic(topic, size):
            return REASON_MALFORMED
        for i in range(size):
            levels += topic[i] == c"/"
        if levels > self.max_levels:
            return REASON_TOPIC_INVALID
        if size > self.memo_capacity:
            memo = <uint8_t*>realloc(self.memo, size + 64)
            if memo == NULL:
                raise MemoryError
            self.memo = memo
            self.memo_capacity = size + 64
        memcpy(self.memo, topic, size)
        self.memo_size = size
        return 0

    cdef int publish(self, const uint8_t* data, Py_ssize_t at, Py_ssize_t end) except -1:
        cdef int qos = self.flags >> 1 & 3, fault
        cdef const uint8_t* topic
        cdef const uint8_t* block
        cdef Py_ssize_t topic_size, block_size = 0, width
        cdef uint32_t packet_id = 0, size = 0, ttl_ms = 0
        cdef uint16_t flags = 0
        cdef uint64_t lsn
        cdef int wait, reason
        cdef Block found
        cdef Route route
        cdef bytes text
        cdef uint8_t* scratch
        if qos == 3:
            return self.refuse(REASON_MALFORMED, "QoS 3")
        if qos == 0 and self.flags & 8:
            return self.refuse(REASON_MALFORMED, "DUP with QoS 0")
        if end - at < 2:
            return self.refuse(REASON_MALFORMED, "PUBLISH is cut off")
        topic_size = u16(data + at)
        topic = data + at + 2
        at += 2 + topic_size
        if at > end:
            return self.refuse(REASON_MALFORMED, "PUBLISH is cut off")
        if qos:
            if end - at < 2:
                return self.refuse(REASON_MALFORMED, "PUBLISH is cut off")
            packet_id = u16(data + at)
            if packet_id == 0:
                return self.refuse(REASON_VIOLATION, "packet id 0")
            at += 2
        block = data + at
        found.delayed = False
        if self.version == 5:
            width = read_varint(data + at, end - at, &size)
            if width <= 0 or end - at - width < <Py_ssize_t>size:
                return self.refuse(REASON_MALFORMED, "a property block that does not fit")
            block = data + at + width
            block_size = size
            at += width + block_size
            if block_size:
                fault = walk_block(block, block_size, FROM_CLIENT, True, &found)
                if fault:
                    return self.refuse(fault, "the properties of PUBLISH")
                if found.expiry_at:
                    # 0 seconds is over at once; a ttl of 0 would be never.
                    ttl_ms = 1 if found.expiry_s == 0 else found.expiry_s * 1000 if found.expiry_s <= TTL_MAX_S else 0
                if found.alias:
                    if found.alias > self.alias_maximum:
                        return self.refuse(REASON_ALIAS, "a topic alias above the maximum")
                    if topic_size:
                        fault = self.check_topic(topic, topic_size)
                        if fault:
                            return self.refuse(fault, "the topic of PUBLISH")
                        while <uint32_t>len(self.aliases) <= found.alias:
                            self.aliases.append(None)
                        self.aliases[found.alias] = PyBytes_FromStringAndSize(<const char*>topic, topic_size)
                    elif found.alias >= <uint32_t>len(self.aliases) or self.aliases[found.alias] is None:
                        return self.refuse(REASON_VIOLATION, "a topic alias that was not set")
                    else:
                        text = <bytes>self.aliases[found.alias]
                        topic = <const uint8_t*>PyBytes_AS_STRING(text)
                        topic_size = PyBytes_GET_SIZE(text)
                    # The alias is this connection's: the record has the topic instead.
                    if found.alias_at == 0:
                        block += 3
                    elif <Py_ssize_t>found.alias_at + 3 < block_size:
                        if block_size > self.scratch_capacity:
                            scratch = <uint8_t*>realloc(self.scratch, block_size)
                            if scratch == NULL:
                                raise MemoryError
                            self.scratch = scratch
                            self.scratch_capacity = block_size
                        memcpy(self.scratch, block, found.alias_at)
                        memcpy(self.scratch + found.alias_at, block + found.alias_at + 3, block_size - found.alias_at - 3)
                        block = self.scratch
                    block_size -= 3
        if topic_size == 0:
            return self.refuse(REASON_VIOLATION if self.version == 5 else REASON_MALFORMED, "an empty topic")
        fault = self.check_topic(topic, topic_size)
        if fault:
            return self.refuse(fault, "the topic of PUBLISH")
        self.duplicate = False
        if qos:
            if qos == 2:
                if self.received.has(packet_id):
                    # The same message again: it is in the log, only PUBREC was lost (mqtt5:4.3.3-10).
                    self.push(PUBREC, packet_id, 0, _SYNCED,
                              LATER if self.persistent else self.appender.next_lsn - 1)
                    return _GO_ON
                if self.persistent and not self.unit:
                    return _UNIT
            if self.used >= <Py_ssize_t>self.receive_maximum:
                return self.refuse(REASON_RECEIVE_MAXIMUM, "more QoS 1 and 2 messages than the receive maximum")
            self.used += 1
            flags = F_PERSISTENT if qos == 1 else F_PERSISTENT | F_EXACTLY_ONCE
            if qos == 2:
                self.received.add(packet_id)
        if self.flags & 1:
            flags |= F_RETAIN
        self.published += 1
        self.published_bytes += <uint64_t>(end - at)
        route = self.table.lookup(topic, topic_size)
        if route.error is not None or topic[0] == c"$" or found.delayed or (route.special and route.must_look(<uint64_t>(end - at))):
            self.note(data, topic, topic_size, block, block_size, at, qos, packet_id, ttl_ms, route, 0)
            return _PUBLISH
        lsn = self.appender.append(
            route.lp, route.target, topic, <uint16_t>topic_size, block, <uint32_t>block_size,
            data + at, <uint32_t>(end - at), flags, 0, ENC_MQTT5, ttl_ms,
            self.origin if self.appender.keeps_origins else 0,
        )
        wait = _NOW
        if qos:
            wait = _SYNCED if route.durable else _WRITTEN
            reason = 0 if route.routed else REASON_NO_SUBSCRIBERS
            if qos == 1:
                self.push(PUBACK, packet_id, reason, wait, lsn)
            elif self.persistent:
                self.push(PUBREC, packet_id, reason, _SYNCED, LATER)
            else:
                self.push(PUBREC, packet_id, reason, wait, lsn)
        if self.flags & 1:
            self.note(data, topic, topic_size, block, block_size, at, qos, packet_id, ttl_ms, route, lsn)
            return _RETAIN
        return _GO_ON

    cdef note(self, const uint8_t* data, const uint8_t* topic, Py_ssize_t topic_size, const uint8_t* block,
              Py_ssize_t block_size, Py_ssize_t at, int qos, uint32_t packet_id, uint32_t ttl_ms, Route route,
              uint64_t lsn):
        """Keep what Python wants of this PUBLISH; its payload is [start, stop) of the data."""
        self.topic = PyBytes_FromStringAndSize(<const char*>topic, topic_size)
        self.block = PyBytes_FromStringAndSize(<const char*>block, block_size)
        self.start = at
        self.qos = qos
        self.packet_id = packet_id
        self.ttl_ms = ttl_ms
        self.retain = self.flags & 1
        self.route = route
        self.lsn = lsn

    cdef int answer_from_peer(self, const uint8_t* data, Py_ssize_t at, Py_ssize_t end) except -1:
        cdef uint32_t packet_id, reason = 0, size = 0
        cdef Py_ssize_t width
        cdef int fault = 0, verdict
        cdef Block found
        # 3.1 does not say that a server looks at them, and its clients set DUP in a PUBREL sent again.
        if self.flags != (2 if self.kind == 6 else 0) and self.version != 3:
            return self.refuse(REASON_MALFORMED, "flags of an acknowledgement")  # mqtt5:2.1.3-1
        if end - at < 2:
            return self.refuse(REASON_MALFORMED, "an acknowledgement is cut off")
        packet_id = u16(data + at)
        at += 2
        if packet_id == 0:
            return self.refuse(REASON_VIOLATION, "packet id 0")
        if at < end:
            if self.version != 5:
                return self.refuse(REASON_MALFORMED, "an acknowledgement is too long")
            reason = data[at]
            at += 1
            if at < end:
                width = read_varint(data + at, end - at, &size)
                if width <= 0 or end - at - width != <Py_ssize_t>size:
                    return self.refuse(REASON_MALFORMED, "a property block that does not fit")
                fault = walk_block(data + at + width, size, ACKNOWLEDGEMENT, True, &found)
                if fault:
                    return self.refuse(fault, "the properties of an acknowledgement")
            if not known_reason(self.kind, reason):
                return self.refuse(REASON_VIOLATION, "the reason of an acknowledgement")
        self.acknowledged += 1
        if self.kind == 4 or self.kind == 7:
            self.completed += 1
        if self.kind == 4:
            fault = self.inflight.on_puback(packet_id)
        elif self.kind == 5:
            verdict = self.inflight.on_pubrec(packet_id, reason)
            if verdict == 0:
                self.push(PUBREL, packet_id, 0, _SYNCED if self.persistent else _NOW, LATER if self.persistent else 0)
            elif verdict == REASON_NOT_FOUND:
                self.push(PUBREL, packet_id, REASON_NOT_FOUND, _NOW, 0)
            elif verdict != 1:
                fault = verdict
        elif self.kind == 6:
            if self.received.drop(packet_id):
                self.push(PUBCOMP, packet_id, 0, _SYNCED if self.persistent else _NOW, LATER if self.persistent else 0)
            else:
                # Also after a PUBCOMP that got lost: then the client reads 0x92 as done.
                self.push(PUBCOMP, packet_id, REASON_NOT_FOUND, _SYNCED if self.persistent else _NOW,
                          LATER if self.persistent else 0)
        else:
            fault = self.inflight.on_pubcomp(packet_id)
        if fault:
            return self.refuse(fault, "an acknowledgement that does not fit the message")
        return _GO_ON

    # Answers

    cdef int push(self, uint8_t kind, uint32_t packet_id, int reason, int wait, uint64_t lsn) except -1:
        cdef uint64_t size, counter
        cdef Answer* ring
        cdef Answer* answer
        if self.ring == NULL or self.tail - self.head > self.mask:
            size = 2 * (self.mask + 1) if self.ring != NULL else 64
            ring = <Answer*>calloc(size, sizeof(Answer))
            if ring == NULL:
                raise MemoryError
            for counter in range(self.head, self.tail):
                ring[counter & (size - 1)] = self.ring[counter & self.mask]
            free(self.ring)
            self.ring = ring
            self.mask = size - 1
        answer = &self.ring[self.tail & self.mask]
        answer.lsn = lsn
        answer.packet_id = <uint16_t>packet_id
        answer.kind = kind
        answer.reason = <uint8_t>reason
        answer.wait = <uint8_t>wait
        if lsn == LATER:
            if self.stamp_from == LATER:
                self.stamp_from = self.tail
            self.unstamped = True
        elif wait == _SYNCED:
            self.await_synced = max(self.await_synced, lsn)
        elif wait == _WRITTEN:
            self.await_written = max(self.await_written, lsn)
        self.tail += 1
        return 0

    @property
    def answered(self):
        return self.head

    @property
    def waiting(self):
        return self.tail - self.head

    def acknowledge(self, uint64_t lsn, int wait, int reason):
        if self.qos == 1:
            self.push(PUBACK, self.packet_id, reason, wait, lsn)
        elif self.qos == 2:
            if reason >= 0x80 and self.version == 5:
                self.received.drop(self.packet_id)
            if self.persistent:
                self.push(PUBREC, self.packet_id, reason, _SYNCED, LATER)
            else:
                self.push(PUBREC, self.packet_id, reason, wait, lsn)

    def push_pubrels(self, list packet_ids not None):
        for packet_id in packet_ids:
            self.push(PUBREL, packet_id, 0, _SYNCED if self.persistent else _NOW, LATER if self.persistent else 0)

    cpdef raise_last(self, uint64_t lsn):
        """The last answer waits for this position, synced."""
        cdef Answer* answer
        if self.qos and self.tail > self.head:
            answer = &self.ring[(self.tail - 1) & self.mask]
            answer.wait = _SYNCED
            if answer.lsn != LATER:
                answer.lsn = max(answer.lsn, lsn)
                self.await_synced = max(self.await_synced, answer.lsn)

    def stamp(self, uint64_t lsn):
        cdef uint64_t counter
        if self.unstamped:
            for counter in range(max(self.stamp_from, self.head), self.tail):
                if self.ring[counter & self.mask].lsn == LATER:
                    self.ring[counter & self.mask].lsn = lsn
            self.unstamped = False
            self.stamp_from = LATER
            self.await_synced = max(self.await_synced, lsn)

    cpdef uint64_t release(self, uint64_t written, uint64_t synced, OutBuffer out) except? 0xFFFFFFFFFFFFFFFF:
        """Encode the answers whose turn has come."""
        cdef Answer* answer
        cdef uint8_t* p
        cdef uint64_t head = self.head
        while self.head < self.tail:
            answer = &self.ring[self.head & self.mask]
            if answer.wait == _SYNCED:
                if answer.lsn > synced:
                    break
            elif answer.wait == _WRITTEN and answer.lsn > written:
                break
            text = self.texts.get(answer.reason) if answer.reason and self.texts is not None else None
            p = out.reserve(5 + (0 if text is None else PyBytes_GET_SIZE(<bytes>text)))
            p[0] = answer.kind
            p[2] = answer.packet_id >> 8
            p[3] = answer.packet_id & 255
            if answer.reason == 0 or self.version != 5:
                p[1] = 2
                out.commit(4)
            else:
                p[1] = 3
                p[4] = answer.reason
                if text is not None:
                    p[1] += <uint8_t>PyBytes_GET_SIZE(<bytes>text)
                    memcpy(p + 5, PyBytes_AS_STRING(<bytes>text), PyBytes_GET_SIZE(<bytes>text))
                out.commit(2 + p[1])
            if self.used and (answer.kind == PUBACK or (answer.kind == PUBCOMP and answer.reason == 0)
                              or (answer.kind == PUBREC and answer.reason >= 0x80 and self.version == 5)):
                self.used -= 1
            self.head += 1
        return self.head - head


cdef bint known_reason(int kind, uint32_t reason) noexcept:
    """Whether the packet may say that (mqtt5:3.4.2.1, 3.5.2.1, 3.6.2.1, 3.7.2.1)."""
    if kind >= 6:
        return reason == 0 or reason == REASON_NOT_FOUND
    return (reason == 0 or reason == 0x10 or reason == 0x80 or reason == 0x83 or reason == 0x87 or reason == 0x90
            or reason == 0x91 or reason == 0x97 or reason == 0x99)
