"""The scanner of one AMQP connection: whole reads in, records of the log out, the rest as events in their order.

Handled here without a Python object per message: basic.publish with its header and body, from the bytes of the read
straight into the log's open batch; basic.ack, basic.nack, basic.reject; heartbeats. Everything else comes out of `next()`
as an event at its exact place: the session handles it and calls `next()` again.

    frame      type u8 | channel u16 | size u32 | payload, size bytes | CE
    method     class u16 | method u16 | arguments
    publish    60 u16 | 40 u16 | ticket u16 | exchange s | routing key s | bits u8 (1 mandatory, 2 immediate)
    header     class u16 | weight u16 | body size u64 | property flags u16 | property list
    ack        60 u16 | 80 u16 | delivery-tag u64 | bits u8 (1 multiple)
    reject     60 u16 | 90 u16 | delivery-tag u64 | bits u8 (1 requeue)
    nack       60 u16 | 120 u16 | delivery-tag u64 | bits u8 (1 multiple, 2 requeue)

The two short strings of a publish are, as they stand, the key block of the record and the key of the route table.

A message whose method, header and one body frame lie complete in the read is appended from there. Otherwise the
frames are taken one by one and the channel accumulates: its announced size is checked against the limit at the header
and the running sum at each body frame; the buffer grows with what arrived, and all channels of the connection together
hold at most `held_max` bytes.

Events, a tuple each, with the channel number second:

    (METHOD,  channel, class, method, arguments)                  channel is not checked: also for unknown channels
    (PUBLISH, channel, key block, bits, properties, body)         Python must look at it (headers exchange, CC, transaction ...)
    (REFUSED, channel, error)                                     a publish the router refuses
    (UNKNOWN_TAG, channel, method, tag)
    (TOO_LARGE, channel, size)                                    the announced size is above the limit
    (FAULT,   channel, name, frame type, octets, detail)          breaks the rules of framing: ends the connection

While a channel is closing (channel.close was sent) only channel.close and channel.close-ok of it come out.

Source: AMQP 0-9-1 sections 2.3.5, 4.2; RabbitMQ's frame handling as observed (3.10.8).
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from penstock.log_core.batch._appender cimport Appender
from penstock.log_core.batch._batch cimport ENC_AMQP091, F_PERSISTENT
from penstock.protocols.amqp.codec._channel cimport ACKED, BODY, DROPPED, HEADER, IDLE, REQUEUED, Channel
from penstock.protocols.amqp.codec._frames cimport put_return
from penstock.protocols.properties._properties cimport Properties, read_properties
from penstock.protocols.net._stream cimport QuickReader
from penstock.protocols.properties._tables cimport load16, load32, load64
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.router.routes._routes cimport Route, RouteTable

cdef enum:
    T_METHOD = 1
    T_HEADER = 2
    T_BODY = 3
    T_HEARTBEAT = 8
    END = 0xCE
    BASIC = 60
    M_PUBLISH = 0x003C0028      # class << 16 | method
    M_ACK = 0x003C0050
    M_REJECT = 0x003C005A
    M_NACK = 0x003C0078
    M_CLOSE = 0x00140028
    M_CLOSE_OK = 0x00140029
    MANDATORY = 1
    IMMEDIATE = 2
    OCTETS_SHOWN = 64           # of a bad frame, in its fault

METHOD = 1
PUBLISH = 2
REFUSED = 3
UNKNOWN_TAG = 4
TOO_LARGE = 5
FAULT = 6

cdef bytes NO_ROUTE = b"NO_ROUTE"


cdef uint64_t[8] BOUNDS
BOUNDS[:] = [100, 1000, 10000, 100000, 1000000, 10000000, 50000000, 100000000]


cdef class Codec:
    def __cinit__(self, OutBuffer out not None, uint32_t frame_max, uint64_t message_max):
        if message_max > 0x3FFFFFFF:
            raise ValueError("a message has less than 1 GiB")
        self.out = out
        self.frame_max = frame_max
        self.message_max = message_max
        self.held_max = 2 * message_max
        self.channels = {}
        self.touched = set()
        self.awaiting = []

    def open(self, RouteTable table not None, Appender appender not None, bytes user not None):
        """After login: where publishes go. `user` is what a message's user-id must be."""
        self.table = table
        self.appender = appender
        self.user = user

    # Channels

    def add_channel(self, Channel channel not None):
        self.channels[channel.number] = channel
        self.memo = None

    def drop_channel(self, Channel channel not None):
        """Forget the channel, with the message under way on it."""
        self.release(channel)
        del self.channels[channel.number]
        self.memo = None

    def channel(self, int number):
        """The open channel of that number, or None."""
        return self.channels.get(number)

    @property
    def channel_count(self):
        return len(self.channels)

    def all_channels(self):
        return list(self.channels.values())

    cdef Channel channel_of(self, uint16_t number):
        cdef Channel channel = self.memo
        if channel is not None and channel.number == number:
            return channel
        channel = self.channels.get(number)
        self.memo = channel
        return channel

    def release(self, Channel channel not None):
        """Forget the message under way on `channel`."""
        self.held -= channel.body_have
        channel.end_content()

    def hold(self, uint64_t n):
        """Count n more bytes of messages under way; False, and nothing is counted, when that is too much."""
        if n > self.held_max or self.held > self.held_max - n:
            return False
        self.held += n
        return True

    def let_go(self, uint64_t n):
        """These are under way no more."""
        self.held -= n

    # Scanning

    cdef Py_ssize_t read(self, const uint8_t* p, Py_ssize_t size) except -2:
        """Publishes and acknowledgements of an ordinary read; what it stops at, `feed` and `next` go on with."""
        self.p = p
        self.at = 0
        self.end = size
        self.want = 0
        self.stopped = False
        try:
            self.found = self.step()
        except Exception as error:
            self.raised = error
            return -1
        if self.found is not None:
            return -1
        self.p = NULL
        if self.touched:
            self.feed_starved()
        self.answers = PyList_GET_SIZE(self.awaiting) > 0 or self.out.size > 0
        return self.at

    cdef Py_ssize_t answer(self, OutBuffer out, uint64_t written, uint64_t synced) except -2:
        self.written_wanted = self.synced_wanted = 0
        if PyList_GET_SIZE(self.awaiting):
            self.confirm(written, synced)
        return PyList_GET_SIZE(self.awaiting)

    def feed(self, bytearray buffer not None, Py_ssize_t start, Py_ssize_t size):
        """Scan buffer[start:size] with `next`. The buffer must not change until `next` gave None.

        After a `read` that gave -1 that goes on where it stopped, in the same bytes.
        """
        if start < 0 or size > PyByteArray_GET_SIZE(buffer) or start > size:
            raise ValueError("not inside the buffer")
        self.buffer = buffer
        self.p = <const uint8_t*>PyByteArray_AS_STRING(buffer)
        self.end = size
        if self.found is None and self.raised is None:
            self.at = start
            self.want = 0
            self.stopped = False

    def next(self):
        """The next event, or None when no complete frame is left."""
        if self.raised is not None:
            error, self.raised = self.raised, None
            raise error
        event, self.found = self.found, None
        if event is None:
            event = self.step()
        if event is None:
            self.buffer = None
            self.p = NULL
        return event

    @property
    def consumed(self):
        """Bytes of the buffer that are done with."""
        return self.at

    def take_waits(self):
        """(LSN that must be written, LSN that must be synced) for the confirms of this read; 0 = none."""
        waits = self.written_wanted, self.synced_wanted
        self.written_wanted = self.synced_wanted = 0
        return waits

    cpdef bint confirm(self, uint64_t written, uint64_t synced) except -1:
        """Encode the acks of all publishes that are there now, per channel; True when there were some."""
        cdef Channel channel
        cdef bint some = False
        cdef list awaiting = self.awaiting
        self.awaiting = []
        for channel in awaiting:
            if channel.closing:
                channel.awaiting = False
                continue
            some |= channel.confirm(written, synced)
            if channel.published_seq == channel.confirmed_seq:
                channel.awaiting = False
            else:
                self.awaiting.append(channel)
        return some

    cdef int expect(self, Channel channel, uint64_t lsn, bint sync) except -1:
        channel.expect(lsn, sync)
        if not channel.awaiting:
            channel.awaiting = True
            self.awaiting.append(channel)
        if sync:
            self.synced_wanted = max(self.synced_wanted, lsn)
            self.await_synced = max(self.await_synced, lsn)
        else:
            self.written_wanted = max(self.written_wanted, lsn)
            self.await_written = max(self.await_written, lsn)
        return 0

    cpdef feed_starved(self):
        """After a read: wake the queues of consumers whose credit came back."""
        if self.touched:
            touched, self.touched = self.touched, set()
            for channel in touched:
                channel.feed_starved()

    def expect_confirm(self, Channel channel not None, uint64_t lsn, bint sync):
        """A publish of a confirming channel that went through Python."""
        self.expect(channel, lsn, sync)

    def expect_refusal(self, Channel channel not None):
        """A publish of a confirming channel that a queue refused: nacked in its turn."""
        self.expect(channel, self.appender.next_lsn - 1, False)
        channel.refuse_last()

    cdef object step(self):
        cdef const uint8_t* f
        cdef const uint8_t* payload
        cdef Py_ssize_t left
        cdef uint32_t size, index
        cdef uint16_t number
        cdef uint8_t kind
        cdef Channel channel
        while True:
            left = self.end - self.at
            if left < 7:
                return None
            f = self.p + self.at
            kind = f[0]
            number = load16(f + 1)
            size = load32(f + 3)
            # RabbitMQ allows for the 8 bytes around the payload; so do we.
            if size > self.frame_max:
                return self.fault(None, number, "frame_too_large", kind, f, 0, size)
            if left < 8 + <Py_ssize_t>size:
                self.want = 8 + <Py_ssize_t>size
                return None
            payload = f + 7
            if payload[size] != END:
                return self.fault(None, number, "invalid_frame_end_marker", kind, payload, size, payload[size])
            if kind == T_METHOD:
                if size < 4:
                    return self.fault(None, number, "unknown_frame", kind, payload, size, 0)
                index = load32(payload)
                channel = self.channel_of(number) if number else None
                if channel is None:
                    self.at += 8 + <Py_ssize_t>size
                    return (METHOD, number, index >> 16, index & 0xFFFF,
                            PyBytes_FromStringAndSize(<const char*>payload + 4, size - 4))
                if channel.closing:
                    self.at += 8 + <Py_ssize_t>size
                    if index == M_CLOSE or index == M_CLOSE_OK:
                        return (METHOD, number, index >> 16, index & 0xFFFF,
                                PyBytes_FromStringAndSize(<const char*>payload + 4, size - 4))
                    continue
                if channel.phase != IDLE:
                    return self.fault(
                        channel, number, "no_header" if channel.phase == HEADER else "no_body", kind, payload, size, 0
                    )
                if index == M_PUBLISH:
                    if self.stop_publishes:
                        self.stopped = True
                        return None
                    # Moves self.at itself: up to three frames.
                    event = self.publish(channel, payload + 4, size - 4, self.at + 8 + <Py_ssize_t>size)
                else:
                    self.at += 8 + <Py_ssize_t>size
                    if index == M_ACK or index == M_NACK or index == M_REJECT:
                        event = self.settle(channel, index & 0xFFFF, payload + 4, size - 4)
                    else:
                        return (METHOD, number, index >> 16, index & 0xFFFF,
                                PyBytes_FromStringAndSize(<const char*>payload + 4, size - 4))
                if event is not None:
                    return event
            elif kind == T_HEADER or kind == T_BODY:
                channel = self.channel_of(number) if number else None
                if channel is None:
                    return self.fault(None, number, "no_method", kind, payload, size, 0)
                self.at += 8 + <Py_ssize_t>size
                if channel.closing:
                    continue
                if kind == T_HEADER:
                    if channel.phase != HEADER:
                        return self.fault(channel, number, "no_method" if channel.phase == IDLE else "no_body",
                                          kind, payload, size, 0)
                    event = self.header(channel, payload, size)
                else:
                    if channel.phase != BODY:
                        return self.fault(channel, number, "no_method" if channel.phase == IDLE else "no_header",
                                          kind, payload, size, 0)
                    event = self.body(channel, payload, size)
                if event is not None:
                    return event
            elif kind == T_HEARTBEAT:
                if number:
                    return self.fault(None, number, "heartbeat", kind, payload, size, 0)
                self.at += 8 + <Py_ssize_t>size
            else:
                return self.fault(None, number, "unknown_frame", kind, payload, size, 0)

    cdef object fault(self, Channel channel, uint16_t number, str name, int kind, const uint8_t* p, Py_ssize_t n,
                      uint64_t detail):
        if n > OCTETS_SHOWN:
            n = OCTETS_SHOWN
        if channel is not None:
            self.release(channel)
        self.at = self.end
        return (FAULT, number, name, kind, PyBytes_FromStringAndSize(<const char*>p, n), detail)

    # Publishing

    cdef object publish(self, Channel channel, const uint8_t* p, Py_ssize_t n, Py_ssize_t next):
        """basic.publish with n bytes of arguments at p; the frame behind it begins at `next`."""
        cdef const uint8_t* key = p + 2
        cdef const uint8_t* f
        cdef const uint8_t* props
        cdef Py_ssize_t size, left
        cdef uint32_t header_size, frame_size
        cdef uint64_t body_size
        cdef uint8_t bits
        # ticket, exchange, routing key, bits: nothing less and nothing behind
        if n < 5:
            return self.fault(channel, channel.number, "publish", T_METHOD, p, n, 0)
        size = 1 + key[0]
        if n < 2 + size + 2:
            return self.fault(channel, channel.number, "publish", T_METHOD, p, n, 0)
        size += 1 + key[size]
        if n != 2 + size + 1:
            return self.fault(channel, channel.number, "publish", T_METHOD, p, n, 0)
        bits = key[size]
        self.at = next
        if bits & IMMEDIATE:
            return (FAULT, channel.number, "immediate", T_METHOD, b"", 0)
        left = self.end - next
        f = self.p + next
        if left >= 8 and f[0] == T_HEADER and load16(f + 1) == channel.number:
            header_size = load32(f + 3)
            if 14 <= header_size <= self.frame_max and left >= 8 + <Py_ssize_t>header_size:
                body_size = load64(f + 11)
                if f[7 + header_size] == END and load16(f + 7) == BASIC and body_size <= self.message_max:
                    props = f + 19
                    next += 8 + <Py_ssize_t>header_size
                    if body_size == 0:
                        self.at = next
                        return self.complete(channel, key, <uint16_t>size, bits, props, header_size - 12, f, 0)
                    left = self.end - next
                    f = self.p + next
                    # Not body_size + 8 <= left alone: the sum is a peer's.
                    if left >= 8 and body_size <= <uint64_t>(left - 8):
                        frame_size = load32(f + 3)
                        if (
                            frame_size == body_size
                            and frame_size <= self.frame_max
                            and f[0] == T_BODY
                            and load16(f + 1) == channel.number
                            and f[7 + frame_size] == END
                        ):
                            self.at = next + 8 + <Py_ssize_t>frame_size
                            return self.complete(channel, key, <uint16_t>size, bits, props, header_size - 12,
                                                 f + 7, body_size)
        channel.begin_content(key, <uint16_t>size, bits)
        return None

    cdef object header(self, Channel channel, const uint8_t* p, Py_ssize_t n):
        cdef uint64_t body_size
        if n < 14:
            return self.fault(channel, channel.number, "header", T_HEADER, p, n, 0)
        if load16(p) != BASIC:
            return self.fault(channel, channel.number, "header_class", T_HEADER, p, n, load16(p))
        body_size = load64(p + 4)
        if body_size > self.message_max:
            self.release(channel)
            return (TOO_LARGE, channel.number, body_size)
        channel.keep_header(p + 12, <uint32_t>(n - 12), body_size)
        if body_size == 0:
            return self.finish_content(channel)
        return None

    cdef object body(self, Channel channel, const uint8_t* p, Py_ssize_t n):
        if <uint64_t>n > channel.body_size - channel.body_have:
            return self.fault(channel, channel.number, "body_too_large", T_BODY, p, n, channel.body_size)
        if self.held + <uint64_t>n > self.held_max:
            return self.fault(channel, channel.number, "too_much_held", T_BODY, p, 0, self.held_max)
        channel.keep_body(p, <uint64_t>n)
        self.held += <uint64_t>n
        if channel.body_have == channel.body_size:
            return self.finish_content(channel)
        return None

    def finish_content(self, Channel channel not None):
        """Publish what the channel accumulated."""
        cdef const uint8_t* body = channel.body if channel.body_size else &channel.key[0]
        try:
            return self.complete(channel, &channel.key[0], channel.key_size, channel.bits, channel.props,
                                 channel.props_size, body, channel.body_size)
        finally:
            self.release(channel)

    cdef object complete(self, Channel channel, const uint8_t* key, uint16_t key_size, uint8_t bits,
                         const uint8_t* props, uint32_t props_size, const uint8_t* body, uint64_t body_size):
        """A whole message: append it, or hand it to Python."""
        cdef Properties found
        cdef Route route
        cdef uint64_t lsn
        cdef uint16_t flags = 0
        cdef bint special
        if read_properties(props, props_size, &found) < 0:
            return self.fault(channel, channel.number, "properties", T_HEADER, props, props_size, 0)
        route = self.table.lookup(key, key_size)
        if route.error is not None:
            return (REFUSED, channel.number, route.error)
        special = (
            found.special
            or channel.transactional
            or (
                found.user_id != NULL
                and (
                    found.user_id_size != PyBytes_GET_SIZE(self.user)
                    or memcmp(found.user_id, PyBytes_AS_STRING(self.user), found.user_id_size) != 0
                )
            )
        )
        if special or (route.special and route.must_look(body_size)):
            self.count(channel, body_size)
            return (
                PUBLISH,
                channel.number,
                PyBytes_FromStringAndSize(<const char*>key, key_size),
                bits,
                PyBytes_FromStringAndSize(<const char*>props, props_size),
                PyBytes_FromStringAndSize(<const char*>body, <Py_ssize_t>body_size),
            )
        if found.delivery_mode == 2:
            flags = F_PERSISTENT
        lsn = self.appender.append(route.lp, route.target, key, key_size, props, props_size, body,
                                   <uint32_t>body_size, flags, found.priority, ENC_AMQP091, found.ttl, 0)
        self.count(channel, body_size)
        if not route.routed:
            if bits & MANDATORY:
                channel.returned += 1
                put_return(channel.out, channel.number, channel.body_max, 312, NO_ROUTE, key, key_size, props,
                           props_size, body, body_size)
            else:
                channel.dropped += 1
        if channel.confirming:
            self.expect(channel, lsn, flags and route.durable)
        return None

    cdef void count(self, Channel channel, uint64_t body_size) noexcept:
        """A publish, in the totals."""
        cdef int i = 0
        self.published += 1
        channel.published += 1
        self.size_sum += body_size
        while i < 8 and body_size > BOUNDS[i]:
            i += 1
        self.sizes[i] += 1

    @property
    def size_counts(self):
        """Publishes by the size of their body."""
        return tuple([self.sizes[i] for i in range(9)])

    # Settling

    cdef object settle(self, Channel channel, uint16_t method, const uint8_t* p, Py_ssize_t n):
        cdef uint64_t tag
        cdef bint multiple
        cdef int how
        if n != 9:
            return self.fault(channel, channel.number, "settle", T_METHOD, p, n, method)
        tag = load64(p)
        if method == 80:
            multiple = p[8] & 1
            how = ACKED
        elif method == 120:
            multiple = p[8] & 1
            how = REQUEUED if p[8] & 2 else DROPPED
        else:
            multiple = False
            how = REQUEUED if p[8] & 1 else DROPPED
        if not (channel.plan(tag, multiple, how) if channel.transactional else channel.settle(tag, multiple, how)):
            return (UNKNOWN_TAG, channel.number, method, tag)
        if channel.starved or channel.waiting:
            self.touched.add(channel)
        return None
