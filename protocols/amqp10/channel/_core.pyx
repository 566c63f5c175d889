# cython: auto_pickle=False
"""The state of a connection's sessions and links in C: windows, credit, deliveries that are not settled, outcomes.

`Session`, `Channel`, `IncomingLink` and `OutgoingLink` derive from these classes, so kernels and Python work on one state: a
kernel takes the frames that are ordinary, Python all others, in their order.

Deliveries to the peer that are not settled stand in a ring in the order of their numbers, which begins at the oldest. An entry
owns its link and its cursor, so that a deleted queue's deliveries can still be settled (into nothing). A range that is settled
is given to the cursor in runs, and leaves empty entries; a ring that is full is freed of them first, so that one delivery that
is never settled holds up no memory.

Outcomes for the peer are kept in ranges. A range grows while deliveries of one read follow one another and have one outcome;
it waits for the last of them. It does not grow over several reads, or a busy sender would never hear of any.
"""

from cpython.bytearray cimport PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from penstock.log_core.batch._batch cimport ENC_AMQP091, F_SECTIONS, Batch, RecordHeader
from penstock.log_core.feeds._feed cimport Feed
from penstock.protocols.amqp10.codec._frames cimport Piece, frames_of, put_delivery, put_disposition, put_flow
from penstock.protocols.amqp10.messages._delivering cimport Payload, Told, deliverable
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.protocols.properties._translated cimport translated
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._take_result cimport COUNTED, TAKEN, Item
from penstock.subscriptions.tick._fast_path cimport FastPath, Served

cdef enum:
    TAKE_MAX = 1024                 # messages that a link takes at once

cdef bytes ACCEPTED_STATE = b"\x00\x53\x24\x45"

HOW_ACCEPTED = ACCEPTED
HOW_REJECTED = REJECTED
HOW_RELEASED = RELEASED
HOW_FAILED = FAILED
HOW_DEFAULT = DEFAULT
globals()["ACCEPTED"] = ACCEPTED_STATE


cdef class ConnectionCore(QuickReader):
    def __init__(self, OutBuffer out not None):
        self.out = out

    cdef int has_output(self) except -1:
        if self.sink is None:
            self.dirty()
        else:
            self.sink.has_output()
        return 0

    cdef Py_ssize_t capacity(self) except -1:
        return self.output_capacity() if self.sink is None else self.sink._output_capacity()

    def wait(self, uint64_t lsn, bint synced):
        self.await_lsn(lsn, synced)

    cdef void await_lsn(self, uint64_t lsn, bint synced) noexcept:
        if synced:
            self.synced_wanted = max(self.synced_wanted, lsn)
            self.await_synced = max(self.await_synced, lsn)
        else:
            self.written_wanted = max(self.written_wanted, lsn)
            self.await_written = max(self.await_written, lsn)

    def take_waits(self):
        waits = self.written_wanted, self.synced_wanted
        self.written_wanted = self.synced_wanted = 0
        return waits

    def say_due(self, uint64_t written, uint64_t synced):
        if self.say(written, synced):
            self.has_output()

    cdef bint say(self, uint64_t written, uint64_t synced) except -1:
        """Write the outcomes that wait for nothing more; whether there are any."""
        cdef ChannelCore channel = self.awaiting, next_
        cdef bint said = False
        self.awaiting = None
        while channel is not None:
            next_ = channel.next_awaiting
            channel.next_awaiting = None
            channel.awaits = False
            said |= channel.say(written, synced)
            if channel.due_count:
                channel.await_turn()
            channel = next_
        return said

    cdef Py_ssize_t answer(self, OutBuffer out, uint64_t written, uint64_t synced) except -2:
        self.written_wanted = self.synced_wanted = 0
        self.say(written, synced)       # whoever asks sends the output, too
        return self.awaiting is not None


