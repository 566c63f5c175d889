# cython: auto_pickle=False
"""The records that came for a consumer and wait to be given out: frames as they are; records are made when taken.

Counts what was given out, by which credit is granted again. Knows no connection; the words are in _inbox.pyi.
"""

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.protocols.native.codec._records cimport Chunk, Record, Spot, spot_size

cdef enum:
    BODY
    POSITION
    TIMESTAMP


cdef inline const uint8_t* bytes_at(bytes payload):
    return <const uint8_t*>PyBytes_AS_STRING(payload)


cdef class Inbox:
    cdef object chunks              # deque of Chunk, each with something left
    cdef Chunk first                # the first of them
    cdef type kind
    cdef public object source
    cdef readonly Py_ssize_t waiting, used, used_most
    cdef readonly uint64_t used_bytes, used_bytes_most
    cdef public uint64_t position
    cdef readonly bint due

    takes_stored = True

    def __cinit__(self, type kind not None, object source, Py_ssize_t used_most, uint64_t used_bytes_most):
        if not issubclass(kind, Record):
            raise TypeError("kind is a class of records")
        self.chunks = deque()
        self.kind = kind
        self.source = source
        self.used_most = used_most
        self.used_bytes_most = used_bytes_most

    def deliver(self, bytes payload not None):
        cdef uint32_t pull = 0
        cdef Chunk chunk = Chunk.of_delivery(payload, bytes_at(payload), PyBytes_GET_SIZE(payload), &pull)
        if not pull:
            self.add(chunk)
            return 0, ()
        records = []
        cdef uint64_t size = 0
        while chunk.left:
            records.append(chunk.next(self.kind, self.source, &size))
        return pull, records

    def deliver_stored(self, bytes payload not None):
        self.add(Chunk.of_stored(payload, bytes_at(payload), PyBytes_GET_SIZE(payload)))

    cdef int add(self, Chunk chunk) except -1:
        if chunk.left:
            self.chunks.append(chunk)
            self.waiting += chunk.left
            if self.first is None:
                self.first = chunk
        return 0

    cdef int step(self) except -1:
        """The first chunk is empty."""
        self.chunks.popleft()
        self.first = self.chunks[0] if self.chunks else None
        return 0

    cdef void count(self, Py_ssize_t n) noexcept:
        self.waiting -= n
        self.used += n
        self.due = self.used >= self.used_most or self.used_bytes >= self.used_bytes_most

    def next(self):
        cdef Chunk chunk = self.first
        cdef Record record
        if chunk is None:
            return None
        record = chunk.next(self.kind, self.source, &self.used_bytes)
        self.position = record.position
        self.count(1)
        if not chunk.left:
            self.step()
        return record

    def take(self, Py_ssize_t most):
        cdef Chunk chunk
        cdef Record record
        cdef Py_ssize_t n, left = min(most, self.waiting)
        cdef list found = []
        while left > 0:
            chunk = self.first
            n = min(left, chunk.left)
            for _ in range(n):
                record = chunk.next(self.kind, self.source, &self.used_bytes)
                found.append(record)
            self.position = record.position
            self.count(n)
            left -= n
            if not chunk.left:
                self.step()
        return found

    def columns(self, Py_ssize_t most):
        cdef Columns found = Columns.__new__(Columns)
        cdef Chunk chunk, part
        cdef Spot spot
        cdef Py_ssize_t n, left = min(most, self.waiting)
        found.parts = []
        found.kind = self.kind
        found.source = self.source
        while left > 0:
            chunk = self.first
            n = min(left, chunk.left)
            part = chunk.copied()
            part.left = n
            found.parts.append(part)
            found.count += n
            for _ in range(n):
                chunk.look(&spot)
                self.used_bytes += spot_size(&spot)
            self.position = spot.position
            self.count(n)
            left -= n
            if not chunk.left:
                self.step()
        return found

    def head(self):
        cdef Spot spot
        if self.first is None:
            return None
        self.first.copied().look(&spot)
        return spot.position

    def clear(self):
        cdef Chunk chunk
        cdef Spot spot
        cdef Py_ssize_t dropped = self.waiting
        for chunk in self.chunks:
            while chunk.left:
                chunk.look(&spot)
                self.used_bytes += spot_size(&spot)
        self.chunks.clear()
        self.first = None
        self.count(dropped)
        return dropped

    def granted(self):
        found = min(self.used, 0xFFFFFFFF), min(self.used_bytes, 0xFFFFFFFF)
        self.used = 0
        self.used_bytes = 0
        self.due = False
        return found


cdef class Columns:
    cdef list parts                 # of Chunk, which stay as they are
    cdef type kind
    cdef readonly object source
    cdef readonly Py_ssize_t count

    def records(self):
        cdef Chunk part, chunk
        cdef uint64_t size = 0
        cdef list found = []
        for part in self.parts:
            chunk = part.copied()
            while chunk.left:
                found.append(chunk.next(self.kind, self.source, &size))
        return found

    def bodies(self):
        return self.column(BODY)

    def positions(self):
        return self.column(POSITION)

    def timestamps_ms(self):
        return self.column(TIMESTAMP)

    cdef list column(self, int which):
        cdef Chunk part, chunk
        cdef Spot spot
        cdef const uint8_t* body
        cdef list found = []
        for part in self.parts:
            chunk = part.copied()
            while chunk.left:
                chunk.look(&spot)
                if which == BODY:
                    body = spot.key + spot.key_size + spot.props_size
                    found.append(body[:spot.body_size])
                elif which == POSITION:
                    found.append(spot.position)
                else:
                    found.append(spot.timestamp_ms)
        return found

    def ranges(self):
        cdef Chunk part
        return [(part.tag, part.tag + part.left - 1) for part in self.parts]
