"""When a queue is served. Words in _served_queue.pyi."""

from libc.stdint cimport uint64_t

from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.dispatch._consumers cimport Consumers
from penstock.subscriptions.tick._fast_path cimport Served


cdef class ServedQueue(Served):
    cdef public object _queues, kind, name, vhost, owner, arguments, data, looks
    cdef public Cursor cursor
    cdef public Consumers _consumers
    cdef public set _watching
    cdef public uint64_t qid, got, unasked_got, purged, dropped
    cdef public bint _sole, _awaiting, _promises, auto_delete, deleted

    cdef int find_fast_path(self) except -1
    cdef bint serves_somebody(self) except -1
    cdef int hand_out(self) except -1
    cdef bint serve_consumers(self) except -1
