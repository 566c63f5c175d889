"""A session's packet ids: what it sent and is not acknowledged, and which QoS 2 messages it received.

Both outlive the connection, and for a session that outlives the process both are rows of a table.

`Inflight`, from us to the client. Packet ids are given in order, 1 .. 65535 and again from 1, so an id names a
place in a ring of 24-byte entries that covers [head, tail): as large as the span of ids in use, not as the id
space. An id that is still in use when all others were is passed over. An entry holds (position, delivery of a cursor); acknowledgements settle it at its cursor here, in C.

    QoS 1   WAIT_ACK  -PUBACK->  free
    QoS 2   WAIT_REC  -PUBREC->  WAIT_COMP  -PUBCOMP->  free        (a PUBREC that refuses frees at once)

The record is settled at PUBREC: from then on the client owns it and only the id matters (mqtt5:4.3.3).

After the connection is lost `suspend` gives the deliveries back to their cursors; the next connection's
deliverer meets the same positions again, first and in log order, and `resumed` finds their old ids
(mqtt5:4.4.0-1, mqtt5:4.6.0-1). An entry whose record does not come again (expired, unsubscribed) is freed once
the cursor is past it; QoS 2 then goes on to PUBREL, so that the client forgets the id too.

**Shared subscriptions** (`source` > 0: another cursor than the session's own). At QoS 1 a lost connection gives
the delivery back to the group and frees its id: another member gets the message. At QoS 2 the message stays this
session's until it ends (mqtt5:4.8.2-4, mqtt5:4.8.2-5): the delivery stays out at the group's cursor, and `resume`
says what is to be sent again. Over a restart the row names the group's queue; the group's cursor gives the record
anew, and `found` tells the entry which delivery it is.

    row of `Inflight`    u8 version | u16 next packet id | (u16 packet id, u8 state, u64 position [, u64 qid])...
                         state | 128: of a shared subscription, whose queue has the number qid
    row of `Received`    u8 version | (u16 packet id)...                                little-endian

Source: MQTT 5.0 sections 2.2.1, 4.3, 4.4, 4.6; MQTT 3.1.1 the same.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from penstock.subscriptions.cursor._cursor cimport Cursor

import struct

_HEAD = struct.Struct("<BH")
_ENTRY = struct.Struct("<HBQ")
_QID = struct.Struct("<Q")

cdef enum:
    ROW_VERSION = 1
    HEAD_BYTES = 3
    ENTRY_BYTES = 11
    QID_BYTES = 8
    SHARED = 128
    FIRST_RING = 16
    VIOLATION = 0x82
    NOT_FOUND = 0x92


cdef class Inflight:
    def __cinit__(self):
        self.cursors = []
        self.done_tokens = []
        self.window = PACKET_IDS

    def __dealloc__(self):
        free(self.ring)

    cdef Flight* find(self, uint32_t packet_id) noexcept:
        """The entry of an id in use, or NULL."""
        cdef uint64_t counter
        cdef Flight* flight
        if self.head == self.tail or packet_id == 0:
            return NULL
        counter = self.head + (packet_id + PACKET_IDS - 1 - self.head % PACKET_IDS) % PACKET_IDS
        if counter >= self.tail:
            return NULL
        flight = &self.ring[counter & self.mask]
        return flight if flight.state != FREE else NULL

    cdef int grow(self) except -1:
        cdef uint64_t size = 2 * (self.mask + 1) if self.ring != NULL else FIRST_RING
        cdef uint64_t counter
        cdef Flight* ring = <Flight*>calloc(size, sizeof(Flight))
        if ring == NULL:
            raise MemoryError
        for counter in range(self.head, self.tail):
            ring[counter & (size - 1)] = self.ring[counter & self.mask]
        free(self.ring)
        self.ring = ring
        self.mask = size - 1
        return 0

    cpdef Py_ssize_t send_quota(self):
        if self.sent >= self.window:
            self.starved = True
            return 0
        return self.window - self.sent

    cdef uint32_t assign(self, uint64_t lsn, uint64_t seq, uint16_t source, int qos) except? 0:
        """The next packet id, now in flight; 0 when the client's window or the id space is full."""
        cdef Flight* flight
        if self.send_quota() <= 0:
            return 0
        if self.held >= PACKET_IDS:
            self.starved = True
            return 0
        while self.tail - self.head >= PACKET_IDS:
            # The next id is still the oldest entry's: that moves on to where its id comes again, and is passed over.
            self.ring[self.tail & self.mask] = self.ring[self.head & self.mask]
            self.ring[self.head & self.mask].state = FREE
            self.tail += 1
            while self.ring[self.head & self.mask].state == FREE:
                self.head += 1
        if self.ring == NULL or self.tail - self.head > self.mask:
            self.grow()
        flight = &self.ring[self.tail & self.mask]
        flight.lsn = lsn
        flight.seq = seq
        flight.source = source
        flight.state = WAIT_REC if qos == 2 else WAIT_ACK
        flight.sent = 1
        self.tail += 1
        self.held += 1
        self.sent += 1
        self.changed = True
        if qos == 2:
            self.exact_changed = True
        return <uint32_t>((self.tail - 1) % PACKET_IDS) + 1

    cdef void free_entry(self, Flight* flight) noexcept:
        flight.state = FREE
        self.held -= 1
        if flight.sent:
            self.sent -= 1
        else:
            self.unsent -= 1
        if self.starved:
            self.freed = True
        while self.head < self.tail and self.ring[self.head & self.mask].state == FREE:
            self.head += 1
        self.changed = True

    cdef void settle(self, Flight* flight):
        """The client has it: done with the record."""
        if flight.source == RETAINED:
            self.done_tokens.append(flight.seq)
            self.freed = True
        elif flight.sent:
            (<Cursor>self.cursors[flight.source]).settle(flight.seq)

    cdef int on_puback(self, uint32_t packet_id):
        cdef Flight* flight = self.find(packet_id)
        if flight == NULL:
            return 0  # of an id that we have forgotten: harmless (mqtt5:4.4 lets the client say it again)
        if flight.state != WAIT_ACK:
            return VIOLATION
        if flight.sent:
            self.settle(flight)
            self.free_entry(flight)
        return 0

    cdef int on_pubrec(self, uint32_t packet_id, uint32_t reason):
        """0: send PUBREL; NOT_FOUND: send it with that reason; 1: send nothing; else the fault."""
        cdef Flight* flight = self.find(packet_id)
        if flight == NULL:
            return NOT_FOUND if reason < 0x80 else 1  # mqtt5:4.3.3-4: a PUBREC that refuses gets no PUBREL
        if flight.state == WAIT_ACK:
            return VIOLATION
        if flight.state == WAIT_REC:
            if not flight.sent:
                return 1  # for the last connection's copy; this one's is still to come
            self.settle(flight)
            self.exact_changed = self.changed = self.exact_done = True
            if reason >= 0x80:
                self.free_entry(flight)
                return 1
            flight.state = WAIT_COMP
        elif reason >= 0x80:
            return 1  # the PUBREL that was sent for the first PUBREC is still answered
        return 0

    cdef int on_pubcomp(self, uint32_t packet_id):
        cdef Flight* flight = self.find(packet_id)
        if flight == NULL:
            return 0
        if flight.state != WAIT_COMP:
            return VIOLATION
        self.free_entry(flight)
        self.exact_changed = True
        return 0

    cdef Flight* resumed(self, uint64_t lsn, uint32_t* packet_id) noexcept:
        """The entry that the own queue's record at `lsn` has from an earlier connection and its id, or NULL."""
        cdef uint64_t counter
        cdef Flight* flight
        if lsn > self.resume_last:
            return NULL
        # In log order, so the next match is where the last one was; the second pass is for what came anyhow.
        for counter in range(self.resume_at, self.tail):
            flight = &self.ring[counter & self.mask]
            if flight.state != FREE and flight.lsn == lsn and flight.source == OWN_QUEUE:
                self.resume_at = counter + 1
                packet_id[0] = <uint32_t>(counter % PACKET_IDS) + 1
                return flight
            if flight.state != FREE and not flight.sent and flight.lsn > lsn and flight.source == OWN_QUEUE:
                break
        for counter in range(self.head, self.tail):
            flight = &self.ring[counter & self.mask]
            if flight.state != FREE and flight.lsn == lsn and flight.source == OWN_QUEUE:
                packet_id[0] = <uint32_t>(counter % PACKET_IDS) + 1
                return flight
        return NULL

    def suspend(self):
        cdef uint64_t counter
        cdef Flight* flight
        for counter in range(self.head, self.tail):
            flight = &self.ring[counter & self.mask]
            if flight.state == FREE or not flight.sent:
                continue
            if flight.state == WAIT_ACK and OWN_QUEUE < flight.source < RETAINED:
                (<Cursor>self.cursors[flight.source]).requeue(flight.seq)
                self.free_entry(flight)
                continue
            if flight.state != WAIT_COMP and flight.source == OWN_QUEUE:
                (<Cursor>self.cursors[OWN_QUEUE]).requeue(flight.seq)
            flight.sent = 0
            self.sent -= 1
            self.unsent += 1

    def resume(self, Py_ssize_t window):
        cdef uint64_t counter
        cdef Flight* flight
        cdef list released = []
        cdef list retained = []
        cdef list shared = []
        self.window = window
        self.resume_at = self.head
        self.resume_last = 0
        for counter in range(self.head, self.tail):
            flight = &self.ring[counter & self.mask]
            if flight.state == FREE:
                continue
            if flight.state == WAIT_COMP:
                flight.sent = 1
                self.sent += 1
                self.unsent -= 1
                released.append(counter % PACKET_IDS + 1)
            elif flight.source == RETAINED:
                retained.append((counter % PACKET_IDS + 1, flight.seq))
            elif flight.source != OWN_QUEUE:
                shared.append((counter % PACKET_IDS + 1, flight.lsn, self.cursors[flight.source]))
            if flight.lsn > self.resume_last and flight.source == OWN_QUEUE:
                self.resume_last = flight.lsn
        return released, retained, shared

    def resend(self, uint32_t packet_id):
        cdef Flight* flight = self.find(packet_id)
        if flight == NULL or flight.sent or self.send_quota() <= 0:
            return False
        flight.sent = 1
        self.sent += 1
        self.unsent -= 1
        return True

    cdef bint abandon(self, Flight* flight):
        """The message will not be sent again: free its id; True when that takes a PUBREL to the client."""
        if flight.state != WAIT_REC:
            self.free_entry(flight)
            return False
        flight.state = WAIT_COMP
        flight.sent = 1
        self.sent += 1
        self.unsent -= 1
        self.exact_changed = self.changed = True
        return True

    def orphans(self):
        cdef uint64_t counter
        cdef Flight* flight
        cdef list released = []
        for counter in range(self.head, self.tail):
            flight = &self.ring[counter & self.mask]
            if flight.state == FREE or flight.sent or flight.source != OWN_QUEUE:
                continue
            if self.abandon(flight):
                released.append(counter % PACKET_IDS + 1)
        self.resume_last = 0
        return released

    # Shared subscriptions

    def join(self, Cursor cursor not None, list joined not None):
        cdef Py_ssize_t i
        cdef list cursors = self.cursors
        for i in range(1, len(cursors)):
            if cursors[i] is cursor:
                return
        for i in range(1, len(cursors)):
            # A group that was left keeps its place while something of it is under way.
            if not any(known is cursors[i] for known in joined) and not self.uses(i):
                cursors[i] = cursor
                return
        if len(cursors) >= RETAINED:
            raise ValueError("more shared subscriptions than a session can have")
        cursors.append(cursor)

    cdef bint uses(self, Py_ssize_t source) noexcept:
        cdef uint64_t counter
        for counter in range(self.head, self.tail):
            if self.ring[counter & self.mask].state != FREE and self.ring[counter & self.mask].source == source:
                return True
        return False

    def under_way(self, Cursor cursor not None):
        cdef uint64_t counter
        cdef Flight* flight
        cdef list found = []
        for counter in range(self.head, self.tail):
            flight = &self.ring[counter & self.mask]
            if flight.state == WAIT_REC and OWN_QUEUE < flight.source < RETAINED:
                if self.cursors[flight.source] is cursor:
                    found.append((counter % PACKET_IDS + 1, flight.lsn))
        return found

    def found(self, uint32_t packet_id, uint64_t lsn, Cursor cursor not None, uint64_t seq):
        cdef Flight* flight = self.find(packet_id)
        if flight != NULL and flight.state == WAIT_REC and flight.lsn == lsn and flight.seq == 0:
            flight.seq = seq
            return True
        return False

    def known(self, uint32_t packet_id):
        cdef Flight* flight = self.find(packet_id)
        return flight == NULL or flight.seq != 0

    def abandon_shared(self, uint32_t packet_id):
        cdef Flight* flight = self.find(packet_id)
        if flight == NULL or flight.sent:
            return False
        (<Cursor>self.cursors[flight.source]).settle(flight.seq)
        return self.abandon(flight)

    def end(self):
        cdef uint64_t counter
        cdef Flight* flight
        for counter in range(self.head, self.tail):
            flight = &self.ring[counter & self.mask]
            if flight.state == WAIT_REC and OWN_QUEUE < flight.source < RETAINED:
                (<Cursor>self.cursors[flight.source]).settle(flight.seq)

    def assign_retained(self, uint64_t token, int qos):
        return self.assign(0, token, RETAINED, qos)

    def give_back(self, uint32_t packet_id):
        cdef Flight* flight = self.find(packet_id)
        if flight != NULL:
            self.free_entry(flight)

    def take_freed(self):
        freed = self.freed
        self.freed = False
        if freed:
            self.starved = False
        return freed

    def take_done_tokens(self):
        tokens = self.done_tokens
        if tokens:
            self.done_tokens = []
        return tokens

    def pack(self):
        """The row; also says that what changed is seen to."""
        cdef uint64_t counter
        cdef uint32_t packet_id
        cdef uint64_t qid
        cdef bint shared
        cdef Flight* flight
        cdef Py_ssize_t size = ENTRY_BYTES if len(self.cursors) == 1 else ENTRY_BYTES + QID_BYTES
        cdef bytes row = PyBytes_FromStringAndSize(NULL, HEAD_BYTES + size * self.held)
        cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(row)
        cdef uint8_t* p = start + HEAD_BYTES
        packet_id = self.tail % PACKET_IDS + 1
        start[0] = ROW_VERSION
        start[1] = packet_id & 255
        start[2] = packet_id >> 8
        for counter in range(self.head, self.tail):
            flight = &self.ring[counter & self.mask]
            # A retained message in flight is not in the log; only that it was received has to outlive us.
            if flight.state != FREE and (flight.lsn or flight.state == WAIT_COMP):
                queue = None
                if OWN_QUEUE < flight.source < RETAINED and flight.state != WAIT_COMP:
                    if flight.state == WAIT_ACK:
                        continue  # after a restart the group gives it to anybody
                    queue = (<Cursor>self.cursors[flight.source]).queue
                # A group that is gone has no queue: nothing of it comes again.
                shared = queue is not None
                packet_id = counter % PACKET_IDS + 1
                p[0] = packet_id & 255
                p[1] = packet_id >> 8
                p[2] = flight.state | (SHARED if shared else 0)
                memcpy(p + 3, &flight.lsn, 8)
                p += ENTRY_BYTES
                if shared:
                    qid = queue.qid
                    memcpy(p, &qid, 8)
                    p += QID_BYTES
        self.changed = self.exact_changed = self.exact_done = self.will_be_saved = False
        return row if p - start == len(row) else row[:p - start]

    @classmethod
    def restore(cls, bytes row not None, Cursor cursor, shared=None):
        cdef Inflight self = cls()
        cdef Py_ssize_t at
        cdef uint16_t source
        cdef uint64_t counter
        cdef Flight* flight
        cdef uint32_t packet_id, first
        self.cursors = [cursor]
        if len(row) < _HEAD.size or row[0] != ROW_VERSION:
            raise ValueError("no row of packet ids")
        entries = []
        at = _HEAD.size
        while at < len(row):
            if len(row) - at < _ENTRY.size:
                raise ValueError("no row of packet ids")
            packet_id, state, lsn = _ENTRY.unpack_from(row, at)
            at += _ENTRY.size
            source = OWN_QUEUE
            if state & SHARED:
                if len(row) - at < _QID.size or state != SHARED | WAIT_REC:
                    raise ValueError("no row of packet ids")
                # Of a group that is gone: nothing comes again, and PUBREL ends it.
                group = shared(_QID.unpack_from(row, at)[0]) if shared is not None else None
                if group is not None:
                    self.join(group, self.cursors)
                    source = self.cursors.index(group)
                state ^= SHARED
                at += _QID.size
            entries.append((packet_id, state, lsn, source))
        following = _HEAD.unpack_from(row)[1]
        if not 1 <= following <= PACKET_IDS:
            raise ValueError("no row of packet ids")
        first = entries[0][0] if entries else following
        self.head = self.tail = first - 1
        for packet_id, state, lsn, source in entries:
            if not (1 <= packet_id <= PACKET_IDS and WAIT_ACK <= state <= WAIT_COMP):
                raise ValueError("no row of packet ids")
            counter = self.head + (packet_id + PACKET_IDS - first) % PACKET_IDS
            if counter < self.tail:
                raise ValueError("packet ids out of order")
            while self.ring == NULL or counter - self.head > self.mask:
                self.grow()
            flight = &self.ring[counter & self.mask]
            flight.lsn = lsn
            flight.seq = 0
            flight.source = source
            flight.state = state
            flight.sent = 0
            self.held += 1
            self.unsent += 1
            self.tail = counter + 1
        # Ids between the last one in use and the next are free: leave them out, but stay within one round.
        counter = self.head + (following + PACKET_IDS - first) % PACKET_IDS
        if entries and counter < self.tail:
            counter += PACKET_IDS if counter + PACKET_IDS - self.head <= PACKET_IDS else 0
        while counter > self.tail:
            while self.ring == NULL or counter - self.head > self.mask:
                self.grow()
            self.tail += 1
        return self


