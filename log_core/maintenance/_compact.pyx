# cython: auto_pickle=False
"""Which records of a feed are the last ones of their keys: what key compaction keeps.

A `KeyMap` is filled with every record of the feed that there is, in any order, then asked about one segment
after the other. A key is the encoding and the key block of a record; of keys 128 bits of a hash are kept,
seeded anew for each map, so that nobody can make two keys collide. A tombstone is a record with an empty
body: it may go when it is old enough and nothing else of its key is left, so that no older value reappears.

Compare Kafka's SkimpyOffsetMap and LogCleaner.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from penstock.log_core.batch._batch cimport (
    BATCH_HEADER, F_LIST, F_TOMBSTONE, KIND_RECORDS, RECORD_HEADER, BatchHeader, RecordHeader, columns_size,
)
from penstock.log_core.batch._blocks cimport Walker

import os

cdef struct Slot:
    uint64_t high, low               # of the hash; both 0: free
    uint64_t last                    # LSN of the last record of the key
    uint64_t count                   # records of the key


cdef inline uint64_t mixed(uint64_t h) noexcept nogil:
    # The finalizer of MurmurHash3.
    h ^= h >> 33
    h *= <uint64_t>0xff51afd7ed558ccdULL
    h ^= h >> 33
    h *= <uint64_t>0xc4ceb9fe1a85ec53ULL
    return h ^ (h >> 33)


@cython.final
cdef class KeyMap:
    cdef Slot* slots
    cdef size_t mask
    cdef readonly size_t keys
    cdef size_t keys_max
    cdef readonly bint full          # more keys than allowed: records of those not in it are kept
    cdef uint32_t feed
    cdef uint64_t seed_high, seed_low

    def __cinit__(self, uint32_t feed, size_t keys_max):
        self.feed = feed
        self.keys_max = keys_max
        self.seed_high, self.seed_low = (int.from_bytes(os.urandom(8), "little") for _ in range(2))
        self.mask = 4095
        self.slots = <Slot*>calloc(self.mask + 1, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.slots)

    cdef Slot* place(self, const RecordHeader* record, const uint8_t* key) noexcept nogil:
        # The slot of a record's key, or the free one where it belongs.
        cdef uint64_t high = mixed(self.seed_high ^ record.enc), low = mixed(self.seed_low ^ record.key), word
        cdef size_t at = 0
        while at < record.key:
            word = 0
            memcpy(&word, key + at, min(<size_t>8, record.key - at))
            high = mixed(high ^ word)
            low = mixed(low + word * <uint64_t>0x9e3779b97f4a7c15ULL)
            at += 8
        if high == 0 and low == 0:
            low = 1
        return self.slot_of(high, low)

    cdef Slot* slot_of(self, uint64_t high, uint64_t low) noexcept nogil:
        cdef size_t at = <size_t>high & self.mask
        cdef Slot* slot
        while True:
            slot = &self.slots[at]
            if slot.high == high and slot.low == low:
                return slot
            if slot.high == 0 and slot.low == 0:
                slot.last = high             # for `fill`: what belongs here
                slot.count = low
                return slot
            at = (at + 1) & self.mask

    cdef int grow(self) noexcept nogil:
        cdef Slot* old = self.slots
        cdef Slot* slot
        cdef size_t size = self.mask + 1, k
        self.slots = <Slot*>calloc(2 * size, sizeof(Slot))
        if self.slots == NULL:
            self.slots = old
            return -1
        self.mask = 2 * size - 1
        for k in range(size):
            if old[k].high or old[k].low:
                slot = self.slot_of(old[k].high, old[k].low)
                slot[0] = old[k]
        free(old)
        return 0

    cdef bint wants(self, const RecordHeader* record, const uint32_t* lists) noexcept nogil:
        cdef uint32_t k
        if record.flags & F_LIST:
            for k in range(lists[record.feed]):
                if lists[record.feed + 1 + k] == self.feed:
                    return True
            return False
        return record.feed == self.feed

    cdef int add(self, const RecordHeader* record, const uint8_t* key, uint64_t lsn) noexcept nogil:
        cdef Slot* slot = self.place(record, key)
        cdef uint64_t high, low
        if slot.high == 0 and slot.low == 0:
            if self.keys == self.keys_max:
                self.full = True
                return 0
            high, low = slot.last, slot.count
            if 2 * self.keys > self.mask:
                if self.grow() < 0:
                    return -1
                slot = self.slot_of(high, low)
            slot.high = high
            slot.low = low
            slot.last = slot.count = 0
            self.keys += 1
        slot.last = max(slot.last, lsn)
        slot.count += 1
        return 0

    cdef bint keeps(self, const RecordHeader* record, const uint8_t* key, uint64_t lsn, bint is_old) noexcept nogil:
        cdef Slot* slot = self.place(record, key)
        cdef bint tombstone
        if slot.high == 0 and slot.low == 0:
            return True                      # there was no room for its key
        if slot.last != lsn:
            return False
        tombstone = record.flags & F_TOMBSTONE != 0 or record.size == record.key + record.props
        return not (tombstone and is_old and slot.count == 1)

    def fill(self, const uint8_t[::1] data not None, size_t offset):
        self.walk(data, offset, NULL, 0, 0, 0)

    def survivors(self, const uint8_t[::1] data not None, size_t offset, uint64_t base, uint64_t end, int64_t old_ms):
        cdef size_t size = <size_t>((end - base) // 8 + 1)
        cdef bytes bits = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t* to = <uint8_t*>PyBytes_AS_STRING(bits)
        memset(to, 0, size)
        self.walk(data, offset, to, base, end, old_ms)
        return bits

    cdef int walk(self, const uint8_t[::1] data, size_t offset, uint8_t* bits, uint64_t base, uint64_t end,
                  int64_t old_ms) except -1:
        cdef Walker walker = Walker()
        cdef const BatchHeader* header
        cdef const RecordHeader* record
        cdef const uint32_t* lists
        cdef const uint8_t* key
        cdef uint64_t lsn
        cdef uint32_t k
        cdef int failed = 0
        walker.start(&data[0] if data.shape[0] else NULL, <size_t>data.shape[0], offset)
        with nogil:
            while not failed:
                header = walker.next()
                if header == NULL:
                    break
                if header.kind != KIND_RECORDS:
                    continue
                record = <const RecordHeader*>(<const uint8_t*>header + BATCH_HEADER)
                lists = <const uint32_t*>(<const uint8_t*>record + RECORD_HEADER * <size_t>header.count
                                          + columns_size(header.cols, header.count))
                for k in range(header.count):
                    lsn = header.base_lsn + k
                    if self.wants(record, lists):
                        key = <const uint8_t*>header + header.blob_off + record.off
                        if bits == NULL:
                            if self.add(record, key, lsn) < 0:
                                failed = 1
                                break
                        elif base <= lsn < end and self.keeps(record, key, lsn, header.base_ts + record.ts < old_ms):
                            bits[(lsn - base) >> 3] |= <uint8_t>(1 << ((lsn - base) & 7))
                    record += 1
        if failed:
            raise MemoryError()
        if walker.found.reason != NULL:
            raise ValueError(f"a damaged batch at byte {walker.at}: {walker.found.reason.decode()}")
        return 0
