"""The deliverer of one connection. Words in _deliver.pyi."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.log_core.batch._appender cimport Appender
from penstock.log_core.batch._batch cimport Batch
from penstock.protocols.mqtt.codec._packet_ids cimport Flight, Inflight
from penstock.protocols.mqtt.codec._publish cimport PublishEncoder
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.tick._fast_path cimport Served, FastPath
from penstock.subscriptions.tick._tick cimport Sink


cdef class Choice:
    cdef readonly int qos
    cdef readonly bint retain_as_published
    cdef readonly bytes ids         # encoded subscription identifier properties
    cdef readonly bint no_local     # `own` holds for the session's own messages: something less, or None
    cdef readonly Choice own


cdef class Deliverer(PublishEncoder):
    cdef public uint32_t origin
    cdef public uint64_t skip_qos0_before
    cdef public bint persistent
    cdef public Inflight inflight
    cdef public OutBuffer held
    cdef readonly uint64_t delivered, skipped
    cdef readonly bint orphans
    cdef dict choices
    cdef list pubrels, claimed
    cdef object choose
    cdef readonly object guard      # asked about a topic before it is delivered; None: nobody
    cdef dict verdicts
    cdef uint32_t memo_match
    cdef Choice memo_choice

    cdef Choice choice_of(self, Cursor cursor, uint32_t match)
    cdef bint is_readable(self, bytes topic) except -1
    cdef drop(self, Cursor cursor, uint64_t seq, Flight* flight, uint32_t packet_id)
    cdef Py_ssize_t shared_run(self, Cursor cursor, Choice choice, Py_ssize_t capacity, int64_t now_ms) except -1
    cpdef Py_ssize_t deliver(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step, Py_ssize_t capacity,
                             int64_t now_ms, Choice shared=*, dict claims=*) except -1


cdef class SessionFastPath(FastPath):
    cdef Deliverer deliverer
    cdef Appender appender
    cdef Sink sink
    cdef object after
    cdef public bint needs_ids
