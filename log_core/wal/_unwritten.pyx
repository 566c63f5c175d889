# cython: auto_pickle=False
"""The batches that were appended and are not written yet, and who may see them.

As a rule a batch is found by cursors once it is written. Before that `publish` puts it into the tail cache
early: a message that comes alone goes to its consumers first (docs/adr/0003-lone-messages.md).
"""

from cpython.list cimport PyList_GET_SIZE

from penstock.log_core.batch._appender cimport Appender
from penstock.log_core.batch._batch cimport Batch
from penstock.log_core.reading._tail cimport Cache


cdef class Unwritten:
    def __init__(self, Appender appender not None, Cache cache not None):
        self.appender = appender
        self.cache = cache
        self.published = []

    cpdef bint anything(self):
        return self.appender.tick_ms != 0 or PyList_GET_SIZE(self.appender.closed) > 0

    cpdef publish(self):
        cdef list closed = self.appender.take_closed()
        self.cache.add_written(closed)
        self.published += closed
        self.published_lsn = self.appender.next_lsn - 1

    cpdef list take_dirty(self):
        return self.appender.take_dirty()

    cpdef list take(self):
        cdef list batches = self.published
        self.published = []
        batches += self.appender.take_closed()
        return batches

    cpdef written(self, list batches):
        cdef Batch batch
        self.written_lsn = self.appender.next_lsn - 1
        if batches and (<Batch>batches[0]).base_lsn <= self.published_lsn:
            batches = [batch for batch in batches if batch.base_lsn > self.published_lsn]
        self.cache.add_written(batches)
