# cython: auto_pickle=False
"""The messages that a consumer holds: its deliveries that are out, by tag.

Tags count from 1, in the order of delivery. They stand in a ring; those that stay out while thousands after them
are settled are set aside, so that one message that is never acknowledged does not make the ring grow with the
traffic. Everything between them is settled.

A settled place says from which tag on something may be out, and whoever walks over a run of settled places leaves
behind where it ends (as union by path compression does). So a peer that acknowledges the same wide range over and
over, a million times in one frame, costs one step for each, not one for each tag in it.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

cdef enum:
    RING_MIN = 64
    RING_KEPT = 1024            # places from which on those that stay out are set aside


cdef class Held:
    def __cinit__(self):
        self.first = self.next = 1

    def __dealloc__(self):
        free(self.ring)
        free(self.aside)

    # Delivering

    cdef int reserve(self, uint64_t more) except -1:
        """In the ring, for so many more deliveries."""
        cdef uint64_t capacity, i
        cdef Unacked* grown
        if self.ring != NULL and self.next - self.first + more <= self.mask + 1:
            return 0
        if (self.ring != NULL and self.mask + 1 >= RING_KEPT
                and <uint64_t>(self.unacked - self.unacked_aside) < (self.next - self.first) // 4
                and <uint64_t>self.unacked_aside <= self.mask + 1):
            self.set_aside()
            if self.next - self.first + more <= self.mask + 1:
                return 0
        capacity = RING_MIN if self.ring == NULL else 2 * (self.mask + 1)
        while capacity < self.next - self.first + more:
            capacity *= 2
        grown = <Unacked*>malloc(capacity * sizeof(Unacked))
        if grown == NULL:
            raise MemoryError
        for i in range(self.first, self.next):
            grown[i & (capacity - 1)] = self.ring[i & self.mask]
        free(self.ring)
        self.ring = grown
        self.mask = capacity - 1
        return 0

    cdef int set_aside(self) except -1:
        """Deliveries in the ring, a small part of it, move behind those that are aside already."""
        cdef Py_ssize_t n = 0, i
        cdef Py_ssize_t most = <Py_ssize_t>self.unacked
        cdef Apart* grown
        cdef uint64_t tag
        for i in range(self.aside_n):
            if self.aside[i].held.out:
                self.aside[n] = self.aside[i]
                n += 1
        self.aside_n = n
        if most > self.aside_capacity:
            grown = <Apart*>realloc(self.aside, 2 * most * sizeof(Apart))
            if grown == NULL:
                raise MemoryError
            self.aside = grown
            self.aside_capacity = 2 * most
        for tag in range(self.first, self.next):
            if self.ring[tag & self.mask].out:
                self.aside[n].tag = tag
                self.aside[n].held = self.ring[tag & self.mask]
                n += 1
        self.aside_n = n
        self.unacked_aside = self.unacked
        self.first = self.next
        return 0

    cdef Unacked* add(self) except NULL:
        """One more is out: its place, to be filled."""
        cdef Unacked* entry
        self.reserve(1)
        entry = &self.ring[self.next & self.mask]
        entry.out = True
        self.next += 1
        self.unacked += 1
        return entry

    cdef void add_all(self, uint64_t seq, uint32_t count, double now) noexcept:
        """Deliveries of consecutive seqs are out for the first time; there is room for them."""
        cdef Unacked* entry
        cdef uint32_t i
        for i in range(count):
            entry = &self.ring[(self.next + i) & self.mask]
            entry.seq = seq + i
            entry.at = now
            entry.count = 0
            entry.out = True
        self.next += count
        self.unacked += count

    cdef void skip(self, uint64_t count) noexcept:
        """So many tags are used up by what is settled as it is sent; nothing is out."""
        self.next += count
        self.first = self.next

    # Settling

    cdef Unacked* find(self, uint64_t* tag, uint64_t behind) noexcept:
        """The first that is out from `tag` on, which is set to its own; NULL: none is before `behind`."""
        cdef Py_ssize_t low = 0, high = self.aside_n, middle
        cdef uint64_t at, end
        if high and tag[0] <= self.aside[high - 1].tag:
            while low < high:
                middle = (low + high) // 2
                if self.aside[middle].tag < tag[0]:
                    low = middle + 1
                else:
                    high = middle
            at = end = <uint64_t>low
            while end < <uint64_t>self.aside_n and not self.aside[end].held.out:
                end = self.aside[end].held.seq
            while at < end:
                middle = <Py_ssize_t>at
                at = self.aside[middle].held.seq
                self.aside[middle].held.seq = end
            if end < <uint64_t>self.aside_n:
                if self.aside[end].tag >= behind:
                    return NULL
                tag[0] = self.aside[end].tag
                self.found = <Py_ssize_t>end
                return &self.aside[end].held
        at = end = max(tag[0], self.first)
        while end < self.next and not self.ring[end & self.mask].out:
            end = self.ring[end & self.mask].seq
        while at < end:
            tag[0] = at
            at = self.ring[at & self.mask].seq
            self.ring[tag[0] & self.mask].seq = end
        tag[0] = end
        return &self.ring[end & self.mask] if end < min(behind, self.next) else NULL

    cdef void settled(self, Unacked* entry, uint64_t tag) noexcept:
        """It is not out any more; it is what `find` found last."""
        entry.out = False
        self.unacked -= 1
        if tag < self.first:
            entry.seq = <uint64_t>self.found + 1
            self.unacked_aside -= 1
            if not self.unacked_aside:
                self.aside_n = 0
        else:
            entry.seq = tag + 1
            self.advance()

    cdef uint64_t settle_run(self, uint64_t* tag, uint64_t behind, uint64_t* seq) noexcept:
        cdef uint64_t at, end = min(behind, self.next)
        cdef Unacked* entry = self.find(tag, behind)
        if entry == NULL:
            return 0
        at = tag[0]
        seq[0] = entry.seq
        if at < self.first:
            self.settled(entry, at)
            tag[0] = at + 1
            return 1
        while at < end:
            entry = &self.ring[at & self.mask]
            if not entry.out or entry.seq - seq[0] != at - tag[0]:
                break
            at += 1
            entry.out = False
            entry.seq = at
        end = at - tag[0]
        self.unacked -= <int64_t>end
        if tag[0] == self.first:
            self.first = at
            self.advance()
        tag[0] = at
        return end

    cdef void advance(self) noexcept:
        while self.first < self.next and not self.ring[self.first & self.mask].out:
            self.first = self.ring[self.first & self.mask].seq

    cdef void forget(self) noexcept:
        """Nothing is out any more."""
        self.first = self.next
        self.unacked = self.unacked_aside = 0
        self.aside_n = 0

    # For tests

    def deliver(self, uint32_t count):
        cdef uint64_t tag = self.next
        self.reserve(count)
        self.add_all(0, count, 0)
        return tag

    def settle(self, uint64_t first, uint64_t last):
        cdef uint64_t tag = first, behind = min(last, self.next - 1) + 1, seq, n = 0, run
        while True:
            run = self.settle_run(&tag, behind, &seq)
            if run == 0:
                return n
            n += run

    def out(self, uint64_t first, uint64_t last):
        cdef uint64_t tag = first
        cdef list found = []
        while self.find(&tag, min(last, self.next - 1) + 1) != NULL:
            found.append(tag)
            tag += 1
        return found

    @property
    def places(self):
        return (self.mask + 1 if self.ring != NULL else 0) + self.aside_capacity
