"""Messages that are published and not confirmed, by the delivery tags that their source knows them by.

    ack       1 | channel u16 | size u32 | 60 u16 | 80 u16 | publish number u64 | multiple u8 | CE

A broker may confirm in any order, one by one or up to a number. A message is settled at the source when it and all
before it are confirmed: one tag for a read of confirms. Behind a return or a nack nothing counts as
confirmed any more: a later confirm would stand for what was refused, too.

Source: AMQP 0-9-1, 2.3.5; RabbitMQ's publisher confirms.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from penstock.protocols.links.amqp._frames cimport HEAD, HEARTBEAT, METHOD, frame_end
from penstock.protocols.properties._tables cimport load32, load64

cdef enum:
    RETURN = 0x003C0032
    ACK = 0x003C0050
    NACK = 0x003C0078
    ACK_SIZE = HEAD + 4 + 8 + 1 + 1
    ROOM = 1024                     # messages, and runs, that there is room for at first


cdef class InFlight:
    def __cinit__(self):
        self.others = []
        self._single = <uint8_t*>calloc(ROOM, 1)
        self._mask = ROOM - 1
        self._runs = <Run*>malloc(ROOM * sizeof(Run))
        self._runs_mask = ROOM - 1
        if self._single == NULL or self._runs == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._single)
        free(self._runs)

    def __len__(self):
        return self._published - self._settled

    def published(self, uint64_t first_tag, uint64_t count):
        cdef Run* last
        self._published += count
        while self._published - self._settled > self._mask:
            self._grow()
        if self._next_run != self._first_run:
            last = &self._runs[(self._next_run - 1) & self._runs_mask]
            if last.tag + last.count == first_tag:
                last.count += count
                return
        if self._next_run - self._first_run > self._runs_mask:
            self._grow_runs()
        last = &self._runs[self._next_run & self._runs_mask]
        last.tag, last.count = first_tag, count
        self._next_run += 1

    cdef int _grow(self) except -1:
        cdef uint64_t mask = 2 * self._mask + 1, number
        cdef uint8_t* grown = <uint8_t*>calloc(mask + 1, 1)
        if grown == NULL:
            raise MemoryError
        for number in range(self._reached + 1, self._reached + 1 + self._mask):
            grown[number & mask] = self._single[number & self._mask]
        free(self._single)
        self._single, self._mask = grown, mask
        return 0

    cdef int _grow_runs(self) except -1:
        cdef uint64_t mask = 2 * self._runs_mask + 1, at
        cdef Run* grown = <Run*>malloc((mask + 1) * sizeof(Run))
        if grown == NULL:
            raise MemoryError
        for at in range(self._first_run, self._next_run):
            grown[at & mask] = self._runs[at & self._runs_mask]
        free(self._runs)
        self._runs, self._runs_mask = grown, mask
        return 0

    def take(self, const uint8_t[::1] data not None):
        cdef Py_ssize_t size = data.shape[0]
        cdef const uint8_t* start = &data[0] if size else NULL
        cdef Py_ssize_t at = 0, end
        cdef uint32_t method
        self.others = []
        while True:
            end = frame_end(start, at, size)
            if end < 0:
                return at
            method = load32(start + at + HEAD) if start[at] == METHOD and end - at > HEAD + 4 else 0
            if method == ACK and end - at == ACK_SIZE:
                if not self._refused:
                    self._confirm(load64(start + at + HEAD + 4), start[at + HEAD + 12] & 1)
            elif start[at] != HEARTBEAT:
                self._refused |= method == RETURN or method == NACK
                self.others.append((start[at], start[at:end]))
            at = end

    def accepted(self, uint64_t first, uint64_t last):
        cdef uint64_t number
        for number in range(first, min(last, self._published) + 1):
            self._confirm(number, False)

    cdef void _confirm(self, uint64_t number, bint multiple) noexcept:
        """A number that was never published confirms nothing."""
        if number > self._published or number <= self._reached:
            return
        if not multiple:
            self._single[number & self._mask] = 1
            number = self._reached
        # Behind a number that is reached the ring is clean: it comes round to others.
        while self._reached < number or self._single[(self._reached + 1) & self._mask]:
            self._reached += 1
            self._single[self._reached & self._mask] = 0

    def settled(self):
        cdef uint64_t count = self._reached - self._settled, left = count, step, tag = 0
        cdef Run* run
        while left:
            run = &self._runs[self._first_run & self._runs_mask]
            step = min(left, run.count)
            tag = run.tag + step - 1
            run.tag += step
            run.count -= step
            left -= step
            if run.count == 0:
                self._first_run += 1
        self._settled = self._reached
        return tag, count
