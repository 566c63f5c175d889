"""The deliverer of one connection. Words in _deliver.pyi."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from penstock.log_core._batch cimport Batch, RecordHeader
from penstock.protocols.mqtt._ids cimport Flight, Inflight
from penstock.log_core._appender cimport Appender
from penstock.protocols.outbuffer cimport OutBuffer
from penstock.subscriptions._cursor cimport Cursor
from penstock.subscriptions._straight cimport Served, Straight
from penstock.subscriptions._turns cimport Sink


cdef class Choice:
    cdef readonly int qos
    cdef readonly bint retain_as_published
    cdef readonly bytes ids         # encoded subscription identifier properties
    cdef readonly Choice own        # what holds for the session's own messages: itself without no-local, or None


cdef struct Message:                # one record, taken apart for MQTT
    const uint8_t* topic
    const uint8_t* block
    const uint8_t* body
    Py_ssize_t topic_size, block_size, body_size
    int qos
    bint retain
    uint32_t expiry_at              # where the expiry's value stands in the block; 0 = none
    uint32_t remaining_s


cdef class Deliverer:
    cdef public int version
    cdef public uint32_t max_packet, origin, alias_maximum
    cdef dict aliases
    cdef public uint64_t skip_qos0_before
    cdef public bint persistent
    cdef public Inflight inflight
    cdef public OutBuffer out, held
    cdef readonly uint64_t delivered, delivered_bytes, skipped
    cdef readonly bint orphans
    cdef dict choices
    cdef list pubrels, claimed
    cdef object choose, translate
    cdef uint32_t memo_match
    cdef Choice memo_choice
    cdef bytes foreign_key, foreign_props, foreign_topic, foreign_block
    cdef int foreign_qos

    cdef Choice choice_of(self, Cursor cursor, uint32_t match)
    cdef int read(self, Batch batch, uint32_t index, int64_t now_ms, bint started, Message* message) except -1
    cdef uint32_t alias_of(self, Message* message, bint* known) except? 0
    cdef Py_ssize_t encode(self, OutBuffer out, Message* message, int first, uint32_t packet_id, bytes ids) except -1
    cdef bint too_large(self, Message* message, bytes ids) noexcept
    cdef drop(self, Cursor cursor, uint64_t seq, Flight* flight, uint32_t packet_id)
    cdef Py_ssize_t shared_run(self, Cursor cursor, Choice choice, Py_ssize_t room, int64_t now_ms) except -1
    cpdef Py_ssize_t deliver(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step, Py_ssize_t room,
                             int64_t now_ms, Choice shared=*, dict claims=*) except -1


cdef class SessionWay(Straight):
    cdef Deliverer deliverer
    cdef Cursor cursor
    cdef Appender appender
    cdef Sink sink
    cdef Served queue
    cdef object after
    cdef public bint needs_ids