cdef class ChannelCore:
    def __cinit__(self, ConnectionCore connection not None, int number, *_):
        if number < 0 or number > 65535:
            raise ValueError("a channel number is a u16")
        self.connection = connection
        self.number = <uint16_t>number
        self.cores = [None] * HANDLES
        self.starved = []

    def __dealloc__(self):
        cdef uint64_t i
        cdef Py_ssize_t k
        if self.ring != NULL:
            for i in range(self.first, self.last):
                Py_XDECREF(self.ring[i & self.mask].link)
                Py_XDECREF(self.ring[i & self.mask].cursor)
        for k in range(self.due_count):
            Py_XDECREF(self.due[k].state)
        free(self.ring)
        free(self.due)

    # Links

    def attach_core(self, link not None):
        cdef uint32_t handle = link.handle
        if handle >= HANDLES:
            raise ValueError("no such handle")
        self.cores[handle] = link
        self.newest = None

    def detach_core(self, uint32_t handle):
        if handle < HANDLES:
            self.cores[handle] = None
            self.newest = None

    cdef int feed_starved(self) except -1:
        cdef OutgoingCore link
        if not self.starved:
            return 0
        starved, self.starved = self.starved, []
        for link in starved:
            link.starving = False
            if link.attached:
                link.wake_now()
        return 0

    # Transfers that came

    def put_session_flow(self):
        put_flow(self.connection.out, self.number, self.next_incoming, <uint32_t>self.window, self.next_outgoing,
                 <uint32_t>self.window_most, -1, 0, 0)
        self.connection.has_output()

    def took(self):
        self.took_frame()

    cdef int took_frame(self) except -1:
        """Give the window again when half of it is used."""
        if self.window <= self.window_most // 2:
            self.window = self.window_most
            self.put_session_flow()
        return 0

    # Outcomes for the peer

    def settle_later(self, uint32_t number, bytes state not None, uint64_t lsn, bint synced, bint second):
        self.add_due(number, state, lsn, synced, second)

    cdef int add_due(self, uint32_t number, bytes state, uint64_t lsn, bint synced, bint second) except -1:
        cdef Due* last = &self.due[self.due_count - 1] if self.due_count else NULL
        cdef Due* grown
        cdef Py_ssize_t capacity
        cdef ConnectionCore connection = self.connection
        if (
            last != NULL and last.read == connection.reads and last.synced == synced and last.second == second
            and number == <uint32_t>(last.last + 1) and (last.state == <PyObject*>state or <bytes>last.state == state)
        ):
            last.last = number
            last.lsn = max(last.lsn, lsn)
        else:
            if self.due_count == self.due_capacity:
                capacity = max(2 * self.due_capacity, <Py_ssize_t>16)
                grown = <Due*>realloc(self.due, capacity * sizeof(Due))
                if grown == NULL:
                    raise MemoryError
                self.due = grown
                self.due_capacity = capacity
            last = &self.due[self.due_count]
            last.first = last.last = number
            last.lsn = lsn
            last.synced = synced
            last.second = second
            last.read = connection.reads
            last.state = <PyObject*>state
            Py_INCREF(state)
            self.due_count += 1
        if not self.awaits:
            self.await_turn()
        if lsn:
            connection.await_lsn(lsn, synced)
        return 0

    cdef void await_turn(self) noexcept:
        """It is among the channels that have outcomes."""
        self.awaits = True
        self.next_awaiting = self.connection.awaiting
        self.connection.awaiting = self

    cdef bint say(self, uint64_t written, uint64_t synced) except -1:
        """Write the outcomes that wait for nothing more; neighbours with the same one are one range. Whether there are any."""
        cdef Py_ssize_t i, kept = 0, count = self.due_count
        cdef Due* entry
        cdef bytes state = None
        cdef uint32_t first = 0, last = 0
        cdef bint second = False
        for i in range(count):
            entry = &self.due[i]
            if entry.lsn > (synced if entry.synced else written):
                self.due[kept] = entry[0]
                kept += 1
                continue
            if state is not None and entry.first == <uint32_t>(last + 1) and entry.second == second and (
                entry.state == <PyObject*>state or <bytes>entry.state == state
            ):
                last = entry.last
            else:
                if state is not None:
                    self.say_one(first, last, second, state)
                first, last, second = entry.first, entry.last, entry.second
                state = <bytes>entry.state
            Py_DECREF(<object>entry.state)
        self.due_count = kept
        if state is not None:
            self.say_one(first, last, second, state)
        return state is not None

    cdef int say_one(self, uint32_t first, uint32_t last, bint second, bytes state) except -1:
        if state == ACCEPTED_STATE:
            self.connection.confirmed += <uint32_t>(last - first) + <uint64_t>1
        return put_disposition(self.connection.out, self.number, True, first, last, not second, state)

    def drop_due(self):
        cdef Py_ssize_t i, count = self.due_count
        self.due_count = 0
        for i in range(count):
            Py_DECREF(<object>self.due[i].state)

    def forget_starved(self):
        self.starved.clear()

    # Deliveries to the peer

    cdef uint64_t hold(self, OutgoingCore link, Cursor cursor, uint64_t seq) except? 0:
        """The number of the next delivery, which awaits its settlement."""
        cdef uint64_t number = self.next_number
        cdef Unsettled* entry
        if self.ring == NULL or self.last - self.first > self.mask:
            self.make_room()
        entry = &self.ring[self.last & self.mask]
        entry.number = number
        entry.link = <PyObject*>link
        entry.cursor = <PyObject*>cursor
        entry.seq = seq
        Py_INCREF(link)
        Py_INCREF(cursor)
        self.last += 1
        self.live += 1
        self.next_number = number + 1
        return number

    cdef int make_room(self) except -1:
        """Free the ring of empty entries, or double it when more than half of them are in use."""
        cdef uint64_t capacity = 32 if self.ring == NULL else self.mask + 1, i, kept = 0
        cdef Unsettled* grown
        if self.ring != NULL and 2 * <uint64_t>self.live > capacity:
            capacity *= 2
        grown = <Unsettled*>malloc(capacity * sizeof(Unsettled))
        if grown == NULL:
            raise MemoryError
        for i in range(self.first, self.last):
            if self.ring[i & self.mask].link != NULL:
                grown[kept] = self.ring[i & self.mask]
                kept += 1
        free(self.ring)
        self.ring = grown
        self.mask = capacity - 1
        self.first = 0
        self.last = kept
        return 0

    cdef uint64_t find(self, uint64_t number) noexcept:
        """Where the first entry stands whose number is `number`, or above."""
        cdef uint64_t low = self.first, high = self.last, middle
        while low < high:
            middle = low + (high - low) // 2
            if self.ring[middle & self.mask].number < number:
                low = middle + 1
            else:
                high = middle
        return low

    def number_settled(self):
        cdef uint64_t number = self.next_number
        self.next_number = number + 1
        return number & 0xFFFFFFFF

    cdef void drop(self, Unsettled* entry) noexcept:
        self.live -= 1
        Py_DECREF(<object>entry.link)
        Py_DECREF(<object>entry.cursor)
        entry.link = entry.cursor = NULL

    cdef void advance(self) noexcept:
        """The ring begins at the oldest delivery that is not settled."""
        while self.first < self.last and self.ring[self.first & self.mask].link == NULL:
            self.first += 1

    cdef Py_ssize_t settle_range(self, uint32_t first, uint32_t last, int how) except -1:
        """End what is out of the numbers [first, last], which wrap; how many."""
        cdef uint64_t span = <uint64_t><uint32_t>(last - first) + 1, oldest, ahead
        cdef Py_ssize_t n = 0
        if self.first == self.last:
            return 0
        oldest = self.ring[self.first & self.mask].number
        ahead = <uint32_t>(first - <uint32_t>oldest)
        n += self.settle_part(oldest + ahead, oldest + ahead + span, how)
        if ahead + span > <uint64_t>0x100000000:
            # It reaches round to the oldest one.
            n += self.settle_part(oldest, oldest + ahead + span - <uint64_t>0x100000000, how)
        self.advance()
        self.connection.acknowledged += n
        return n

    cdef Py_ssize_t settle_part(self, uint64_t low, uint64_t high, int how) except -1:
        """End what is out of the numbers [low, high); how many."""
        cdef uint64_t i = self.find(low), end = self.find(high), seq, count
        cdef Unsettled* entry
        cdef PyObject* link
        cdef Cursor cursor
        cdef Py_ssize_t n = 0
        cdef int end_how
        while i < end:
            entry = &self.ring[i & self.mask]
            link = entry.link
            if link == NULL:
                i += 1
                continue
            cursor = <Cursor>entry.cursor
            seq = entry.seq
            count = 0
            end_how = (<OutgoingCore>link).default_how if how == DEFAULT else how
            while True:         # a run of one link and cursor
                self.drop(entry)
                count += 1
                i += 1
                if i >= end:
                    break
                entry = &self.ring[i & self.mask]
                if entry.cursor != <PyObject*>cursor or entry.link != link or entry.seq != seq + count:
                    break
            n += count
            if end_how == ACCEPTED:
                cursor.settle_run(seq, count)
                continue
            while count:
                end_delivery(cursor, seq, end_how)
                seq += 1
                count -= 1
        return n

    def settle(self, uint32_t first, uint32_t last, int how):
        return self.settle_range(first, last, how)

    def chosen(self, uint32_t first, uint32_t last):
        cdef uint64_t span = <uint64_t><uint32_t>(last - first) + 1, oldest, ahead
        cdef list found = []
        if self.first == self.last:
            return found
        oldest = self.ring[self.first & self.mask].number
        ahead = <uint32_t>(first - <uint32_t>oldest)
        self.choose(oldest + ahead, oldest + ahead + span, found)
        if ahead + span > <uint64_t>0x100000000:
            # It reaches round to the oldest one.
            self.choose(oldest, oldest + ahead + span - <uint64_t>0x100000000, found)
        return found

    cdef int choose(self, uint64_t low, uint64_t high, list found) except -1:
        """Those of the numbers [low, high)."""
        cdef uint64_t i
        cdef Unsettled* entry
        for i in range(self.find(low), self.find(high)):
            entry = &self.ring[i & self.mask]
            if entry.link != NULL:
                found.append((<uint32_t>entry.number, <Cursor>entry.cursor, entry.seq))
        return 0

    def forget(self, list numbers not None):
        cdef uint64_t i, oldest
        cdef uint32_t number
        cdef Unsettled* entry
        if self.first == self.last:
            return
        oldest = self.ring[self.first & self.mask].number
        for number in numbers:
            i = self.find(oldest + <uint32_t>(number - <uint32_t>oldest))
            if i < self.last:
                entry = &self.ring[i & self.mask]
                if entry.link != NULL and <uint32_t>entry.number == number:
                    self.drop(entry)
        self.advance()

    def give_back(self, OutgoingCore link not None, bint failed):
        cdef uint64_t seq
        cdef Cursor cursor
        cdef int how = link.default_how if link.has_default or not failed else FAILED
        for _, cursor, seq in self.take_out(link):
            end_delivery(cursor, seq, how)

    def take_out(self, OutgoingCore link not None):
        cdef uint64_t i
        cdef Unsettled* entry
        cdef list found = []
        for i in range(self.first, self.last):
            entry = &self.ring[i & self.mask]
            if entry.link == <PyObject*>link:
                found.append((<uint32_t>entry.number, <Cursor>entry.cursor, entry.seq))
                self.drop(entry)
        self.advance()
        return found

    @property
    def unsettled(self):
        return self.live

    cdef int put_message(self, OutgoingCore link, uint32_t number, Piece* pieces, Py_ssize_t size) except -1:
        """Write a message in as many frames as it needs, or have them wait for the peer's window."""
        cdef ConnectionCore connection = self.connection
        cdef Py_ssize_t frames = frames_of(size, connection.frame_max)
        connection.delivered += 1
        if self.holding or frames > self.remote_window:
            self.write_later(link.handle, number, link.settled, joined(pieces), link.series)
            return 0
        put_delivery(connection.out, self.number, connection.frame_max, link.handle, number, link.series, link.settled,
                     pieces, size)
        self.remote_window -= frames
        self.next_outgoing += <uint32_t>frames
        return 0

    def write_later(self, handle, number, settled, payload, series):
        raise NotImplementedError


