# cython: auto_pickle=False
"""The walk over old segments that finds the records of a pattern which had no feed when they were published.

Owns a table of the key blocks met so far, each with a verdict that somebody else gives (`decide`): records
with the same encoding and key block go to the same places. A walk is done twice: the first one lists the key
blocks that nobody decided about yet, the second one takes the record numbers. Delayed records are left out,
for they were not published yet; so are batches that are damaged, which `damaged` counts. Batches in blocks
are looked at as those that lie in the file as they are.

Records that no retention wants are passed over, though they may still be there: a record below `floor`, or in feeds of
keepers (`retention_feeds`) below where each of them begins. With a `Content` those that it does not match are passed
over, too.

    a place of the table: | hash u64 | enc u8, key block, owned | size u32 | verdict u8 |    open addressing
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from penstock.log_core.batch._batch cimport (
    BATCH_ALIGN, BATCH_HEADER, F_DELAYED, F_HALF, F_LIST, KIND_BLOCK, KIND_RECORDS, RECORD_HEADER, BatchHeader,
    Found, RecordHeader, check_batch, columns_size,
)
from penstock.log_core.batch._blocks cimport Walker
from penstock.log_core.files._io cimport pread_all
from penstock.log_core.history._content cimport Content
from penstock.log_core.threads._pace cimport Pace, monotonic

cdef enum:
    FREE = 0
    UNKNOWN = 1
    NO = 2
    YES = 3
    ASK = 4                          # it depends on the record's properties
    PENDING_MAX = 16384              # key blocks that one walk lists

cdef struct Place:
    uint64_t hash
    uint8_t* key
    uint32_t size
    uint8_t verdict


@cython.final
cdef class KeyScan:
    cdef Place* places
    cdef size_t mask
    cdef uint32_t lp                 # of the batches that are looked at
    cdef readonly size_t keys
    cdef readonly size_t damaged
    cdef readonly bint asks          # some entry of the last `take` is to be asked about
    cdef uint64_t* pending           # hashes of the key blocks that were listed
    cdef size_t pending_count
    cdef uint32_t* entries
    cdef uint64_t* offsets           # with a content: where the batch, or its block, of each entry lies in the data
    cdef size_t count, capacity
    cdef size_t most                 # entries that one `take` finds
    cdef size_t at                   # where the batch or block lies that is walked over
    cdef readonly uint64_t reached   # the LSN that a `take` that found `most` goes on with; 0: it is done
    cdef Content content
    cdef Walker walker               # of the batches in a block
    cdef uint64_t floor              # records below it are wanted by retention feeds only
    cdef uint64_t* starts            # by feed id: where a retention feed begins; 0: it is none's
    cdef uint32_t feeds              # entries of `starts`
    cdef uint8_t* slice              # what `pass_over` read last
    cdef size_t slice_room
    cdef readonly uint64_t counted   # records that `pass_over` counted
    cdef Pace pace                   # None: it does not rest

    def __cinit__(self, uint32_t lp, uint64_t floor=0, retention_feeds=(), Content content=None, size_t most=0,
                  Pace pace=None):
        cdef uint32_t feed
        cdef uint64_t start
        self.lp = lp
        self.content = content
        self.most = most
        self.pace = pace
        self.floor = floor
        self.walker = Walker()
        retention_feeds = list(retention_feeds)
        self.feeds = 1 + max((feed for feed, _ in retention_feeds), default=0)
        self.starts = <uint64_t*>calloc(self.feeds, sizeof(uint64_t))
        if self.starts == NULL:
            raise MemoryError()
        for feed, start in retention_feeds:
            self.starts[feed] = max(start, <uint64_t>1)
        self.mask = 1023
        self.places = <Place*>calloc(self.mask + 1, sizeof(Place))
        self.pending = <uint64_t*>malloc(PENDING_MAX * sizeof(uint64_t))
        if self.places == NULL or self.pending == NULL:
            raise MemoryError()

    def __dealloc__(self):
        self.clear()
        free(self.places)
        free(self.pending)
        free(self.entries)
        free(self.offsets)
        free(self.starts)
        free(self.slice)

    cdef bint is_kept(self, const RecordHeader* record, uint64_t lsn, const uint32_t* lists) noexcept nogil:
        # Whether some retention wants a record.
        cdef uint32_t only = record.feed
        cdef const uint32_t* feeds = &only
        cdef uint32_t n = 1, k
        cdef uint64_t start
        cdef bint decided = False
        if record.flags & F_LIST:
            n = lists[record.feed]
            feeds = lists + record.feed + 1
        for k in range(n):
            start = self.starts[feeds[k]] if feeds[k] < self.feeds else 0
            if start and lsn >= start:
                return True
            decided |= start > 0
        return lsn >= self.floor and not decided

    cpdef clear(self):
        cdef size_t i
        if self.places != NULL:
            for i in range(self.mask + 1):
                free(self.places[i].key)
                self.places[i].key = NULL
                self.places[i].verdict = FREE
        self.keys = 0

    cdef Place* find(self, uint8_t enc, const uint8_t* key, uint32_t size, uint64_t* hashed) noexcept nogil:
        # The place of a key block, or the free one where it belongs.
        cdef uint64_t h = (<uint64_t>14695981039346656037ULL ^ enc) * <uint64_t>1099511628211ULL
        cdef uint32_t i
        cdef size_t at
        cdef Place* place
        for i in range(size):
            h = (h ^ key[i]) * <uint64_t>1099511628211ULL
        hashed[0] = h
        at = <size_t>(h ^ (h >> 32)) & self.mask
        while True:
            place = &self.places[at]
            if place.verdict == FREE:
                return place
            if (place.hash == h and place.size == size + 1 and place.key[0] == enc
                    and memcmp(place.key + 1, key, size) == 0):
                return place
            at = (at + 1) & self.mask

    cdef int grow(self) noexcept nogil:
        cdef size_t old = self.mask + 1, i, at
        cdef Place* places = <Place*>calloc(2 * old, sizeof(Place))
        if places == NULL:
            return -1
        for i in range(old):
            if self.places[i].verdict != FREE:
                at = <size_t>(self.places[i].hash ^ (self.places[i].hash >> 32)) & (2 * old - 1)
                while places[at].verdict != FREE:
                    at = (at + 1) & (2 * old - 1)
                places[at] = self.places[i]
        free(self.places)
        self.places = places
        self.mask = 2 * old - 1
        return 0

    cdef int make_room(self) noexcept nogil:
        cdef size_t capacity = 1024 if self.capacity == 0 else 2 * self.capacity
        cdef uint32_t* entries = <uint32_t*>realloc(self.entries, capacity * sizeof(uint32_t))
        cdef uint64_t* offsets
        if entries == NULL:
            return -1
        self.entries = entries
        if self.content is not None:
            offsets = <uint64_t*>realloc(self.offsets, capacity * sizeof(uint64_t))
            if offsets == NULL:
                return -1
            self.offsets = offsets
        self.capacity = capacity
        return 0

    cdef int walk(self, const uint8_t* p, size_t size, size_t offset, uint64_t first, uint64_t last,
                  uint64_t base, bint take) noexcept nogil:
        # 0, or -1: no memory.
        cdef size_t at = offset
        cdef Found found
        cdef const BatchHeader* header
        cdef int verdict
        cdef bint damaged = False
        while at + BATCH_HEADER <= size:
            verdict = check_batch(p + at, size - at, &found)
            header = <const BatchHeader*>(p + at)
            if verdict == 1 and (header.base_lsn < base or header.base_lsn - base > 0x7fffffff):
                verdict = -1         # it looks like a batch and is none of this segment: bytes of a body
            if verdict != 1:
                if verdict == 0 and not damaged:
                    break
                if not damaged and take:
                    self.damaged += 1
                damaged = True
                at += BATCH_ALIGN
                continue
            damaged = False
            self.at = at
            at += header.len
            if header.base_lsn >= last:
                break
            if self.pace is not None:
                self.pace.worked(header.len)
            if self.content is not None and not self.content.may_hold(header):
                continue
            if header.kind == KIND_BLOCK:
                verdict = self.walk_block(header, first, last, base, take)
            else:
                verdict = self.walk_batch(header, first, last, base, take)
            if verdict:
                return min(verdict, 0)
        return 0

    cdef int walk_block(self, const BatchHeader* block, uint64_t first, uint64_t last, uint64_t base,
                        bint take) noexcept nogil:
        # As `walk_batch`.
        cdef const BatchHeader* header
        cdef int failed
        if block.base_pos <= first:
            return 0
        with gil:
            failed = self.walker.enter(block)
        while not failed:
            header = self.walker.next_inside()
            if header == NULL:
                failed = self.walker.found.reason != NULL
                break
            if self.pace is not None:
                self.pace.worked(header.len)
            failed = self.walk_batch(header, first, last, base, take)
            if failed:
                return failed
        if failed and take:
            self.damaged += 1
        return 0

    cdef int walk_batch(self, const BatchHeader* header, uint64_t first, uint64_t last, uint64_t base,
                        bint take) noexcept nogil:
        # 0; 1: enough key blocks are listed; -1: no memory.
        cdef const RecordHeader* record = <const RecordHeader*>(<const uint8_t*>header + BATCH_HEADER)
        cdef const uint32_t* lists = <const uint32_t*>(
            <const uint8_t*>record + RECORD_HEADER * <size_t>header.count + columns_size(header.cols, header.count))
        cdef const uint8_t* blob = <const uint8_t*>header + header.blob_off
        cdef uint64_t lsn, hashed
        cdef uint32_t k
        cdef Place* place
        cdef bint wanted
        if header.kind != KIND_RECORDS or header.lp != self.lp or header.base_lsn + header.count <= first:
            return 0
        for k in range(header.count):
            lsn = header.base_lsn + k
            if (first <= lsn < last and not record.flags & (F_DELAYED | F_HALF)
                    and self.is_kept(record, lsn, lists)):
                place = self.find(record.enc, blob + record.off, record.key, &hashed)
                if place.verdict == FREE:
                    if self.pending_count == PENDING_MAX:
                        return 1
                    if 2 * self.keys > self.mask:
                        if self.grow() < 0:
                            return -1
                        place = self.find(record.enc, blob + record.off, record.key, &hashed)
                    place.key = <uint8_t*>malloc(<size_t>record.key + 1)
                    if place.key == NULL:
                        return -1
                    place.key[0] = record.enc
                    memcpy(place.key + 1, blob + record.off, record.key)
                    place.size = <uint32_t>record.key + 1
                    place.hash = hashed
                    place.verdict = UNKNOWN
                    self.pending[self.pending_count] = hashed
                    self.pending_count += 1
                    self.keys += 1
                elif take and place.verdict >= YES:
                    wanted = self.content is None or self.content.matches(header, record, lists, blob)
                    if self.pace is not None:
                        self.pace.worked(record.size)
                    if not wanted:
                        record += 1
                        continue
                    if self.most and self.count == self.most:
                        self.reached = lsn
                        return 1
                    if self.count == self.capacity and self.make_room() < 0:
                        return -1
                    self.entries[self.count] = <uint32_t>(lsn - base)
                    if self.content is not None:
                        self.offsets[self.count] = self.at
                    if place.verdict == ASK:
                        self.entries[self.count] |= <uint32_t>0x80000000
                        self.asks = True
                    self.count += 1
            record += 1
        return 0

    cdef void begin_step(self):
        if self.pace is not None:
            self.pace.begin()

    def unknown(self, const uint8_t[::1] data not None, size_t offset, uint64_t first, uint64_t last, uint64_t base):
        cdef int failed
        if data.shape[0] == 0:
            return []
        self.pending_count = 0
        self.begin_step()
        with nogil:
            failed = self.walk(&data[0], <size_t>data.shape[0], offset, first, last, base, False)
        if failed:
            raise MemoryError()
        return self.listed()

    cdef list listed(self):
        # The key blocks that a walk met which nobody decided about.
        cdef size_t i
        cdef uint64_t h
        cdef size_t at
        cdef list found = []
        for i in range(self.pending_count):
            h = self.pending[i]
            at = <size_t>(h ^ (h >> 32)) & self.mask
            while self.places[at].verdict != UNKNOWN or self.places[at].hash != h:
                at = (at + 1) & self.mask
            # Listed: no other key with the same hash may be found here again.
            self.places[at].verdict = NO
            found.append((self.places[at].key[0], self.places[at].key[1:self.places[at].size]))
        return found

    def pass_over(self, int fd, const uint64_t[::1] ends not None, uint64_t offset, uint64_t first, uint64_t last,
                  uint64_t base, double seconds, bint counts):
        cdef size_t passed = 0, size, damaged
        cdef uint8_t* room
        cdef int failed = 0
        cdef bint met = False
        cdef double until = monotonic() + seconds
        self.pending_count = 0
        self.begin_step()
        with nogil:
            while passed < <size_t>ends.shape[0] and not (self.pace is not None and self.pace.stopped):
                size = <size_t>(ends[passed] - offset)
                if size > self.slice_room:
                    room = <uint8_t*>realloc(self.slice, size)
                    if room == NULL:
                        failed = -1
                        break
                    self.slice, self.slice_room = room, size
                if pread_all(fd, self.slice, size, offset) != <ssize_t>size:
                    met = True
                    break
                failed = self.walk(self.slice, size, 0, first, last, base, False)
                if failed or self.pending_count:
                    break
                damaged = self.damaged
                self.count = 0
                self.asks = False
                self.reached = 0
                failed = self.walk(self.slice, size, 0, first, last, base, True)
                if failed:
                    break
                if self.count and (self.asks or not counts):
                    self.damaged = damaged  # whoever looks at the slice counts them
                    met = True
                    break
                self.counted += self.count
                offset = ends[passed]
                passed += 1
                if monotonic() >= until:
                    break
        if failed:
            raise MemoryError()
        return passed, met, self.listed()

    def decide(self, uint8_t enc, bytes key not None, int verdict):
        cdef uint64_t h
        cdef Place* place = self.find(enc, key, <uint32_t>len(key), &h)
        if place.verdict == FREE or not 0 <= verdict <= 2:
            raise ValueError(f"no verdict about a key that was listed: {enc} {key!r} {verdict}")
        place.verdict = <uint8_t>(NO + verdict)

    def take(self, const uint8_t[::1] data not None, size_t offset, uint64_t first, uint64_t last, uint64_t base):
        cdef int failed
        self.count = self.pending_count = 0
        self.asks = False
        self.reached = 0
        if data.shape[0] == 0:
            return b""
        self.begin_step()
        with nogil:
            failed = self.walk(&data[0], <size_t>data.shape[0], offset, first, last, base, True)
        if failed:
            raise MemoryError()
        return (<const uint8_t*>self.entries)[:self.count * sizeof(uint32_t)] if self.count else b""

    def places_of_batches(self):
        return [self.offsets[i] for i in range(self.count)] if self.content is not None else []
