# cython: auto_pickle=False
"""The native protocol's kernel: frames in, each to the side that it is for.

Owns the scanning of frames and the handles of one connection; `_producer` and `_consumer` have what happens per
message. All integers are big-endian.

    frame      size u32, of what follows | type u8 | flags u8 = 0 | reserved u16 = 0 | id u32 | payload
    CREDIT     messages u32 | bytes u32                               what is granted in addition
    ACK        request u32 | flags u8 (1: cumulative) | reserved u8 u16 | n x (first tag u64, last tag u64)
    NACK       delay i32, ms (-1: the subscription's) | flags u8 (1: reject) | reserved u8 u16 | ranges as ACK

Properties are AMQP's content header from its flags on (protocols/properties/_properties.pyx), the key block is AMQP's
(u8 size, exchange, u8 size, routing key): records are copied, never encoded again. docs/reference/native.md is
the reference; anything but these frames is the session's, which gets it in order.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.log_core.batch._appender cimport Appender
from penstock.protocols.properties._tables cimport load32, load64
from penstock.protocols.native.codec._consumer cimport Consumer, Outgoing
from penstock.protocols.native.codec._frames cimport HEAD, T_ACK, T_CREDIT, T_NACK, T_PRODUCE, put_head
from penstock.protocols.native.codec._producer cimport (
    MALFORMED,
    OK,
    Confirms,
    Producer,
    append_records,
    check_records,
    split,
)
from penstock.protocols.native.codec._producer import CHECKS
from penstock.protocols.native import options
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.router.routes._routes cimport Route

cdef enum:
    BATCH_HEAD = 16
    # The work of one connection in a turn, counted in bytes that are appended; about 10 ms. More requests are
    # counted as the bytes that take as long.
    TURN_BYTES = 4194304
    FRAME_BYTES = 16384         # of one that is the session's
    RECORD_BYTES = 64           # of a record, besides its own
    SINGLE_BYTES = 1024         # of a record that must be looked at by itself
    ACKS_NONE = 0
    ACKS_FSYNC = 2


cdef uint32_t SINGLES_MAX = options.SINGLES_MAX


cdef bint leads_nowhere(Route route, bytes key):
    """Whether a topic or queue that was published to by its name is not there any more."""
    return not route.routed and not route.per_message and key.startswith(b"\0")


cdef class Codec:
    def let_go(self):
        self.host = None

    def __cinit__(self, OutBuffer out not None, Appender appender not None, object host, uint32_t frame_max):
        self.out = out
        self.appender = appender
        self.host = host
        self.frame_max = frame_max
        self.user = b""
        self.producers = {}
        self.consumers = {}
        self.opening = set()
        self.confirms = Confirms()
        self.outgoing = Outgoing(out)

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
        self.spent = 0
        self.more = self.stopped = False
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
            if self.spent >= TURN_BYTES:
                self.more = True
                break
            if p[at + 5] | p[at + 6] | p[at + 7]:
                self.host.fault("malformed", "the flags and reserved bytes of a frame are 0 in version 1")
                return size
            left = at + HEAD
            if self.stop_publishes and p[left - 8] == T_PRODUCE:
                self.stopped = True
                break
            if self.opening and self.must_wait(p[left - 8], load32(p + left - 4), p + left, n + 4 - HEAD):
                self.stalled = self.halted = True
                break
            at += n + 4
            self.handle(p[left - 8], load32(p + left - 4), p + left, n + 4 - HEAD)
        return at

    cdef bint must_wait(self, uint8_t kind, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1:
        """Whether it is for a consumer that is being opened."""
        return kind != T_PRODUCE and self.host.must_wait(kind, id, PyBytes_FromStringAndSize(<const char*>p, n))

    cdef int handle(self, uint8_t kind, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1:
        cdef Consumer consumer
        cdef Py_ssize_t began = self.out.size
        self.spent += n
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
                    self.host.unknown_handle(id, 0)
                else:
                    consumer.grant(load32(p), load32(p + 4))
                return 0
        self.host.frame(kind, id, PyBytes_FromStringAndSize(<const char*>p, n))
        # The answer takes as long to make.
        self.spent += FRAME_BYTES + max(self.out.size - began, <Py_ssize_t>0)
        return 0

    def spend(self, Py_ssize_t size):
        self.spent += size

    # Producing

    cdef int produce(self, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1:
        cdef Producer producer
        cdef Route route
        cdef uint64_t sequence, first, lsn
        cdef uint32_t count
        cdef uint8_t acks
        cdef bint unrouted
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
        if acks > ACKS_FSYNC or p[9] > 2 or p[10] | p[11]:
            self.host.fault("malformed", "PRODUCE: acks is 0, 1 or 2, compression 0, 1 or 2; reserved bytes are 0")
            return 0
        if p[9]:
            raw = self.host.unpacked(PyBytes_FromStringAndSize(<const char*>records, size))
            if raw is None:
                return 0
            records = <const uint8_t*>PyBytes_AS_STRING(raw)
            size = PyBytes_GET_SIZE(raw)
            self.spent += size
        producer = self.producers.get(id)
        if producer is None:
            self.host.refused(id, sequence, count, "unknown_handle")
            return 0
        checked = check_records(records, size, count, self.user) if count else MALFORMED
        if checked == MALFORMED:
            self.host.fault("malformed", f"a batch of {count} records does not fit its {size} bytes, or "
                            "has properties that are none")
            return 0
        if checked != OK:
            self.host.refused(id, sequence, count, CHECKS[checked])
            return 0
        route = self.table.lookup(<const uint8_t*>PyBytes_AS_STRING(producer.key), PyBytes_GET_SIZE(producer.key))
        unrouted = self.tells_routed and not route.routed and not route.per_message and route.error is None
        if producer.name:
            position = self.host.admit(producer, sequence, count)
            if position is None:
                return 0
            if position:
                if acks != ACKS_NONE:
                    first = position if position > 0 else 0
                    lsn = first + count - 1 if first else -position
                    # Where it went is not known any more: what is told is where it would go now.
                    self.confirms.push(id, sequence, count, first, lsn, acks == ACKS_FSYNC, True, unrouted)
                return 0
        if route.error is not None:
            self.host.refused(id, sequence, count, route.error)
            return 0
        if leads_nowhere(route, producer.key):
            # Of a route that is asked for anew for each message, `publish_each` looks.
            self.host.refused(id, sequence, count, "not_found")
            return 0
        if route.special:
            # Somebody must look at each: queues that may refuse, exchanges that read headers.
            if count > SINGLES_MAX:
                self.host.refused(id, sequence, count, "too_large")
                return 0
            self.spent += SINGLE_BYTES * <Py_ssize_t>count
            self.host.publish_each(producer, sequence, acks, split(records, count))
            return 0
        if producer.name:
            self.host.begin_unit()
        first = append_records(self.appender, route, producer.key, records, count)
        self.spent += RECORD_BYTES * <Py_ssize_t>count
        self.published += count
        lsn = self.appender.next_lsn - 1
        if producer.name:
            self.host.note(producer, sequence, count, first)
        if acks != ACKS_NONE:
            self.confirms.push(id, sequence, count, first, lsn, acks == ACKS_FSYNC, False, unrouted)
        return 0

    def check_records(self, bytes records not None, uint32_t count):
        cdef int found = check_records(<const uint8_t*>PyBytes_AS_STRING(records), PyBytes_GET_SIZE(records), count,
                                       self.user)
        return CHECKS[found if count else MALFORMED]

    def append_records(self, Route route not None, bytes key not None, bytes records not None, uint32_t count):
        self.published += count
        self.spent += RECORD_BYTES * <Py_ssize_t>count
        return append_records(self.appender, route, key, <const uint8_t*>PyBytes_AS_STRING(records), count)

    def route(self, bytes key not None):
        return self.table.lookup(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))

    # Confirms

    def expect(self, uint32_t id, uint64_t sequence, uint32_t count, uint64_t position, uint64_t lsn, bint synced,
               bint routed):
        self.confirms.push(id, sequence, count, position, lsn, synced, False, self.tells_routed and not routed)

    def take_waits(self):
        return self.confirms.take_waits()

    def confirm(self, uint64_t written, uint64_t synced):
        cdef uint64_t confirmed = self.confirms.encode(self.out, written, synced)
        self.confirmed += confirmed
        return confirmed > 0

    def drop_pending(self):
        return self.confirms.drop()

    @property
    def unconfirmed(self):
        return self.confirms.pending_end - self.confirms.pending_first

    # Settling

    cdef int settle(self, uint8_t kind, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1:
        cdef Consumer consumer
        cdef Py_ssize_t at = 8
        cdef int32_t delay
        cdef uint32_t request = 0
        if n < 8 or (n - 8) % 16 or p[4] > 1 or p[5] or p[6] | p[7]:
            self.host.fault("malformed", f"an acknowledgement of {n} bytes, or with reserved bytes that are not 0")
            return 0
        delay = <int32_t>load32(p)
        if kind == T_ACK:
            request = load32(p)
        consumer = self.consumers.get(id)
        if consumer is None:
            self.host.unknown_handle(id, request)
            return 0
        if kind == T_ACK and p[4] and not self.host.may_cumulate(consumer, request):
            return 0
        while at < n:
            if kind == T_NACK:
                consumer.nack(load64(p + at), load64(p + at + 8), delay, p[4])
            else:
                consumer.ack(0 if p[4] else load64(p + at), load64(p + at + 8))
            at += 16
        if request:
            self.host.acknowledged(consumer, request)
        consumer.feed()
        return 0

    # Output

    def send(self, uint8_t kind, uint32_t id, bytes payload not None):
        cdef Py_ssize_t n = PyBytes_GET_SIZE(payload)
        cdef uint8_t* p = self.out.reserve(HEAD + n)
        put_head(p, n, kind, id)
        memcpy(p + HEAD, PyBytes_AS_STRING(payload), n)
        self.out.commit(HEAD + n)
