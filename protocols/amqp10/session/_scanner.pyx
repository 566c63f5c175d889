# cython: auto_pickle=False
"""The scanner of one connection: whole reads in, records of the log out; what is not ordinary is left to Python.

Taken here, frame by frame and without a Python object per message, from the bytes of the read:

    transfer      a message in one frame or in several, unsettled or settled, within credit and window, to a link with an
                  address, or to one that its link saw before; `messages._storing` makes its record, which goes into the log's
                  open batch. Parts are kept in the link (`gathered`), whoever takes them
    disposition   of a receiver: accepted, released, rejected or modified, for a range
    flow          the windows, and the credit of a receiver's link

`scan` stops at the first frame that is anything else: Python handles it, and `scan` goes on behind it. A frame changes nothing
before it is known to be taken, so what Python sees is as if no kernel were there; tests/property/test_amqp10_paths.py
compares the two. Lists have either form, fields any encoding of their type.

Source: AMQP 1.0 part 2, sections 2.3, 2.6 and 2.7.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from penstock.log_core.batch._appender cimport Appender
from penstock.log_core.batch._batch cimport ENC_AMQP091, F_PERSISTENT, F_SECTIONS
from penstock.protocols.amqp10.channel._core cimport (
    ACCEPTED, ACCEPTED_STATE, DEFAULT, FAILED, HANDLES, REJECTED, RELEASED, ChannelCore, ConnectionCore, IncomingCore, OutgoingCore,
)
from penstock.protocols.amqp10.codec._frames cimport FRAME_HEAD, TRANSFER, Transfer, put_disposition, read_transfer
from penstock.protocols.amqp10.codec._simple cimport (
    Compound, Simple, is_false, is_null, is_true, is_uint, number, read_compound, read_simple,
)
from penstock.protocols.amqp10.messages._storing cimport Stored, store
from penstock.protocols.properties._tables cimport load16, load32
from penstock.router.routes._routes cimport Route, RouteTable

cdef enum:
    DISPOSITION = 0x15
    FLOW = 0x13
    CHANNELS_FIRST = 64             # places for channels; there are more when they are used

cdef bytes RELEASED_STATE = b"\x00\x53\x26\x45"


cdef class Scanner(ConnectionCore):
    def __cinit__(self):
        self.sessions = []
        self.frame_most = 512

    def open_scanner(self, Appender appender not None, bytes user not None):
        self.appender = appender
        self.user = user

    def add_channel(self, ChannelCore channel not None):
        cdef Py_ssize_t missing = channel.number + 1 - PyList_GET_SIZE(self.sessions)
        if missing > 0:
            self.sessions.extend([None] * max(missing, CHANNELS_FIRST))
        self.sessions[channel.number] = channel
        self.newest = None

    def drop_channel(self, int channel):
        if channel < PyList_GET_SIZE(self.sessions):
            self.sessions[channel] = None
            self.newest = None

    # Reads

    cdef Py_ssize_t read(self, const uint8_t* p, Py_ssize_t size) except -2:
        cdef Py_ssize_t at
        self.reads += 1
        self.want = 0
        at = self.scan_bytes(p, 0, size)
        if size - at >= FRAME_HEAD:
            # A whole frame, or one that never becomes one, is for Python.
            self.want = load32(p + at)
            if self.want <= size - at or self.want > <Py_ssize_t>self.frame_most:
                self.want = 0
                self.done = at
                return -1
        self.answers = self.awaiting is not None or self.out.size > 0
        return at

    def begin_read(self):
        cdef Py_ssize_t done = self.done
        self.done = 0
        self.want = 0
        self.reads += not done
        return done

    def scan(self, bytearray buffer not None, Py_ssize_t at, Py_ssize_t size):
        if at < 0 or at > size or size > PyByteArray_GET_SIZE(buffer):
            raise ValueError("not inside the buffer")
        return self.scan_bytes(<const uint8_t*>PyByteArray_AS_STRING(buffer), at, size)

    cdef Py_ssize_t scan_bytes(self, const uint8_t* p, Py_ssize_t at, Py_ssize_t size) except -1:
        """Where the first frame begins that is not taken."""
        cdef const uint8_t* f
        cdef uint32_t frame_size
        cdef uint16_t channel
        cdef ChannelCore session
        while size - at >= FRAME_HEAD:
            f = p + at
            frame_size = load32(f)
            if frame_size > size - at or frame_size > self.frame_most or frame_size < FRAME_HEAD + 4:
                break
            if f[4] != 2 or f[5] != 0 or f[8] != 0 or f[9] != 0x53:
                break
            channel = load16(f + 6)
            session = self.newest
            if session is None or session.number != channel:
                if channel >= PyList_GET_SIZE(self.sessions):
                    break
                session = self.newest = <ChannelCore>self.sessions[channel]
            if session is None or not self.frame(session, f + 10, f + frame_size):
                break
            at += frame_size
        return at

    cdef bint frame(self, ChannelCore channel, const uint8_t* p, const uint8_t* end) except -1:
        """Whether the frame with this performative, from its code on, was taken."""
        if channel.ending:
            return False
        if p[0] == TRANSFER:
            return not self.stop_transfers and self.transfer(channel, p + 1, end)
        if p[0] == DISPOSITION:
            return self.disposition(channel, p + 1, end)
        if p[0] == FLOW:
            return self.flow(channel, p + 1, end)
        return False

    # Messages that come

    cdef bint transfer(self, ChannelCore channel, const uint8_t* p, const uint8_t* end) except -1:
        cdef Transfer head
        cdef IncomingCore link
        cdef bytearray gathered
        cdef Py_ssize_t size = read_transfer(p, end - p, &head), whole
        cdef bint taken
        if size < 0 or head.handle >= HANDLES:
            return False
        p += size
        link = channel.newest
        if link is None or link.handle != head.handle:
            found = channel.cores[head.handle]
            if not isinstance(found, IncomingCore):
                return False
            link = channel.newest = <IncomingCore>found
        if (link.key is None and link.places is None) or link.credit <= 0 or channel.window <= 0:
            return False
        if not (head.known or link.gathering) or link.first_state is not None:
            return False
        if link.gathering and head.known and head.delivery != link.first_id:
            return False
        size = end - p
        if <uint64_t>size > self.message_max or self.gathered > self.message_max - <uint64_t>size:
            return False
        if not (link.gathering or head.more):
            return self.publish(channel, link, head.delivery, head.settled, p, size)
        if not link.gathering:
            link.gathering = True
            link.first_id = head.delivery
            link.part_settled = False
        gathered = link.gathered
        whole = PyByteArray_GET_SIZE(gathered) + size
        PyByteArray_Resize(gathered, whole)
        memcpy(PyByteArray_AS_STRING(gathered) + whole - size, p, size)
        self.gathered += <uint64_t>size
        if head.more:
            link.part_settled = link.part_settled or head.settled
            channel.next_incoming += 1
            channel.window -= 1
            channel.took_frame()
            return True
        taken = self.publish(
            channel, link, link.first_id, link.part_settled or head.settled, <const uint8_t*>PyByteArray_AS_STRING(gathered), whole
        )
        if not taken:                           # Python takes this frame, too
            PyByteArray_Resize(gathered, whole - size)
            self.gathered -= <uint64_t>size
            return False
        link.drop_gathered()
        return True

    cdef bint publish(
        self, ChannelCore channel, IncomingCore link, uint32_t delivery, bint settled, const uint8_t* p, Py_ssize_t size
    ) except -1:
        """Whether the whole message was published, with the transfer that ended it."""
        cdef Stored message
        cdef bytes place
        cdef Route route
        cdef const uint8_t* key
        cdef Py_ssize_t key_size
        cdef uint64_t lsn
        cdef uint16_t flags = 0
        if not store(p, size, &message) or message.timed:
            return False
        if message.user != NULL and (
            message.user_size != PyBytes_GET_SIZE(self.user)
            or memcmp(message.user, PyBytes_AS_STRING(self.user), message.user_size) != 0
        ):
            return False
        place = link.key
        if place is None:
            if message.to == NULL or message.maybe_topic:
                return False
            place = link.places.get(message.to[:message.to_size])
            if place is None:
                return False
        key = <const uint8_t*>PyBytes_AS_STRING(place)
        key_size = PyBytes_GET_SIZE(place)
        route = self.table.lookup(key, key_size)
        if route.error is not None or self.appender.failure is not None:
            return False
        if route.special and route.must_look(<uint64_t>message.body_size):
            return False
        if message.durable:
            flags |= F_PERSISTENT
        if message.has_sections:
            flags |= F_SECTIONS
        lsn = self.appender.append(
            route.lp, route.target, key, <uint16_t>key_size, message.block, message.block_size, message.body,
            <uint32_t>message.body_size, flags, message.priority, ENC_AMQP091, message.ttl, 0,
        )
        self.published += 1
        channel.next_incoming += 1
        channel.window -= 1
        link.delivery_count += 1
        link.credit -= 1
        if not settled:
            if route.routed:
                channel.add_due(delivery, ACCEPTED_STATE, lsn, message.durable and route.durable, link.second)
            else:
                channel.add_due(delivery, ACCEPTED_STATE if link.to_topic else RELEASED_STATE, 0, False, link.second)
        link.used()
        channel.took_frame()
        return True

    # Outcomes of deliveries to the peer

    cdef bint disposition(self, ChannelCore channel, const uint8_t* p, const uint8_t* end) except -1:
        cdef Compound fields
        cdef Simple value
        cdef const uint8_t* q
        cdef const uint8_t* state = NULL
        cdef Py_ssize_t size = read_compound(p, end - p, False, &fields), state_size = 0
        cdef uint32_t i, first = 0, last = 0
        cdef bint settled = False
        cdef int how = DEFAULT
        if size < 0 or p + size != end or fields.count < 2 or fields.count > 6:
            return False
        q = fields.p
        for i in range(fields.count):
            if i == 4 and fields.end - q >= 1 and q[0] == 0:
                state = q
                state_size = read_outcome(q, fields.end - q, &how)
                if state_size < 0:
                    return False
                q += state_size
                continue
            size = read_simple(q, fields.end - q, &value)
            if size < 0:
                return False
            q += size
            if i == 0:                          # role
                if not is_true(&value):
                    return False
            elif i == 1:
                if not is_uint(&value):
                    return False
                first = last = <uint32_t>number(&value)
            elif is_null(&value):
                continue
            elif i == 2:
                if not is_uint(&value):
                    return False
                last = <uint32_t>number(&value)
            elif i == 3:
                settled = is_true(&value)
                if not settled and not is_false(&value):
                    return False
            elif i == 4:
                return False
            elif not (is_true(&value) or is_false(&value)):
                return False
        if q != fields.end:
            return False
        if state == NULL and not settled:
            return True
        if channel.suspended is not None or (channel.seconds and not settled):
            return False
        if channel.settle_range(first, last, how) and not settled:
            put_disposition(self.out, channel.number, False, first, last, True,
                            PyBytes_FromStringAndSize(<const char*>state, state_size))
            self.has_output()
        return True

    # Windows and credit

    cdef bint flow(self, ChannelCore channel, const uint8_t* p, const uint8_t* end) except -1:
        cdef Compound fields
        cdef Simple value
        cdef OutgoingCore link = None
        cdef const uint8_t* q
        cdef Py_ssize_t size = read_compound(p, end - p, False, &fields)
        cdef uint32_t numbers[8]
        cdef bint known[8]
        cdef uint32_t i, room, credit
        if size < 0 or p + size != end or fields.count < 4 or fields.count > 11 or channel.holding:
            return False
        for i in range(8):
            known[i] = False
            numbers[i] = 0
        q = fields.p
        for i in range(fields.count):
            size = read_simple(q, fields.end - q, &value)
            if size < 0:
                return False
            q += size
            if is_null(&value):
                if 1 <= i <= 3:
                    return False
            elif i < 8:
                if not is_uint(&value):
                    return False
                known[i] = True
                numbers[i] = <uint32_t>number(&value)
            elif i == 10 or not is_false(&value):       # drain, echo; properties
                return False
        if q != fields.end:
            return False
        if known[4]:
            if numbers[4] >= HANDLES:
                return False
            found = channel.cores[numbers[4]]
            if not isinstance(found, OutgoingCore) or (<OutgoingCore>found).draining or (<OutgoingCore>found).resuming:
                return False
            link = <OutgoingCore>found
        room = numbers[0] + numbers[1] - channel.next_outgoing
        channel.remote_window = room if room < <uint32_t>0x80000000 else 0
        if link is not None and known[6]:
            credit = (numbers[5] if known[5] else link.delivery_count) + numbers[6] - link.delivery_count
            link.link_credit = credit if credit < <uint32_t>0x80000000 else 0
        channel.feed_starved()
        return True


cdef Py_ssize_t read_outcome(const uint8_t* p, Py_ssize_t n, int* how) noexcept:
    """Bytes of an outcome that says no more than how a delivery ends; -1: Python is to look at it."""
    cdef Compound fields
    cdef Simple value
    cdef const uint8_t* q
    cdef Py_ssize_t size
    cdef uint32_t i
    cdef uint8_t code
    if n < 4 or p[1] != 0x53:
        return -1
    code = p[2]
    size = read_compound(p + 3, n - 3, False, &fields)
    if size < 0 or fields.count > (2 if code == 0x27 else 0):
        return -1
    if code == 0x24:
        how[0] = ACCEPTED
    elif code == 0x25:
        how[0] = REJECTED
    elif code == 0x26 or code == 0x27:
        how[0] = RELEASED
    else:
        return -1
    q = fields.p
    for i in range(fields.count):               # of modified: delivery-failed, undeliverable-here
        n = read_simple(q, fields.end - q, &value)
        if n < 0 or not (is_null(&value) or is_true(&value) or is_false(&value)):
            return -1
        if is_true(&value):
            how[0] = FAILED if i == 0 else REJECTED
        q += n
    return size + 3 if q == fields.end else -1
