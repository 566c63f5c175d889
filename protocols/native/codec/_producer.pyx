# cython: auto_pickle=False
"""The producing side of the native protocol: batches checked and appended, and the confirms that wait.

Owns what happens per produced message. All integers are big-endian.

    PRODUCE    sequence u64 | acks u8 | compression u8 | reserved u16 = 0 | count u32 | count records
               (compression 1, zstd, or 2, LZ4: they are packed, see `packing`)
      record   properties size u32 | body size u32 | properties | body
    CONFIRM    sequence u64 | position u64 | count u32 | flags u32 (1: it had been appended before, 2: no queue
               and no subscription gets it)

A batch is checked whole before anything of it is appended. Confirms leave in the order of the batches.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from penstock.log_core.batch._appender cimport Appender
from penstock.log_core.batch._batch cimport ENC_AMQP091, F_PERSISTENT
from penstock.protocols.properties._properties cimport Properties, read_properties
from penstock.protocols.properties._tables cimport load32, store32, store64
from penstock.protocols.native.codec._frames cimport HEAD, T_CONFIRM, put_head
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.router.routes._routes cimport Route

cdef enum:
    RECORD_HEAD = 8
    # The most that fits the content header frame of an AMQP client with the usual frame_max of 131,072: it may close the
    # connection on a larger one, and then meets the message again.
    PROPERTIES_MAX = 131052
    FLAG_REPEATED = 1
    FLAG_UNROUTED = 2

CHECKS = ("ok", "malformed", "reserved_header", "foreign_user", "properties_size")


cdef class Producer:
    def __cinit__(self, uint32_t id, bytes key not None, bytes name not None, uint32_t epoch):
        self.id = id
        self.key = key
        self.name = name
        self.epoch = epoch


# Records

cdef int check_records(const uint8_t* p, Py_ssize_t n, uint32_t count, bytes user) noexcept:
    """Whether the n bytes at p are `count` records that `user` may send."""
    cdef const uint8_t* end = p + n
    cdef const uint8_t* known = NULL
    cdef uint32_t known_size = 0, props_size, body_size, i
    cdef Properties found
    for i in range(count):
        if end - p < RECORD_HEAD:
            return MALFORMED
        props_size = load32(p)
        body_size = load32(p + 4)
        p += RECORD_HEAD
        if <uint64_t>props_size + body_size > <uint64_t>(end - p):
            return MALFORMED
        if known == NULL or props_size != known_size or memcmp(p, known, props_size) != 0:
            if props_size > PROPERTIES_MAX:
                return PROPERTIES_SIZE
            if read_properties(p, props_size, &found) < 0:
                return MALFORMED
            if found.special:
                return RESERVED
            if found.user_id != NULL and (
                found.user_id_size != PyBytes_GET_SIZE(user)
                or memcmp(found.user_id, PyBytes_AS_STRING(user), found.user_id_size) != 0
            ):
                return FOREIGN_USER
            known = p
            known_size = props_size
        p += props_size + body_size
    return OK if p == end else MALFORMED


cdef uint64_t append_records(Appender appender, Route route, bytes key, const uint8_t* p, uint32_t count) except 0:
    """Append checked records; the LSN of the first. `count` is above 0."""
    cdef const uint8_t* known = NULL
    cdef const uint8_t* key_block = <const uint8_t*>PyBytes_AS_STRING(key)
    cdef uint16_t key_size = <uint16_t>PyBytes_GET_SIZE(key), flags = 0
    cdef uint32_t known_size = 0, props_size, body_size, i
    cdef uint64_t first = appender.next_lsn
    cdef Properties found
    for i in range(count):
        props_size = load32(p)
        body_size = load32(p + 4)
        p += RECORD_HEAD
        if known == NULL or props_size != known_size or memcmp(p, known, props_size) != 0:
            read_properties(p, props_size, &found)
            flags = F_PERSISTENT if found.delivery_mode == 2 else 0
            known = p
            known_size = props_size
        appender.append(route.lp, route.target, key_block, key_size, p, props_size, p + props_size,
                        body_size, flags, found.priority, ENC_AMQP091, found.ttl, 0)
        p += props_size + body_size
    return first


cdef list split(const uint8_t* p, uint32_t count):
    cdef list records = []
    cdef uint32_t props_size, body_size, i
    for i in range(count):
        props_size = load32(p)
        body_size = load32(p + 4)
        p += RECORD_HEAD
        records.append((PyBytes_FromStringAndSize(<const char*>p, props_size),
                        PyBytes_FromStringAndSize(<const char*>p + props_size, body_size)))
        p += props_size + body_size
    return records


def split_records(bytes records not None, uint32_t count):
    return split(<const uint8_t*>PyBytes_AS_STRING(records), count)


# Confirms

cdef class Confirms:
    def __dealloc__(self):
        free(self.pending)

    cdef int push(self, uint32_t id, uint64_t sequence, uint32_t count, uint64_t position, uint64_t lsn,
                  bint synced, bint repeated, bint unrouted) except -1:
        cdef Py_ssize_t capacity, n = self.pending_end - self.pending_first, i
        cdef Confirm* grown
        cdef Confirm* entry
        if self.pending_end == self.pending_capacity:
            if n * 2 <= self.pending_capacity and self.pending_capacity:
                for i in range(n):
                    self.pending[i] = self.pending[self.pending_first + i]
            else:
                capacity = max(2 * self.pending_capacity, <Py_ssize_t>16)
                grown = <Confirm*>malloc(capacity * sizeof(Confirm))
                if grown == NULL:
                    raise MemoryError
                for i in range(n):
                    grown[i] = self.pending[self.pending_first + i]
                free(self.pending)
                self.pending = grown
                self.pending_capacity = capacity
            self.pending_first = 0
            self.pending_end = n
        entry = &self.pending[self.pending_end]
        entry.id = id
        entry.sequence = sequence
        entry.count = count
        entry.position = position
        entry.lsn = lsn
        entry.synced = synced
        entry.flags = (FLAG_REPEATED if repeated else 0) | (FLAG_UNROUTED if unrouted else 0)
        self.pending_end += 1
        if synced:
            self.wait_synced = max(self.wait_synced, lsn)
        else:
            self.wait_written = max(self.wait_written, lsn)
        return 0

    cdef tuple take_waits(self):
        cdef tuple waits = (self.wait_written, self.wait_synced)
        self.wait_written = self.wait_synced = 0
        return waits

    cdef uint64_t encode(self, OutBuffer out, uint64_t written, uint64_t synced) except? 0xFFFFFFFFFFFFFFFF:
        """Encode those that are due; how many records they confirm."""
        cdef Confirm* entry
        cdef uint8_t* p
        cdef uint64_t confirmed = 0
        while self.pending_first < self.pending_end:
            entry = &self.pending[self.pending_first]
            if entry.lsn > (synced if entry.synced else written):
                break
            p = out.reserve(HEAD + 24)
            put_head(p, 24, T_CONFIRM, entry.id)
            store64(p + HEAD, entry.sequence)
            store64(p + HEAD + 8, entry.position)
            store32(p + HEAD + 16, entry.count)
            store32(p + HEAD + 20, entry.flags)
            out.commit(HEAD + 24)
            confirmed += entry.count
            self.pending_first += 1
        return confirmed

    cdef list drop(self):
        cdef list dropped = []
        cdef Py_ssize_t i
        for i in range(self.pending_first, self.pending_end):
            dropped.append((self.pending[i].id, self.pending[i].sequence, self.pending[i].count))
        self.pending_first = self.pending_end = 0
        return dropped
