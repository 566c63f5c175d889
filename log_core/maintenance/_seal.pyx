# cython: auto_pickle=False
"""Rewriting a closed segment so that it holds only what somebody still needs.

A record stays when its number is marked, when one of its feeds is needed there, or when all of its partition
is and it is in no retention feed (`retention_feeds`), which would say it. Records that stay and follow one another are
one batch; LSNs, times, flags and columns do not change. State and notes go: checkpoints behind the segment
have the tables. The last batch shall be a note (`end_note`) with the LSN that follows the segment, so that a
reader knows where it ended. A segment is taken in pieces: no more than one is in memory.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport SIZE_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from penstock.log_core.batch._batch cimport (
    BATCH_ALIGN, BATCH_HEADER, BATCH_MAGIC, F_LIST, KIND_NOTE, KIND_RECORDS, RECORD_HEADER, BatchHeader, Found,
    RecordHeader, check_head, columns_size, common_attrs,
)
from penstock.log_core.batch._blocks cimport Walker
from penstock.log_core.batch._crc cimport crc32c_of

cdef enum:
    CHUNK_BYTES = 1048576            # of survivors at once
    NONE = 0xffffffff


cdef uint8_t[5] WIDTHS = [8, 4, 8, 8, 4]     # of the optional columns, by bit


@cython.final
cdef class Needs:
    def __cinit__(self, uint64_t base, uint64_t end):
        if end < base or end - base > 0x7fffffff:
            raise ValueError(f"no segment: LSNs {base} to {end}")
        self.base = base
        self.end = end
        self.partitions = set()
        self.bits = <uint8_t*>calloc((end - base) // 8 + 1, 1)
        if self.bits == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.bits)
        free(self.first)
        free(self.last)
        free(self.retention_feeds)

    cpdef int need(self, uint64_t position) except -1:
        cdef uint64_t record = position - self.base
        if self.base <= position < self.end:
            self.bits[record >> 3] |= <uint8_t>(1 << (record & 7))
        return 0

    cdef int know(self, uint32_t feed) except -1:
        # Have room for what is said of a feed.
        cdef uint32_t size, k
        cdef uint32_t* grown
        cdef uint8_t* flags
        if feed < self.feeds:
            return 0
        size = max(feed + 1, 2 * self.feeds, <uint32_t>1024)
        grown = <uint32_t*>realloc(self.first, size * sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError()
        self.first = grown
        grown = <uint32_t*>realloc(self.last, size * sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError()
        self.last = grown
        flags = <uint8_t*>realloc(self.retention_feeds, size)
        if flags == NULL:
            raise MemoryError()
        self.retention_feeds = flags
        for k in range(self.feeds, size):
            self.first[k] = NONE
            self.last[k] = 0
            self.retention_feeds[k] = 0
        self.feeds = size
        return 0

    cpdef int need_feed(self, uint32_t feed, uint64_t from_pos, uint64_t to_pos) except -1:
        from_pos = max(from_pos, self.base)
        to_pos = min(to_pos, self.end)
        if from_pos >= to_pos:
            return 0
        self.know(feed)
        self.first[feed] = min(self.first[feed], <uint32_t>(from_pos - self.base))
        self.last[feed] = max(self.last[feed], <uint32_t>(to_pos - self.base))
        return 0

    def need_partition(self, uint32_t lp):
        self.partitions.add(lp)

    def need_kept(self, retention_feeds not None):
        cdef uint32_t feed
        cdef uint64_t start
        for feed, start in retention_feeds:
            self.know(feed)
            self.retention_feeds[feed] = 1
            self.need_feed(feed, start, self.end)

    def need_marked(self, const uint8_t[::1] bits not None):
        cdef size_t k, size = <size_t>((self.end - self.base) // 8 + 1)
        if <size_t>bits.shape[0] != size:
            raise ValueError(f"{bits.shape[0]} bytes of marks for {size}")
        for k in range(size):
            self.bits[k] |= bits[k]

    def signature(self):
        cdef uint32_t crc = crc32c_of(0, self.bits, (self.end - self.base) // 8 + 1)
        cdef uint32_t k
        for k in range(self.feeds):
            if self.retention_feeds[k]:
                crc = crc32c_of(crc, <const uint8_t*>&k, 4)
            if self.first[k] < self.last[k]:
                crc = crc32c_of(crc, <const uint8_t*>&k, 4)
                crc = crc32c_of(crc, <const uint8_t*>&self.first[k], 4)
                crc = crc32c_of(crc, <const uint8_t*>&self.last[k], 4)
        for k in sorted(self.partitions):
            crc = crc32c_of(crc, <const uint8_t*>&k, 4)
        return crc

    cdef bint needs_feed(self, uint32_t feed, uint32_t record) noexcept nogil:
        return feed < self.feeds and self.first[feed] <= record < self.last[feed]

    cdef bint in_retention_feed(self, const RecordHeader* record, const uint32_t* lists) noexcept nogil:
        cdef uint32_t k, feed
        if not record.flags & F_LIST:
            return record.feed < self.feeds and self.retention_feeds[record.feed]
        for k in range(lists[record.feed]):
            feed = lists[record.feed + 1 + k]
            if feed < self.feeds and self.retention_feeds[feed]:
                return True
        return False

    cdef bint is_needed(self, const RecordHeader* record, uint64_t lsn, const uint32_t* lists) noexcept nogil:
        cdef uint32_t number = <uint32_t>(lsn - self.base), k
        if lsn < self.base or lsn >= self.end:
            return True                              # none of this segment: not ours to throw away
        if self.bits[number >> 3] >> (number & 7) & 1:
            return True
        if record.flags & F_LIST:
            for k in range(lists[record.feed]):
                if self.needs_feed(lists[record.feed + 1 + k], number):
                    return True
            return False
        return self.needs_feed(record.feed, number)

    cdef bint stays(self, const BatchHeader* header, const RecordHeader* record, uint32_t number,
                    const uint32_t* lists, bint whole) noexcept nogil:
        if whole and not (self.feeds and self.in_retention_feed(record, lists)):
            return True
        return self.is_needed(record, header.base_lsn + number, lists)

    def survivors(self, const uint8_t[::1] data not None, size_t offset, size_t room=CHUNK_BYTES,
                  size_t look=SIZE_MAX):
        cdef Output out
        cdef Walker walker = Walker()
        cdef const BatchHeader* header = NULL
        cdef uint64_t kept = 0
        cdef uint32_t lp = 0
        cdef int failed = 0
        cdef bint known = False, whole = False
        cdef size_t before
        cdef dict held = {}
        out.data = NULL
        out.size = out.room = 0
        walker.start(&data[0] if data.shape[0] else NULL, <size_t>data.shape[0], offset)
        try:
            with nogil:
                while (out.size < room and walker.at - offset < look) or walker.inside():
                    header = walker.next()
                    if header == NULL:
                        break
                    if header.kind == KIND_RECORDS:
                        if not known or header.lp != lp:
                            lp = header.lp
                            known = True
                            with gil:
                                whole = lp in self.partitions
                        before = out.size
                        failed = self.take(header, &out, &kept, whole)
                        if failed:
                            break
                        if out.size > before:
                            with gil:
                                held[lp] = held.get(lp, 0) + out.size - before
            if failed:
                raise MemoryError()
            if walker.found.reason != NULL:
                raise ValueError(f"a damaged batch at byte {walker.at}: {walker.found.reason.decode()}")
            # Nothing valid and nothing amiss: it is the end of what was written.
            end = walker.at if header != NULL else walker.size
            return PyBytes_FromStringAndSize(<char*>out.data, out.size), end, kept, held
        finally:
            free(out.data)

    def staying(self, const uint8_t[::1] data not None, size_t offset, size_t look=SIZE_MAX):
        cdef size_t at = offset, stays = 0, size = <size_t>data.shape[0]
        cdef Found found
        cdef const BatchHeader* header
        cdef uint32_t lp = 0
        cdef bint known = False, whole = False
        found.reason = NULL
        with nogil:
            while at < size and at - offset < look and check_head(&data[at], size - at, &found) == 1:
                header = <const BatchHeader*>&data[at]
                at += header.len
                if header.kind == KIND_RECORDS:
                    if not known or header.lp != lp:
                        lp = header.lp
                        known = True
                        with gil:
                            whole = lp in self.partitions
                    stays += self.staying_of(header, whole)
        if found.reason != NULL:
            raise ValueError(f"a damaged batch at byte {at}: {found.reason.decode()}")
        return stays, at if at - offset >= look else size

    cdef size_t staying_of(self, const BatchHeader* header, bint whole) noexcept nogil:
        cdef const RecordHeader* records = <const RecordHeader*>(<const uint8_t*>header + BATCH_HEADER)
        cdef const uint32_t* lists = <const uint32_t*>(
            <const uint8_t*>records + RECORD_HEADER * <size_t>header.count + columns_size(header.cols, header.count))
        cdef uint32_t k, kept = 0
        cdef size_t nbytes = BATCH_HEADER
        for k in range(header.count):
            if self.stays(header, &records[k], k, lists, whole):
                kept += 1
                nbytes += RECORD_HEADER + records[k].size
        return header.len if kept == header.count else nbytes if kept else 0

    cdef int take(self, const BatchHeader* header, Output* out, uint64_t* kept, bint whole) noexcept nogil:
        # Put what stays of a batch, all that no retention feed decides about when it is wanted `whole`; -1: no memory.
        cdef const RecordHeader* records = <const RecordHeader*>(<const uint8_t*>header + BATCH_HEADER)
        cdef const uint32_t* lists = <const uint32_t*>(
            <const uint8_t*>records + RECORD_HEADER * <size_t>header.count + columns_size(header.cols, header.count))
        cdef size_t lists_size = header.blob_off - <size_t>(<const uint8_t*>lists - <const uint8_t*>header), wanted
        cdef uint32_t first = 0, count, k
        cdef uint32_t* memo = NULL               # by word of the batch's feed lists: its place in the copy, + 1
        while True:
            while first < header.count and not self.stays(header, &records[first], first, lists, whole):
                first += 1
            count = 0
            while first + count < header.count and self.stays(
                    header, &records[first + count], first + count, lists, whole):
                count += 1
            if count == 0:
                break
            if memo == NULL:
                memo = <uint32_t*>malloc(lists_size + 4)
                if memo == NULL:
                    return -1
            wanted = BATCH_HEADER + (RECORD_HEADER + 32) * <size_t>count + lists_size + 2 * BATCH_ALIGN
            for k in range(first, first + count):
                wanted += records[k].size
            if make_room(out, wanted) < 0:
                free(memo)
                return -1
            memset(memo, 0, lists_size)
            out.size += put(out.data + out.size, header, records, lists, first, count, memo)
            kept[0] += count
            first += count
        free(memo)
        return 0


def end_note(uint64_t lsn, uint32_t epoch, int64_t max_ts):
    cdef bytes note = PyBytes_FromStringAndSize(NULL, BATCH_HEADER)
    put_note(<uint8_t*>PyBytes_AS_STRING(note), lsn, epoch, max_ts)
    return note


cdef int make_room(Output* out, size_t wanted) noexcept nogil:
    cdef size_t room
    cdef uint8_t* grown
    if out.room - out.size >= wanted:
        return 0
    room = 2 * out.room + wanted
    grown = <uint8_t*>realloc(out.data, room)
    if grown == NULL:
        return -1
    out.data = grown
    out.room = room
    return 0


cdef size_t close(uint8_t* at, size_t blob_off, size_t blob_raw) noexcept nogil:
    # Lengths, filling and CRCs of the batch at `at`; its length.
    cdef BatchHeader* header = <BatchHeader*>at
    cdef size_t length = (blob_off + blob_raw + BATCH_ALIGN - 1) & ~<size_t>(BATCH_ALIGN - 1)
    memset(at + blob_off + blob_raw, 0, length - blob_off - blob_raw)
    header.len = <uint32_t>length
    header.blob_off = <uint32_t>blob_off
    header.blob_raw = <uint32_t>blob_raw
    header.blob_crc = crc32c_of(0, at + blob_off, blob_raw)
    header.head_crc = crc32c_of(0, at + 8, blob_off - 8)
    return length


cdef size_t put(uint8_t* at, const BatchHeader* source, const RecordHeader* records, const uint32_t* lists,
                uint32_t first, uint32_t count, uint32_t* memo) noexcept nogil:
    # Records [first, first + count) of a batch as a batch of their own; its length.
    cdef BatchHeader* header = <BatchHeader*>at
    cdef RecordHeader* record = <RecordHeader*>(at + BATCH_HEADER)
    cdef const uint8_t* column = <const uint8_t*>(records + source.count)
    cdef const uint8_t* blob = <const uint8_t*>source + source.blob_off
    cdef uint8_t* to = at + BATCH_HEADER + RECORD_HEADER * <size_t>count
    cdef uint32_t k, n, words = 0
    cdef uint32_t* out_lists
    cdef size_t blob_raw = 0
    cdef int bit
    memcpy(header, source, BATCH_HEADER)
    header.count = count
    header.base_lsn = source.base_lsn + first
    header.base_pos = source.base_pos + first
    header.attrs = common_attrs(records + first, count) if source.kind == KIND_RECORDS else 0
    memcpy(record, records + first, RECORD_HEADER * <size_t>count)
    for bit in range(5):
        if source.cols >> bit & 1:
            memcpy(to, column + WIDTHS[bit] * <size_t>first, WIDTHS[bit] * <size_t>count)
            to += WIDTHS[bit] * <size_t>count
            column += WIDTHS[bit] * <size_t>source.count
    out_lists = <uint32_t*>to
    for k in range(count):
        if record[k].flags & F_LIST:
            if memo[record[k].feed] == 0:
                n = lists[record[k].feed] + 1
                memcpy(out_lists + words, lists + record[k].feed, n * sizeof(uint32_t))
                memo[record[k].feed] = words + 1
                words += n
            record[k].feed = memo[record[k].feed] - 1
    to += words * sizeof(uint32_t)
    for k in range(count):
        memcpy(to + blob_raw, blob + record[k].off, record[k].size)
        record[k].off = <uint32_t>blob_raw
        blob_raw += record[k].size
    return close(at, <size_t>(to - at), blob_raw)


cdef size_t put_note(uint8_t* at, uint64_t lsn, uint32_t epoch, int64_t max_ts) noexcept nogil:
    cdef BatchHeader* header = <BatchHeader*>at
    memset(at, 0, BATCH_HEADER)
    header.magic = BATCH_MAGIC
    header.kind = KIND_NOTE
    header.shard_epoch = epoch
    header.base_lsn = header.base_pos = lsn
    header.synced_lsn = lsn - 1
    header.base_ts = header.max_ts = max_ts
    return close(at, BATCH_HEADER, 0)