cdef bytes joined(Piece* pieces):
    cdef Py_ssize_t i
    return b"".join([pieces[i].p[:pieces[i].size] for i in range(3) if pieces[i].size])


cpdef int end_delivery(Cursor cursor, uint64_t seq, int how) except -1:
    if how == ACCEPTED:
        cursor.settle(seq)
    elif how == REJECTED:
        cursor.reject(seq)
    elif how == FAILED:
        cursor.requeue(seq)
    else:
        cursor.release(seq)
    return 0


cdef class IncomingCore:
    def __cinit__(self, ChannelCore channel not None, *_, **__):
        self.channel = channel

    def __init__(self, ChannelCore channel not None, uint32_t handle, int64_t most):
        self.handle = handle
        self.gathered = bytearray()
        self.most = most

    def give_credit(self):
        self.put_credit()

    cdef int put_credit(self) except -1:
        cdef ChannelCore channel = self.channel
        self.credit = self.most - self.pending
        put_flow(channel.connection.out, channel.number, channel.next_incoming, <uint32_t>channel.window,
                 channel.next_outgoing, <uint32_t>channel.window_most, <int>self.handle, self.delivery_count, <uint32_t>self.credit)
        channel.connection.has_output()
        return 0

    cdef int used(self) except -1:
        if self.credit <= (self.most - self.pending) // 2:
            self.put_credit()
        return 0

    def credit_used(self):
        self.used()

    cdef int drop_gathered(self) except -1:
        self.channel.connection.gathered -= <uint64_t>PyByteArray_GET_SIZE(self.gathered)
        self.gathered = bytearray()
        self.gathering = False
        self.first_state = None
        return 0

    def drop_parts(self):
        self.drop_gathered()


