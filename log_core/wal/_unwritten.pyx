# cython: auto_pickle=False
"""The batches that were appended and are not written yet, and who may see them.

As a rule a batch is found by cursors once it is written. Before that `publish` puts it into the tail cache
early: a message that comes alone goes to its consumers first (docs/adr/0003-lone-messages.md).

One that holds back does neither: batches, and the feeds that they were pushed to, wait until they are durable.
Then nobody has seen a message that another owner of the log lacks, and that its publisher sends once more.
"""

from cpython.list cimport PyList_GET_SIZE

from penstock.log_core.batch._appender cimport Appender
from penstock.log_core.batch._batch cimport Batch
from penstock.log_core.reading._tail cimport Cache


cdef class Unwritten:
    def __init__(self, Appender appender not None, Cache cache not None, bint holds_back=False):
        self.appender = appender
        self.cache = cache
        self.published = []
        self.holds_back = holds_back
        self.held = []

    cpdef bint anything(self):
        return self.appender.tick_ms != 0 or PyList_GET_SIZE(self.appender.closed) > 0

    cpdef publish(self):
        cdef list closed
        if self.holds_back:
            return
        closed = self.appender.take_closed()
        self.cache.add_written(closed)
        self.published += closed
        self.published_lsn = self.appender.next_lsn - 1

    cpdef list take_dirty(self):
        cdef list dirty = self.appender.take_dirty()
        if not self.holds_back:
            return dirty
        if dirty:
            self.held.append((self.appender.next_lsn - 1, dirty))
        dirty = []
        while self.held and <uint64_t>self.held[0][0] <= self.shown_lsn:
            dirty += self.held.pop(0)[1]
        return dirty

    cpdef list take(self):
        cdef list batches = self.published
        self.published = []
        batches += self.appender.take_closed()
        return batches

    cpdef written(self, list batches):
        cdef Batch batch
        self.written_lsn = self.appender.next_lsn - 1
        if self.holds_back:
            self.cache.add_unseen(batches)
            return
        if batches and (<Batch>batches[0]).base_lsn <= self.published_lsn:
            batches = [batch for batch in batches if batch.base_lsn > self.published_lsn]
        self.cache.add_written(batches)

    cpdef show(self, uint64_t lsn):
        self.shown_lsn = lsn
        self.cache.show(lsn)
        if self.held and self.on_shown is not None and <uint64_t>self.held[0][0] <= lsn:
            self.on_shown()
