# cython: auto_pickle=False
"""Entries of delayed records in time order: a heap in memory, and its form in index files.

An entry says when a record is due and where it is. Entries are ordered by (due, place): equal times in the
order in which they were scheduled. Of two entries with the same due and place (a record that was moved, and
what is still known of its old copy) the one with the higher LSN comes first.

    due i64 (ms since the epoch) | place u64 | LSN u64 | bytes u32 | 0 u32          32 bytes, little-endian

Knows nothing of files or of what is due now.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcpy

cdef packed struct Entry:
    int64_t due
    uint64_t place
    uint64_t lsn
    uint32_t size
    uint32_t reserved

if sizeof(Entry) != 32:
    raise AssertionError("the compiler padded a packed structure")

ENTRY_BYTES = 32

cdef enum:
    DEPTH_MAX = 64                  # of a heap of 2^64 entries
Key = tuple[int, int]


cdef inline bint before(const Entry* a, const Entry* b) noexcept nogil:
    if a.due != b.due:
        return a.due < b.due
    if a.place != b.place:
        return a.place < b.place
    return a.lsn > b.lsn


cdef inline Entry turn(const Entry* entry) noexcept nogil:
    """An entry that is before another one where this one is behind it."""
    cdef Entry turned = entry[0]
    turned.due = ~turned.due
    turned.place = ~turned.place
    turned.lsn = ~turned.lsn
    return turned


cdef int compare(const void* a, const void* b) noexcept nogil:
    return -1 if before(<const Entry*>a, <const Entry*>b) else 1


@cython.final
cdef class DueHeap:
    cdef Entry* entries
    cdef size_t count, capacity

    def __dealloc__(self):
        free(self.entries)

    cdef int reserve(self, size_t more) except -1:
        cdef size_t capacity = self.capacity
        cdef Entry* entries
        if self.count + more <= capacity:
            return 0
        capacity = max(2 * capacity, self.count + more, <size_t>64)
        entries = <Entry*>realloc(self.entries, capacity * sizeof(Entry))
        if entries == NULL:
            raise MemoryError()
        self.entries = entries
        self.capacity = capacity
        return 0

    cdef void sift_up(self, Entry entry) noexcept nogil:
        # Into the free place at the end; the caller has reserved it.
        cdef size_t at = self.count, parent
        self.count += 1
        while at:
            parent = (at - 1) // 2
            if not before(&entry, &self.entries[parent]):
                break
            self.entries[at] = self.entries[parent]
            at = parent
        self.entries[at] = entry

    cdef void remove_first(self) noexcept nogil:
        cdef Entry last
        cdef size_t at = 0, child
        self.count -= 1
        last = self.entries[self.count]
        while True:
            child = 2 * at + 1
            if child >= self.count:
                break
            if child + 1 < self.count and before(&self.entries[child + 1], &self.entries[child]):
                child += 1
            if not before(&self.entries[child], &last):
                break
            self.entries[at] = self.entries[child]
            at = child
        self.entries[at] = last

    def push(self, int64_t due, uint64_t place, uint64_t lsn, uint32_t size):
        cdef Entry entry
        entry.due = due
        entry.place = place
        entry.lsn = lsn
        entry.size = size
        entry.reserved = 0
        self.reserve(1)
        self.sift_up(entry)

    def push_between(self, const unsigned char[::1] raw not None, int64_t due, uint64_t place, int64_t last_due,
                     uint64_t last_place):
        cdef size_t n = <size_t>raw.shape[0] // sizeof(Entry), k, before_it = self.count
        cdef Entry entry
        if n == 0:
            return 0
        self.reserve(n)
        with nogil:
            for k in range(n):
                memcpy(&entry, &raw[k * sizeof(Entry)], sizeof(Entry))
                if (entry.due > due or (entry.due == due and entry.place > place)) and (
                        entry.due < last_due or (entry.due == last_due and entry.place <= last_place)):
                    self.sift_up(entry)
        return self.count - before_it

    def first(self):
        if self.count == 0:
            return None
        return self.entries[0].due, self.entries[0].place

    def pop(self):
        cdef Entry entry
        if self.count == 0:
            raise IndexError("nothing waits")
        entry = self.entries[0]
        self.remove_first()
        return entry.due, entry.place, entry.lsn, entry.size

    def find(self, int64_t due, uint64_t place):
        cdef size_t k
        cdef uint64_t lsn = 0
        with nogil:
            for k in range(self.count):
                if self.entries[k].place == place and self.entries[k].due == due and self.entries[k].lsn > lsn:
                    lsn = self.entries[k].lsn
        return lsn

    def last(self):
        cdef size_t k, at = 0
        if self.count == 0:
            return None
        with nogil:
            for k in range(self.count):
                if before(&self.entries[at], &self.entries[k]):
                    at = k
        return self.entries[at].due, self.entries[at].place

    def first_behind(self, int64_t due, uint64_t place, size_t count):
        # A child is never before its parent. So below an entry that comes too late there is nothing; below one that
        # comes too early there may be.
        cdef size_t ahead[2 * DEPTH_MAX]
        cdef size_t waiting = 0, at, child
        cdef DueHeap found = DueHeap()      # upside down: the last of those found so far is on top
        cdef Entry* entry
        cdef Entry turned
        found.reserve(count + 1)
        with nogil:
            if self.count and count:
                ahead[0] = 0
                waiting = 1
            while waiting:
                waiting -= 1
                at = ahead[waiting]
                entry = &self.entries[at]
                if entry.due > due or (entry.due == due and entry.place > place):
                    turned = turn(entry)
                    if found.count == count:
                        if before(&turned, &found.entries[0]):
                            continue
                        found.remove_first()
                    found.sift_up(turned)
                for child in range(min(2 * at + 2, self.count - 1), 2 * at, -1):
                    ahead[waiting] = child
                    waiting += 1
            for at in range(found.count):
                found.entries[at] = turn(&found.entries[at])
        return sorted_entries(found.encode())

    def encode(self):
        return PyBytes_FromStringAndSize(<const char*>self.entries, self.count * sizeof(Entry))

    def __len__(self):
        return self.count


def sorted_entries(bytes raw not None):
    cdef size_t n = <size_t>len(raw) // sizeof(Entry)
    cdef bytes out = PyBytes_FromStringAndSize(PyBytes_AS_STRING(raw), n * sizeof(Entry))
    cdef char* p = PyBytes_AS_STRING(out)
    with nogil:
        qsort(p, n, sizeof(Entry), compare)
    return out


def total_size(const unsigned char[::1] raw not None):
    cdef size_t n = <size_t>raw.shape[0] // sizeof(Entry), k
    cdef Entry entry
    cdef uint64_t total = 0
    for k in range(n):
        memcpy(&entry, &raw[k * sizeof(Entry)], sizeof(Entry))
        total += entry.size
    return total


def count_by(const unsigned char[::1] raw not None, int64_t step, set without not None):
    cdef size_t n = <size_t>raw.shape[0] // sizeof(Entry), k
    cdef Entry entry, last
    cdef int64_t span = 0, beginning
    cdef uint64_t count = 0
    cdef bint some = len(without) > 0
    cdef list found = []
    if step < 1:
        raise ValueError(step)
    for k in range(n):
        memcpy(&entry, &raw[k * sizeof(Entry)], sizeof(Entry))
        if k and entry.due == last.due and entry.place == last.place:
            continue
        last = entry
        if some and entry.place in without:
            continue
        beginning = entry.due // step
        if entry.due % step < 0:        # C rounds towards zero
            beginning -= 1
        if count and beginning != span:
            found.append((<object>span * <object>step, count))
            count = 0
        span = beginning
        count += 1
    if count:
        found.append((<object>span * <object>step, count))
    return found


def decode_entry(const unsigned char[::1] raw not None, size_t index):
    cdef Entry entry
    if (index + 1) * sizeof(Entry) > <size_t>raw.shape[0]:
        raise IndexError(index)
    memcpy(&entry, &raw[index * sizeof(Entry)], sizeof(Entry))
    return entry.due, entry.place, entry.lsn, entry.size
