# cython: auto_pickle=False
"""Which consumer holds which keys of a key-shared subscription: nobody else gets a key while one has messages of it.

Keys are hashed into 65,536 slots. Each slot has an owner, the consumer that is to get its messages, and while
messages of it are unsettled a holder. After a join or a leave these may differ: then the slot is draining, and its
messages wait until the holder has settled all it has. Messages taken and not assignable yet are parked: out in
the cursor, under its slot, in order; whatever comes later for that slot waits behind it.

    assign     free, or held by its owner, nothing parked before it, credit left    -> to the owner
               anything else                                                        -> parked
    let_go     the last one of a slot is settled or given back, and something is
               parked                                                               -> it can be given
    release    what can be given now goes back into the cursor, and is taken first the next time

The cursor is told: a place that was assigned has its slot, until it is not out any more. So it does not matter
who settles it, or how.

Order within a slot is kept, as long as nothing is given back. Hash: FNV-1a of 64 bits, which alone leaves keys that
differ in their last digits side by side, so they are spread: folded, multiplied by 2^64 / golden ratio, the upper 16 bits.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from bisect import insort

from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._events import delivered
from penstock.subscriptions.cursor._rules cimport CursorRules, KeyHolders, let_go
from penstock.subscriptions.cursor._take_result cimport MAX_TAKE, TAKEN, Item
from penstock.subscriptions.cursor._window cimport Entry, entry_of

cdef enum:
    NOBODY = 0xFFFF             # a number that no consumer has


cdef uint32_t slot_of(const uint8_t* key, Py_ssize_t n) noexcept nogil:
    cdef uint64_t h = <uint64_t>0xCBF29CE484222325ULL
    cdef Py_ssize_t i
    for i in range(n):
        h = (h ^ key[i]) * <uint64_t>0x100000001B3ULL
    h ^= h >> 32
    return <uint32_t>((h * <uint64_t>0x9E3779B97F4A7C15ULL) >> 48)


def slot(bytes key not None):
    return slot_of(<const uint8_t*><const char*>key, len(key))


cdef class KeyShares(KeyHolders):
    def __cinit__(self, object wake not None):
        self.wake = wake
        self.owner = <uint16_t*>calloc(SLOTS, sizeof(uint16_t))
        self.holder = <uint16_t*>calloc(SLOTS, sizeof(uint16_t))
        self.held = <uint32_t*>calloc(SLOTS, sizeof(uint32_t))
        self.point = <uint16_t*>calloc(SLOTS, sizeof(uint16_t))
        if self.point == NULL or self.owner == NULL or self.holder == NULL or self.held == NULL:
            raise MemoryError
        self.parked = {}

    def __dealloc__(self):
        free(self.point)
        free(self.owner)
        free(self.holder)
        free(self.held)

    def own(self, uint32_t first, uint32_t last, uint16_t number):
        cdef uint32_t at
        if last >= SLOTS or first > last:
            raise ValueError(f"no range of slots: {first} to {last}")
        for at in range(first, last + 1):
            self.owner[at] = number

    def set_point(self, uint16_t point, uint16_t number):
        self.points += self.point[point] == 0
        self.point[point] = number
        self._fill(point, number)

    def clear_point(self, uint16_t point):
        self.points -= self.point[point] != 0
        self.point[point] = 0
        # It is that of the next point; without one it is nobody's.
        self._fill(point, self.owner[(point + 1) % SLOTS] if self.points else 0)

    cdef void _fill(self, uint32_t point, uint16_t number) noexcept nogil:
        """The slots from behind the point before up to this one are that consumer's."""
        cdef uint32_t at = point
        while True:
            self.owner[at] = number
            at = (at - 1) % SLOTS
            if self.point[at] or at == point:
                return

    def watch(self, Cursor cursor not None):
        (<CursorRules>cursor.rules).key_holders = self

    def owner_of(self, uint16_t slot):
        return self.owner[slot]

    def assign(self, Cursor cursor not None, const uint16_t[::1] slots, list takers not None):
        """Group the items of the last take by whom they go to: (number, how many) of each, in their order."""
        cdef Item given[MAX_TAKE]
        cdef uint16_t to[MAX_TAKE]
        cdef Py_ssize_t i, n = TAKEN.n, at = 0, began
        cdef uint32_t slot
        cdef Entry* entry
        cdef uint16_t number
        cdef list groups = []
        cdef dict left = {}, counts = {}, starts = {}       # by consumer
        if slots.shape[0] < n:
            raise ValueError(f"{slots.shape[0]} slots for {n} items")
        for i in range(n):
            slot = slots[i]
            number = self.owner[slot]
            if (number and self.left_of(number, takers, left) > 0
                    and not (self.held[slot] and self.holder[slot] != number)
                    and self.is_first(slot, TAKEN.items[i].seq)):
                left[number] -= 1
                self.holder[slot] = number
                self.held[slot] += 1
                self.held_count += 1
                entry = entry_of(&cursor._window, TAKEN.items[i].seq)
                entry.slot = slot + 1
                to[i] = number
                counts[number] = <Py_ssize_t>counts.get(number, 0) + 1
            else:
                to[i] = 0
                insort(self.parked.setdefault(slot, []), TAKEN.items[i].seq)
                self.parked_count += 1
        for number in sorted(counts):
            starts[number] = at
            groups.append((number, <Py_ssize_t>counts[number]))
            at += <Py_ssize_t>counts[number]
        for i in range(n):
            if to[i]:
                began = starts[to[i]]
                given[began] = TAKEN.items[i]
                starts[to[i]] = began + 1
        memcpy(TAKEN.items, given, at * sizeof(Item))
        TAKEN.n = at
        return groups

    cdef Py_ssize_t left_of(self, uint16_t number, list takers, dict left) except -1:
        """The credit that this consumer has left; it is asked once."""
        found = left.get(number)
        if found is None:
            taker = takers[number] if number < len(takers) else None
            found = left[number] = max(<Py_ssize_t>taker.credit(), 0) if taker is not None else 0
        return found

    cdef bint is_first(self, uint32_t slot, uint64_t seq) except -1:
        """Whether nothing that is parked for the slot comes before."""
        seqs = self.parked.get(slot)
        return seqs is None or seq < <uint64_t>seqs[0]

    def give(self, Cursor cursor not None, object consumer, Py_ssize_t first, Py_ssize_t count):
        """Have a consumer encode its group; how many it took."""
        cdef Py_ssize_t all_ = TAKEN.n, took
        TAKEN.n = first + count
        try:
            took = consumer.deliver(cursor, first, 1)
            delivered(cursor, first, 1, took, consumer)
            if took < count:
                cursor.put_back(first, 1, took)
            return took
        finally:
            TAKEN.n = all_

    cdef void let_go(self, uint32_t slot) noexcept:
        if slot < SLOTS and self.held[slot]:
            self.held[slot] -= 1
            self.held_count -= 1
            if self.held[slot] == 0 and slot in self.parked:
                self.wake()

    def unhold_all(self, Cursor cursor not None, set numbers not None):
        """The messages of those consumers hold up nobody."""
        cdef Entry* entry
        if not self.held_count:
            return
        for seq in cursor._out():
            entry = entry_of(&cursor._window, seq)
            if <uint32_t>(entry.slot - 1) < <uint32_t>SLOTS and self.holder[entry.slot - 1] in numbers:
                let_go(cursor._rules, entry)

    def gone(self, set numbers not None):
        """Messages of those consumers belong to none of the present ones until they are settled or given back."""
        cdef uint32_t slot
        if self.held_count:
            for slot in range(<uint32_t>SLOTS):
                if self.held[slot] and self.holder[slot] in numbers:
                    self.holder[slot] = NOBODY

    def parked_for(self):
        """The consumers that something is parked for."""
        return {self.owner[slot] for slot in self.parked}

    def release(self, Cursor cursor not None, list takers not None):
        """Put back what can be given now; how many."""
        cdef dict left = {}
        cdef list seqs
        cdef Py_ssize_t n = 0, i, most
        cdef uint16_t number
        cdef uint32_t slot
        for slot in list(self.parked):
            number = self.owner[slot]
            if not number or (self.held[slot] and self.holder[slot] != number):
                continue
            seqs = <list>self.parked[slot]
            most = min(<Py_ssize_t>len(seqs), self.left_of(number, takers, left))
            if most <= 0:
                continue
            for i in range(most):
                cursor.unsend(seqs[i])
            left[number] -= most
            n += most
            del seqs[:most]
            del self.parked[slot]
            if seqs:
                self.parked[slot] = seqs        # behind the others: each has its turn
        self.parked_count -= n
        return n

    def release_all(self, Cursor cursor not None):
        """Put back everything that is parked: nobody is there."""
        for seqs in self.parked.values():
            for seq in seqs:
                cursor.unsend(seq)
        self.forget_parked()

    def forget_parked(self):
        self.parked.clear()
        self.parked_count = 0

    def forget(self, Cursor cursor not None):
        """Nothing of it is held or parked any more: another one is, or nobody is there."""
        if cursor._rules is not None:
            cursor._rules.key_holders = None
        memset(self.held, 0, SLOTS * sizeof(uint32_t))
        self.held_count = 0
        self.forget_parked()
