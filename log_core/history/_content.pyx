# cython: auto_pickle=False
"""The test of a record's own bytes in a search: its time, its feeds, byte strings in its properties and body.

It decodes nothing: whoever searches says how a header or an id is encoded, in each encoding there is, and
looks at what was found once more. Without the interpreter's lock.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from penstock.log_core.batch._batch cimport F_LIST, BatchHeader, RecordHeader


cdef extern from "<string.h>" nogil:
    void* memmem(const void* haystack, size_t size, const void* needle, size_t needle_size)


@cython.final
cdef class Content:
    def __cinit__(self, properties=(), bytes body=b"", since_ms=0, until_ms=None, feeds=None):
        cdef uint32_t clause = 0, feed
        cdef size_t at = 0
        cdef bytes needle
        self.since = since_ms
        self.until = 0x7fffffffffffffff if until_ms is None else until_ms
        if feeds is not None:
            feeds = list(feeds)
            self.feeds = 1 + max(feeds, default=0)
            self.in_feeds = <uint8_t*>calloc(self.feeds, 1)
            if self.in_feeds == NULL:
                raise MemoryError()
            for feed in feeds:
                self.in_feeds[feed] = 1
        clauses = [(list(one), False) for one in properties]
        if body:
            clauses.append(([body], True))
        self.owned = [needle for alternatives, _ in clauses for needle in alternatives]
        self.needles = <Needle*>calloc(len(self.owned) + 1, sizeof(Needle))
        if self.needles == NULL:
            raise MemoryError()
        for alternatives, in_body in clauses:
            if not alternatives:
                raise ValueError("a clause without alternatives")
            for needle in alternatives:
                self.needles[at].data = needle
                self.needles[at].size = <size_t>len(needle)
                self.needles[at].clause = clause
                self.needles[at].in_body = in_body
                at += 1
            clause += 1
        self.count = at

    def __dealloc__(self):
        free(self.in_feeds)
        free(self.needles)

    cdef bint may_hold(self, const BatchHeader* header) noexcept nogil:
        return header.max_ts >= self.since and header.base_ts < self.until

    cdef bint matches(self, const BatchHeader* header, const RecordHeader* record, const uint32_t* lists,
                      const uint8_t* blob) noexcept nogil:
        cdef int64_t time = header.base_ts + record.ts
        cdef uint32_t only = record.feed
        cdef const uint32_t* ids = &only
        cdef const uint8_t* properties = blob + record.off + record.key
        cdef uint32_t n = 1, k, clause
        cdef size_t at = 0, size
        cdef const uint8_t* region
        cdef bint found = False
        if not self.since <= time < self.until:
            return False
        if self.in_feeds != NULL:
            if record.flags & F_LIST:
                n = lists[record.feed]
                ids = lists + record.feed + 1
            for k in range(n):
                if ids[k] < self.feeds and self.in_feeds[ids[k]]:
                    found = True
                    break
            if not found:
                return False
        while at < self.count:
            clause = self.needles[at].clause
            found = False
            while at < self.count and self.needles[at].clause == clause:
                if not found:
                    region, size = properties, record.props
                    if self.needles[at].in_body:
                        region, size = properties + record.props, record.size - record.key - record.props
                    found = memmem(region, size, self.needles[at].data, self.needles[at].size) != NULL
                at += 1
            if not found:
                return False
        return True