cdef class Received:
    def __dealloc__(self):
        free(self.bits)

    cdef bint has(self, uint32_t packet_id) noexcept:
        return self.bits != NULL and self.bits[packet_id >> 3] >> (packet_id & 7) & 1

    cdef int add(self, uint32_t packet_id) except -1:
        if self.bits == NULL:
            self.bits = <uint8_t*>calloc(8192, 1)
            if self.bits == NULL:
                raise MemoryError
        self.bits[packet_id >> 3] |= 1 << (packet_id & 7)
        self.count += 1
        self.changed = True
        return 0

    cdef bint drop(self, uint32_t packet_id) noexcept:
        if not self.has(packet_id):
            return False
        self.bits[packet_id >> 3] &= ~(1 << (packet_id & 7))
        self.count -= 1
        self.changed = True
        return True

    def __contains__(self, uint16_t packet_id):
        return bool(self.has(packet_id))

    def suspend(self):
        if self.count == 0:
            free(self.bits)
            self.bits = NULL

    def pack(self):
        cdef bytes row = PyBytes_FromStringAndSize(NULL, 1 + 2 * self.count)
        cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(row)
        cdef Py_ssize_t byte, left = self.count
        cdef uint32_t packet_id
        p[0] = ROW_VERSION
        p += 1
        for byte in range(8192):
            if left == 0:
                break
            if self.bits[byte] == 0:
                continue
            for packet_id in range(<uint32_t>byte << 3, <uint32_t>(byte + 1) << 3):
                if self.bits[byte] >> (packet_id & 7) & 1:
                    p[0] = packet_id & 255
                    p[1] = packet_id >> 8
                    p += 2
                    left -= 1
        self.changed = False
        return row

    @classmethod
    def restore(cls, bytes row not None):
        cdef Received self = cls()
        if not row or row[0] != ROW_VERSION or len(row) % 2 != 1:
            raise ValueError("no row of packet ids")
        for (packet_id,) in struct.iter_unpack("<H", row[1:]):
            if packet_id == 0 or self.has(packet_id):
                raise ValueError("no row of packet ids")
            self.add(packet_id)
        self.changed = False
        return self
