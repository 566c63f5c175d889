# cython: auto_pickle=False
"""The scan of WAL files after an unclean stop: validity, feeds, changes of tables, sparse index.

Owns the buffer that a file is read into and the walk over its batches. A batch is valid when its CRCs fit
(`check_batch`), it has the file's epoch, and its LSN is the expected one; the walk stops at the first that
is not. An atomic unit (MORE) is taken whole or not at all.

Of records, the persistent ones are pushed to the feeds that are known when their turn comes, the others to
those of these that keep everything; the changes
of tables go to a callback in log order, which may make feeds known or unknown.

Also: the search for valid batches behind a damaged place, and the coding of feed index files, whose
directory is {feed, first entry, entries, persistent ones, first and last persistent record, CRC of the
entries, bytes of the records}, u32 each, sorted by feed (docs/reference/format.md).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memset

from penstock.log_core.batch._batch cimport (
    ATTR_MORE, BATCH_ALIGN, BATCH_HEADER, BATCH_MAGIC, BATCH_RECORDS_MAX, COL_KEY_HASH, F_LIST, F_PERSISTENT, F_TOMBSTONE, KIND_BLOCK,
    KIND_DELAYED, KIND_RECORDS, KIND_STATE, RECORD_HEADER, Batch, BatchHeader, Found, RecordHeader, Slab, check_batch,
    columns_size, new_slab, view_batch,
)
from penstock.log_core.batch._blocks cimport Walker
from penstock.log_core.batch._crc cimport crc32c_of
from penstock.log_core.feeds._feed cimport ENTRY_RECORD, ENTRY_TRANSIENT, Chunk, Feed

import os
from collections import namedtuple
from dataclasses import dataclass

cdef enum:
    OWN = 0xffffffff                 # `segment.OWN`

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t count, int64_t offset)


@dataclass(slots=True)
class Scanned:
    end: int = 0
    next_lsn: int = 0
    first_lsn: int = 0
    reason: str | None = None
    crc_expected: int = 0
    crc_found: int = 0
    batches: int = 0
    records: int = 0
    synced_lsn: int = 0
    min_ts: int = 0
    max_ts: int = 0
    unit_dropped: int = 0


Hit = namedtuple("Hit", "offset length lsn next_lsn synced_lsn epoch")


@cython.final
cdef class Scanner:
    cdef uint8_t* buffer
    cdef readonly size_t size
    cdef size_t capacity
    cdef dict feeds                  # keeps the Feeds of by_id alive
    cdef void** by_id                # Feed or NULL
    cdef size_t by_id_size
    cdef Walker walker               # for the batches in blocks

    def __cinit__(self):
        self.feeds = {}
        self.walker = Walker()

    def __dealloc__(self):
        free(self.buffer)
        free(self.by_id)

    def know(self, Feed feed not None):
        cdef size_t size
        cdef void** grown
        if feed.id >= self.by_id_size:
            size = max(2 * self.by_id_size, <size_t>feed.id + 1, <size_t>1024)
            grown = <void**>realloc(self.by_id, size * sizeof(void*))
            if grown == NULL:
                raise MemoryError()
            memset(grown + self.by_id_size, 0, (size - self.by_id_size) * sizeof(void*))
            self.by_id = grown
            self.by_id_size = size
        self.feeds[feed.id] = feed
        self.by_id[feed.id] = <void*>feed

    def forget(self, uint32_t feed_id):
        if feed_id < self.by_id_size:
            self.by_id[feed_id] = NULL
        self.feeds.pop(feed_id, None)

    def read(self, int fd, size_t size, uint64_t at=0):
        cdef uint8_t* buffer
        cdef size_t done = 0
        cdef ssize_t got = 0
        if size > self.capacity:
            buffer = <uint8_t*>malloc(size)
            if buffer == NULL:
                raise MemoryError(f"{size} bytes to read a file of the log")
            free(self.buffer)
            self.buffer = buffer
            self.capacity = size
        self.size = 0
        with nogil:
            while done < size:
                got = pread(fd, self.buffer + done, size - done, <int64_t>(at + done))
                if got <= 0:
                    break
                done += <size_t>got
        if got < 0:
            raise OSError(errno, os.strerror(errno))
        self.size = done
        return done

    def written_end(self, size_t offset):
        # Behind the last byte that is not zero, at least `offset`.
        cdef size_t end = self.size
        with nogil:
            while end > offset and self.buffer[end - 1] == 0:
                end -= 1
        return max(end, offset)

    def bytes_at(self, size_t offset, size_t length):
        if offset > self.size or length > self.size - offset:
            raise ValueError(f"[{offset}, {offset + length}) is not in the {self.size} bytes read")
        return self.buffer[offset:offset + length]

    cdef int valid(self, size_t offset, uint64_t lsn, bint gaps, uint32_t epoch, Found* found) noexcept nogil:
        cdef const BatchHeader* header = <const BatchHeader*>(self.buffer + offset)
        cdef int verdict = check_batch(self.buffer + offset, self.size - offset, found)
        if verdict != 1:
            return verdict
        found.crc_expected = 0
        found.crc_found = 0
        found.reason = follows(header, lsn, gaps, epoch)
        return 1 if found.reason == NULL else -1

    def scan(self, size_t offset, uint64_t lsn, uint32_t epoch, *, uint64_t base, bint gaps=False,
             object on_state=None, uint64_t state_after=0, bint push=True, object sparse=None, object delayed=None,
             size_t stride=65536):
        cdef size_t at = offset, unit_end, next_mark = 0
        cdef uint64_t records = 0, batches = 0, synced = 0, behind
        cdef int64_t max_ts = 0, min_ts = 0
        cdef Found found
        cdef int verdict = 0
        cdef BatchHeader* header
        cdef const RecordHeader* record
        cdef uint32_t k
        found.reason = NULL
        found.crc_expected = found.crc_found = 0
        result = Scanned(first_lsn=lsn)
        unit_end = 0
        while at < self.size:
            with nogil:
                verdict = self.valid(at, lsn, gaps, epoch, &found)
            if verdict != 1:
                break
            header = <BatchHeader*>(self.buffer + at)
            if header.attrs & ATTR_MORE and at >= unit_end:
                unit_end = self.end_of_unit(at, lsn, gaps, epoch, &found)
                if unit_end == 0:
                    verdict = -1
                    result.unit_dropped = self.size - at
                    if found.reason == NULL:
                        found.reason = b"an atomic unit without its end"
                    break
            if batches == 0:
                min_ts = header.base_ts
                result.first_lsn = header.base_lsn
            if header.max_ts > max_ts:
                max_ts = header.max_ts
            if header.synced_lsn > synced:
                synced = header.synced_lsn
            behind = lsn_behind(header)
            if header.kind == KIND_BLOCK and self.scan_block(header, base, push, &records, &behind, &found) < 0:
                verdict = -1
                break
            if sparse is not None and at >= next_mark and (header.count or header.kind == KIND_BLOCK):
                sparse(header.base_lsn, at, max_ts)
                next_mark = at + stride
            if header.kind == KIND_RECORDS:
                records += header.count
                if push:
                    self.push_records(header, base)
            elif header.kind == KIND_DELAYED:
                records += header.count
                if delayed is not None:
                    self.give_delayed(header, delayed)
            elif header.kind == KIND_STATE and on_state is not None:
                record = <const RecordHeader*>(self.buffer + at + BATCH_HEADER)
                for k in range(header.count):
                    if header.base_lsn + k > state_after:
                        self.give_state(self.buffer + at + header.blob_off, &record[k], on_state)
            lsn = behind
            batches += 1
            at += found.length if unit_end <= at else header.len
        result.end = at
        result.next_lsn = lsn
        if verdict < 0:
            result.reason = found.reason.decode()
            result.crc_expected = found.crc_expected
            result.crc_found = found.crc_found
        result.batches = batches
        result.records = records
        result.synced_lsn = synced
        result.min_ts = min_ts
        result.max_ts = max_ts
        return result

    cdef int scan_block(self, const BatchHeader* block, uint64_t base, bint push, uint64_t* records,
                        uint64_t* behind, Found* found) except? -1:
        # `behind`: the LSN behind the last record, by the content. The header of a block of version 0.1.0 may
        # count the first batch of the next block, too.
        cdef const BatchHeader* header
        if self.walker.enter(block) == 0:
            while self.walker.inside():
                header = self.walker.next_inside()
                if header == NULL:
                    break
                records[0] += header.count
                behind[0] = header.base_lsn + header.count
                if push:
                    self.push_records(header, base)
        found.reason = self.walker.found.reason
        return 0 if found.reason == NULL else -1

    cdef size_t end_of_unit(self, size_t at, uint64_t lsn, bint gaps, uint32_t epoch, Found* found) noexcept:
        # Where the unit that begins at `at` ends; 0 when it does not.
        cdef BatchHeader* header
        while at < self.size and self.valid(at, lsn, gaps, epoch, found) == 1:
            header = <BatchHeader*>(self.buffer + at)
            at += header.len
            lsn = header.base_lsn + header.count
            if not header.attrs & ATTR_MORE:
                return at
        return 0

    cdef int give_state(self, const uint8_t* blob, const RecordHeader* record, object on_state) except -1:
        cdef const uint8_t* at = blob + record.off
        key = at[:record.key]
        if record.flags & F_TOMBSTONE:
            on_state(key, None)
        else:
            on_state(key, at[record.key + record.props:record.size])
        return 0

    cdef int give_delayed(self, BatchHeader* header, object delayed) except -1:
        cdef const RecordHeader* record = <const RecordHeader*>(<uint8_t*>header + BATCH_HEADER)
        cdef const int64_t* dues = <const int64_t*>(record + header.count)
        cdef const uint8_t* places = <const uint8_t*>(dues + header.count)
        cdef uint32_t k
        if header.cols & COL_KEY_HASH:
            places += 4 * <size_t>header.count
        for k in range(header.count):
            delayed.push(dues[k], (<const uint64_t*>places)[k], header.base_lsn + k, record[k].size)
        return 0

    cdef int push_records(self, const BatchHeader* header, uint64_t base) except -1:
        cdef const RecordHeader* record = <const RecordHeader*>(<const uint8_t*>header + BATCH_HEADER)
        cdef const uint32_t* lists = lists_of(header)
        cdef uint32_t k, j, n, entry
        cdef bint persistent
        for k in range(header.count):
            persistent = record.flags & F_PERSISTENT != 0
            entry = <uint32_t>(header.base_lsn + k - base)
            if record.flags & F_LIST:
                n = lists[record.feed]
                for j in range(n):
                    self.push_to(lists[record.feed + 1 + j], base, entry, record.size, persistent)
            else:
                self.push_to(record.feed, base, entry, record.size, persistent)
            record += 1
        return 0

    cdef inline int push_to(self, uint32_t feed_id, uint64_t base, uint32_t entry, size_t size,
                            bint persistent) except -1:
        cdef Feed feed
        if feed_id < self.by_id_size and self.by_id[feed_id] != NULL:
            feed = <Feed>self.by_id[feed_id]
            if persistent or feed.mask == ENTRY_RECORD:
                feed.push(base, entry, size)
        return 0

    def feeds_at(self, uint64_t base):
        cdef list found = []
        cdef Feed feed
        for feed in self.feeds.values():
            if feed.last != NULL and feed.last.base == base:
                found.append(feed)
        return found

    def held_bytes(self, size_t offset, size_t end):
        # Bytes of the batches of this file in [offset, end) by partition; they have been found valid.
        cdef const BatchHeader* header
        cdef uint32_t lp, last = OWN
        cdef uint64_t run = 0
        cdef dict held = {}
        while offset + BATCH_HEADER <= min(end, self.size):
            header = <const BatchHeader*>(self.buffer + offset)
            if header.len < BATCH_HEADER:
                break
            lp = header.lp if header.kind in (KIND_RECORDS, KIND_BLOCK) else OWN
            if lp != last:
                if run:
                    held[last] = held.get(last, 0) + run
                last = lp
                run = 0
            run += header.len
            offset += header.len
        if run:
            held[last] = held.get(last, 0) + run
        return held

    def search(self, size_t offset, uint64_t lsn, object epoch=None):
        # The next valid batch of this file behind `offset`. Bodies may hold bytes that look like batches, so the
        # LSN must be one that can follow.
        cdef size_t at
        cdef Found found
        cdef const BatchHeader* header
        cdef bint hit = False, any_epoch = epoch is None
        cdef uint32_t wanted = 0 if any_epoch else epoch
        at = (offset + BATCH_ALIGN - 1) & ~<size_t>(BATCH_ALIGN - 1)
        with nogil:
            while at + BATCH_HEADER <= self.size:
                header = <const BatchHeader*>(self.buffer + at)
                if (header.magic == BATCH_MAGIC and header.len != 0 and (any_epoch or header.shard_epoch == wanted)
                        and header.base_lsn >= lsn and header.base_lsn - lsn < <uint64_t>ENTRY_TRANSIENT
                        and check_batch(self.buffer + at, self.size - at, &found) == 1):
                    hit = True
                    break
                at += BATCH_ALIGN
        if not hit:
            return None
        return Hit(at, header.len, header.base_lsn, lsn_behind(header), header.synced_lsn, header.shard_epoch)

    def collect(self, size_t offset, uint64_t lsn, uint32_t epoch, Feed feed not None, uint64_t base, bint gaps,
                bint transient):
        # The entries of one feed, as in its index file; damaged batches end it.
        cdef uint32_t feed_id = feed.id, mask = feed.mask
        cdef Walker walker = self.walker
        cdef const BatchHeader* header
        cdef const RecordHeader* record
        cdef const uint32_t* lists
        cdef uint32_t k, j, n, entry
        cdef uint32_t* entries = NULL
        cdef size_t count = 0, capacity = 0
        cdef uint32_t* grown
        cdef bint hit, short = False
        walker.start(self.buffer, self.size, offset)
        with nogil:
            while True:
                header = walker.next()
                if header == NULL or follows(header, lsn, gaps, epoch) != NULL:
                    break
                lsn = header.base_lsn + header.count
                if header.kind != KIND_RECORDS:
                    continue
                record = <const RecordHeader*>(<uint8_t*>header + BATCH_HEADER)
                lists = lists_of(header)
                for k in range(header.count):
                    hit = False
                    if record.flags & F_LIST:
                        n = lists[record.feed]
                        for j in range(n):
                            if lists[record.feed + 1 + j] == feed_id:
                                hit = True
                    else:
                        hit = record.feed == feed_id
                    if hit and (transient or record.flags & F_PERSISTENT or mask == ENTRY_RECORD):
                        if count == capacity:
                            capacity = 256 if capacity == 0 else 2 * capacity
                            grown = <uint32_t*>realloc(entries, capacity * sizeof(uint32_t))
                            if grown == NULL:
                                short = True
                                break
                            entries = grown
                        entry = <uint32_t>(header.base_lsn + k - base)
                        entries[count] = (entry if record.flags & F_PERSISTENT else entry | ENTRY_TRANSIENT) & mask
                        count += 1
                    record += 1
                if short:
                    break
        try:
            if short:
                raise MemoryError()
            return PyBytes_FromStringAndSize(<char*>entries, count * sizeof(uint32_t))
        finally:
            free(entries)


cdef const char* follows(const BatchHeader* header, uint64_t lsn, bint gaps, uint32_t epoch) noexcept nogil:
    # Why a batch may not stand where LSN `lsn` is expected; NULL: it may.
    if header.shard_epoch != epoch:
        return b"a batch of another epoch"
    if header.base_lsn != lsn and not (gaps and header.base_lsn > lsn):
        return b"not the expected LSN"
    return NULL


cdef inline uint64_t lsn_behind(const BatchHeader* header) noexcept nogil:
    return header.base_pos if header.kind == KIND_BLOCK else header.base_lsn + header.count


cdef const uint32_t* lists_of(const BatchHeader* header) noexcept nogil:
    # check_batch found that the columns fit in front of the blob.
    return <const uint32_t*>(<const uint8_t*>header + BATCH_HEADER + RECORD_HEADER * <size_t>header.count
                             + columns_size(header.cols, header.count))


# --- feed index files ---

cdef struct Row:                     # of the directory
    uint32_t feed
    uint32_t first                   # entry number in this file
    uint32_t count
    uint32_t persistent
    uint32_t first_record            # of the persistent entries
    uint32_t last_record
    uint32_t crc
    uint32_t bytes                   # of the records, when the feed keeps everything

cdef struct Source:
    uint32_t feed
    uint32_t count
    uint32_t bytes
    const uint32_t* entries


cdef int by_feed(const void* a, const void* b) noexcept nogil:
    cdef uint32_t x = (<const Source*>a).feed, y = (<const Source*>b).feed
    return (x > y) - (x < y)


def encode_feeds(list feeds not None, uint64_t base):
    cdef Py_ssize_t n = PyList_GET_SIZE(feeds), k, used = 0
    cdef Source* sources = <Source*>malloc((n + 1) * sizeof(Source))
    cdef Feed feed
    cdef Chunk* chunk
    cdef size_t total = 0
    cdef uint32_t j, entry
    cdef Row* rows
    cdef uint32_t* out
    cdef bytes payload
    cdef dict sizes = {}
    if sources == NULL:
        raise MemoryError()
    try:
        for k in range(n):
            feed = <Feed>PyList_GET_ITEM(feeds, k)
            chunk = feed.chunk_at(base)
            if chunk == NULL or chunk.entries == NULL or chunk.count == 0:
                continue
            sources[used].feed = feed.id
            sources[used].count = chunk.count
            sources[used].entries = chunk.entries
            sources[used].bytes = 0
            if feed.mask == ENTRY_RECORD:
                sources[used].bytes = <uint32_t>min(chunk.nbytes, <uint64_t>0xFFFFFFFF)
                sizes[feed.id] = sources[used].bytes
            total += chunk.count
            used += 1
        payload = PyBytes_FromStringAndSize(NULL, used * sizeof(Row) + total * sizeof(uint32_t))
        rows = <Row*>PyBytes_AS_STRING(payload)
        out = <uint32_t*>(PyBytes_AS_STRING(payload) + used * sizeof(Row))
        with nogil:                          # closed chunks do not change, and `feeds` keeps them
            qsort(sources, used, sizeof(Source), by_feed)
            total = 0
            for k in range(used):
                memset(&rows[k], 0, sizeof(Row))
                rows[k].feed = sources[k].feed
                rows[k].first = <uint32_t>total
                rows[k].count = sources[k].count
                rows[k].bytes = sources[k].bytes
                for j in range(sources[k].count):
                    entry = sources[k].entries[j]
                    if not entry & ENTRY_TRANSIENT:
                        if rows[k].persistent == 0:
                            rows[k].first_record = entry
                        rows[k].last_record = entry
                        rows[k].persistent += 1
                memcpy(out + total, sources[k].entries, sources[k].count * sizeof(uint32_t))
                rows[k].crc = crc32c_of(0, <const uint8_t*>(out + total), sources[k].count * sizeof(uint32_t))
                total += sources[k].count
        return payload, used, sizes
    finally:
        free(sources)


def adopt_directory(Scanner scanner not None, const uint8_t[::1] directory not None, uint64_t base):
    cdef size_t n = <size_t>directory.shape[0] // sizeof(Row), k
    cdef const Row* rows
    cdef Feed feed
    cdef list found = []
    if n == 0:
        return found
    rows = <const Row*>&directory[0]
    for k in range(n):
        if rows[k].persistent and rows[k].feed < scanner.by_id_size and scanner.by_id[rows[k].feed] != NULL:
            feed = <Feed>scanner.by_id[rows[k].feed]
            feed.add_stored(base, rows[k].persistent, rows[k].first_record, rows[k].last_record)
            found.append(feed)
    return found


def persistent_entries(const uint8_t[::1] entries not None):
    cdef size_t n = <size_t>entries.shape[0] // sizeof(uint32_t), k, kept = 0
    cdef bytes out = PyBytes_FromStringAndSize(NULL, n * sizeof(uint32_t))
    cdef uint32_t* to = <uint32_t*>PyBytes_AS_STRING(out)
    cdef const uint32_t* source
    if n:
        source = <const uint32_t*>&entries[0]
        for k in range(n):
            if not source[k] & ENTRY_TRANSIENT:
                to[kept] = source[k]
                kept += 1
    return out[:kept * sizeof(uint32_t)]


cdef RecordHeader* no_records = NULL     # all that LOST batches have; never written to


def lost_batch(uint64_t lsn, uint32_t count, uint32_t epoch):
    global no_records
    cdef Slab slab = Slab.__new__(Slab)
    cdef BatchHeader* header = <BatchHeader*>calloc(1, BATCH_HEADER)
    cdef Batch batch
    if count > BATCH_RECORDS_MAX:
        raise ValueError(f"a batch of {count} records")
    if no_records == NULL:
        no_records = <RecordHeader*>calloc(BATCH_RECORDS_MAX, RECORD_HEADER)
    if header == NULL or no_records == NULL:
        free(header)
        raise MemoryError()
    slab.data = <uint8_t*>header             # of another size than those that are recycled
    slab.size = slab.used = BATCH_HEADER
    header.len = BATCH_HEADER
    header.blob_off = BATCH_HEADER
    header.magic = BATCH_MAGIC
    header.shard_epoch = epoch
    header.base_lsn = header.base_pos = lsn
    batch = view_batch(slab.data, slab)
    batch.count = header.count = count
    batch.headers = no_records
    return batch
