# cython: auto_pickle=False
"""Runs of whole batches straight out of the page cache: for readers of what is no longer in the log's memory.

Older batches mostly lie in the system's page cache still. A batch that is handed on as it is stored
need not become an object of ours for that: it is read to where it is sent from, by a read that does not wait
(RWF_NOWAIT), so the loop may do it. Data not in the page cache, or not a run of plain batches, is left to
`Reader`, whose thread waits for the disk; so is damaged data, for all that is read here is checked as always.

A run is batches of records at consecutive positions which are, one and all, entries of one feed. That is seen by two
entries of the feed: positions rise, so as many entries as records between the first and the last one are all there
are.

Owns the descriptors of the segments that are read so. The reader's thread opens them; one that nobody read from for
a second is closed, so that the file of a segment that is deleted does not stay. When somebody begins with one,
the next one is opened, too.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t
from posix.time cimport clock_gettime, timespec

from penstock.log_core.batch._batch cimport (
    ATTR_AMQP091, ATTR_LASTING, BATCH_HEADER, BATCH_MAGIC, KIND_BLOCK, KIND_RECORDS, RECORD_HEADER, BatchHeader, Found,
    check_batch, is_plain, padded,
)
from penstock.log_core.feeds._feed cimport Feed
from penstock.log_core.segments._segment_file cimport SegmentFile, Stretch, stretch_of

cdef extern from "<time.h>" nogil:
    enum:
        CLOCK_MONOTONIC_COARSE

cdef enum:
    FILES_MAX = 16
    HEADS_MAX = 256                 # of batches that a seek looks at
    SMALL_MAX = 4                   # batches in a row that are not worth their heads
    COUNT_MIN = 16                  # records of a batch that is worth its head, however few bytes they have
    AHEAD = 4194304                 # bytes that are looked for ahead of a reader, at least half of it
    SENT_MIN = 8192                 # bytes of a batch that is worth it, however few its records are
    FRESH_NS = 10000000             # what the page cache had then, it has still: one look is for what is sent and
                                    # what is ahead of it


cdef int64_t coarse_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef class Resident:
    def __cinit__(self, open_behind not None):
        self.files = []
        self.open_behind = open_behind

    cdef SegmentFile find(self, uint64_t lsn):
        cdef SegmentFile file
        for file in self.files:
            if file.base_lsn <= lsn < file.next_lsn and file.is_open():
                return file
        return None

    cdef int begin(self, SegmentFile file) except -1:
        """Somebody reads it: who goes on will want the next one."""
        if not file.followed:
            file.followed = True
            self.open_behind(file.next_lsn)
        return 0

    def has(self, uint64_t number):
        cdef SegmentFile file
        for file in self.files:
            if file.number == number:
                return True
        return False

    def offer(self, SegmentFile file not None):
        cdef SegmentFile oldest
        if self.has(file.number):
            file.close()
            return
        self.files.append(file)
        if len(self.files) > FILES_MAX:
            oldest = self.files.pop(0)
            oldest.close()

    def distrust(self, uint64_t number):
        cdef SegmentFile file
        for file in self.files:
            if file.number == number:
                file.whole = False

    def forget(self):
        cdef SegmentFile file
        cdef list kept = []
        for file in self.files:
            if file.used:
                file.used = False
                kept.append(file)
            else:
                file.close()
        self.files = kept

    def close(self):
        cdef SegmentFile file
        for file in self.files:
            file.close()
        self.files = []


cdef bint is_next(const BatchHeader* head, uint64_t lsn, Feed feed, uint64_t index, uint64_t limit) noexcept:
    """Whether the batch begins with `lsn`, entry `index` of the feed, and has nothing but its entries below `limit`."""
    if head.kind != KIND_RECORDS or head.base_lsn != lsn or head.count == 0 or index + head.count > limit:
        return False
    return (feed.position_known(index) == lsn
            and feed.position_known(index + head.count - 1) == lsn + head.count - 1)


cdef bint is_worth(const BatchHeader* head, int* small) noexcept:
    if head.count >= COUNT_MIN or head.len >= SENT_MIN:
        small[0] = 0
    elif small[0] < SMALL_MAX:
        small[0] += 1
    else:
        return False
    return True


cdef class Place:
    cdef bint read_head(self, uint64_t offset) noexcept:
        """Have the head of the batch at that offset, read at once or not at all."""
        cdef SegmentFile file = self.file
        if offset == self.head_at:
            return True
        self.head_at = 0
        if (offset + BATCH_HEADER > file.end
                or file.read(<uint8_t*>&self.head, BATCH_HEADER, offset) < BATCH_HEADER):
            return False
        self.head_at = offset
        return True

    cdef bint goes_on(self, Resident resident, uint64_t lsn):
        cdef SegmentFile file = self.file
        if lsn != self.lsn or file is None:
            return False
        return file.is_open() if lsn < file.next_lsn else resident.find(lsn) is not None

    cdef bint has_pages(self, uint64_t offset, size_t size) noexcept:
        """`SegmentFile.has_pages`, unless the look ahead asked that a moment ago."""
        cdef int64_t now = coarse_ns()
        if now - self.whole_at >= FRESH_NS:
            self.whole_from = self.whole_to = 0
        if self.whole_from <= offset and offset + size <= self.whole_to:
            return True
        # Up to where it was looked ahead, so that this and what is asked for next are one range.
        if offset + size < self.behind and self.file.has_pages(offset, self.behind - offset):
            size = self.behind - offset
        elif not self.file.has_pages(offset, size):
            return False
        if offset != self.whole_to:
            self.whole_from = offset
            self.whole_at = now
        self.whole_to = offset + size
        return True

    cdef int look_ahead(self, Resident resident, uint64_t offset) except -1:
        """Have what a reader at `offset` wants next come into the page cache, before somebody would wait for it."""
        cdef SegmentFile file = self.file
        cdef size_t size
        if self.behind >= min(offset + AHEAD // 2, file.end):
            return 0
        self.behind = max(self.behind, offset)
        size = <size_t>min(offset + AHEAD, file.end) - self.behind
        if not self.has_pages(self.behind, size):
            stretch_of(file, self.behind, size, False).bring()
            resident.brought += 1
        self.behind += size
        return 0

    cdef size_t seek(self, Resident resident, uint64_t lsn, Feed feed, uint64_t index, uint64_t limit) except? 0:
        cdef SegmentFile file = self.file
        cdef const BatchHeader* head = &self.head
        cdef int looks
        if file is None or not file.is_open() or not file.base_lsn <= lsn < file.next_lsn:
            file = self.file = resident.find(lsn)
            self.lsn = self.head_at = self.behind = self.whole_to = 0
            if file is None:
                return 0
            resident.begin(file)
        if self.lsn == 0 or self.lsn > lsn:
            self.offset = file.marks.offset_of(lsn)
        for looks in range(HEADS_MAX):
            if not self.read_head(self.offset) or head.len < BATCH_HEADER or head.kind == KIND_BLOCK:
                break
            self.lsn = head.base_lsn
            if head.base_lsn + head.count > lsn or head.base_lsn > lsn:
                return head.len if is_next(head, lsn, feed, index, limit) else 0
            self.offset += head.len
        self.lsn = 0
        return 0

    cdef Stretch find_run(self, Resident resident, Feed feed, uint64_t index, uint64_t limit, bint timeless, size_t capacity,
                          int* small, Run* run):
        cdef SegmentFile file = self.file
        cdef const BatchHeader* head = &self.head
        cdef uint64_t offset = self.offset, lsn = self.lsn
        cdef uint16_t plain = ATTR_AMQP091 if timeless else ATTR_AMQP091 | ATTR_LASTING
        run.count = 0
        run.blobs = 0
        while (self.read_head(offset)
               and is_next(head, lsn, feed, index + run.count, limit)
               and head.len <= file.end - offset
               and (offset == self.offset or offset + head.len - self.offset <= capacity)
               and head.magic == BATCH_MAGIC and head.codec == 0 and head.shard_epoch == file.epoch
               and head.attrs & plain == plain
               and head.blob_off >= BATCH_HEADER + RECORD_HEADER * <uint64_t>head.count
               and padded(<size_t>head.blob_off + head.blob_raw) == head.len
               and is_worth(head, small)):
            offset += head.len
            lsn += head.count
            run.count += head.count
            run.blobs += head.blob_raw
        if run.count == 0 or not file.whole or not self.has_pages(self.offset, offset - self.offset):
            return None
        file.used = True
        resident.sent += offset - self.offset
        stretch = stretch_of(file, self.offset, offset - self.offset, True)
        self.offset = offset
        self.lsn = lsn
        self.look_ahead(resident, offset)
        return stretch

    cdef size_t read_run(self, Resident resident, Feed feed, uint64_t index, uint64_t limit, bint timeless, uint8_t* into,
                         size_t capacity, int* small, Run* run) noexcept:
        cdef SegmentFile file = self.file
        cdef size_t got, at = 0
        cdef const BatchHeader* head
        cdef Found found
        run.count = 0
        run.blobs = 0
        got = <size_t>file.read(into, min(capacity, file.end - self.offset), self.offset)
        while got - at >= BATCH_HEADER:
            head = <const BatchHeader*>(into + at)
            if (head.len > got - at or head.shard_epoch != file.epoch
                    or not is_next(head, self.lsn, feed, index + run.count, limit)
                    or check_batch(into + at, got - at, &found) <= 0
                    or not is_plain(head, timeless)
                    or not is_worth(head, small)):
                break
            run.count += head.count
            run.blobs += head.blob_raw
            at += head.len
            self.lsn += head.count
        self.offset += at
        file.used = True
        resident.runs += 1
        resident.bytes += at
        return at