cdef class OutgoingCore(DirectConsumer):
    def __cinit__(self, ChannelCore channel not None, *_, **__):
        self.channel = channel

    def __init__(self, ChannelCore channel not None, uint32_t handle):
        self.handle = handle
        self.default_how = RELEASED

    def of_stream(self, Feed offsets not None, int64_t base):
        self.offsets = offsets
        self.offset_base = base

    cdef int wake_now(self) except -1:
        """It has credit again."""
        cdef FastPath way = (<Served>self.queue).fast_path if isinstance(self.queue, Served) else None
        if way is not None:
            way.wake()          # it is the only one
        else:
            self.queue.credit_gained(self)
        return 0

    cdef Py_ssize_t room(self) except -1:
        """Messages that it would take now."""
        cdef ChannelCore channel = self.channel
        cdef int64_t most = min(self.link_credit, channel.remote_window)
        if channel.holding or channel.ending or not self.attached or most <= 0:
            if not self.starving:
                self.starving = True
                channel.starved.append(self)
            return 0
        if channel.connection.capacity() <= 0:
            return 0
        return min(most, <int64_t>TAKE_MAX)

    cdef int send_out(self) except -1:
        if self.channel.connection.sink is not None:
            self.channel.connection.sink.send_out()
        return 0

    cdef Py_ssize_t put(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step) except -1:
        """Encode items first, first + step ... of `cursor`; how many were taken."""
        cdef ChannelCore channel = self.channel
        cdef OutBuffer out = channel.connection.out
        cdef Py_ssize_t i = first, took = 0, most = self.room(), full
        cdef int64_t now = -1
        if most <= 0:
            return 0
        full = out.size + channel.connection.capacity()
        while i < TAKEN.n and took < most and out.size < full and channel.remote_window > 0 and not channel.holding:
            self.send(cursor, &TAKEN.items[i], &now)
            took += 1
            i += step
        if took:
            channel.connection.has_output()
        return took

    cdef int send(self, Cursor cursor, Item* item, int64_t* now) except -1:
        """Write a delivery of one item, unless the filters do not let it pass."""
        cdef ChannelCore channel = self.channel
        cdef Batch batch = <Batch>item.batch
        cdef RecordHeader* record = &batch.headers[item.index]
        cdef const uint8_t* blob = batch.blob + record.off
        cdef const uint8_t* key = blob
        cdef const uint8_t* props = blob + record.key
        cdef Py_ssize_t key_size = record.key, props_size = record.props, size
        cdef bytes other_key, other_props, found, note = cursor.note_of(batch.base_lsn + item.index)
        cdef uint64_t seq = item.seq, number
        cdef Told told
        cdef Payload payload
        cdef Piece pieces[3]
        told.count = item.count
        if item.redelivered and not item.count and not item.released:
            told.count = 1                      # how often, nobody knows any more
        told.acquired = told.count + item.released
        told.counts = item.redelivered == COUNTED
        told.ttl_left = told.offset = -1
        if record.ttl:
            if now[0] < 0:
                now[0] = cursor._log.now_ms()
            told.ttl_left = max(<int64_t>record.ttl - (now[0] - batch.base_ts - <int64_t>record.ts), <int64_t>0)
        if self.offsets is not None:
            told.offset = self.offset_base + <int64_t>self.offsets.index_of(batch.base_lsn + item.index)
        if record.enc != ENC_AMQP091:
            other_key, other_props = translated(record, blob, batch.base_ts, cursor._log)
            key = <const uint8_t*>PyBytes_AS_STRING(other_key)
            key_size = PyBytes_GET_SIZE(other_key)
            props = <const uint8_t*>PyBytes_AS_STRING(other_props)
            props_size = PyBytes_GET_SIZE(other_props)
        pieces[1].size = pieces[2].size = 0
        if not note and deliverable(
            key, key_size, props, props_size, blob + record.key + record.props,
            <Py_ssize_t>(record.size - record.key - record.props), record.flags & F_SECTIONS, &told, &payload
        ):
            pieces[0].p = payload.head
            pieces[0].size = payload.head_size
            pieces[1].p = payload.body
            pieces[1].size = payload.body_size
            pieces[2].p = payload.foot
            pieces[2].size = payload.foot_size
            if self.filtered and not self.lets_pass(pieces):
                cursor.settle(seq)
                return 0
        else:
            found = self.payload(
                batch.record(item.index), None if told.offset < 0 else told.offset, told.count, told.acquired, told.counts,
                note,
            )
            if found is None:
                cursor.settle(seq)
                return 0
            pieces[0].p = <const uint8_t*>PyBytes_AS_STRING(found)
            pieces[0].size = PyBytes_GET_SIZE(found)
        if channel.tap is not None:
            channel.tap(self.queue, batch, item.index, bool(item.redelivered))
        size = pieces[0].size + pieces[1].size + pieces[2].size
        if self.settled:
            number = channel.next_number
            channel.next_number = number + 1
        else:
            number = channel.hold(self, cursor, seq)
        self.delivery_count += 1
        self.link_credit -= 1
        channel.put_message(self, <uint32_t>number, pieces, size)
        if self.settled:
            cursor.settle(seq)
        return 0

    cdef bint lets_pass(self, Piece* pieces) except -1:
        """Whether the filters let a message pass; the sections that they look at are in its first piece."""
        cdef int found = -1 if self.program is None else self.program.passes(pieces[0].p, pieces[0].size)
        return found == 1 if found >= 0 else self.passes(joined(pieces))

    def payload(self, record, offset, delivery_count, acquired, counts, note):
        raise NotImplementedError

    def passes(self, payload):
        raise NotImplementedError
