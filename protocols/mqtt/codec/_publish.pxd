"""Encoding one PUBLISH. Words in _publish.pyi."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport Batch
from penstock.protocols.net.outbuffer cimport OutBuffer


cdef struct Message:                # one record, taken apart for MQTT
    const uint8_t* topic
    const uint8_t* block
    const uint8_t* body
    Py_ssize_t topic_size, block_size, body_size
    int qos
    bint retain
    uint32_t expiry_at              # where the expiry's value stands in the block; 0 = none
    uint32_t remaining_s


cdef class PublishEncoder:
    cdef public int version
    cdef public uint32_t max_packet, alias_maximum
    cdef public OutBuffer out
    cdef readonly uint64_t delivered_bytes
    cdef dict aliases
    cdef object translate
    cdef bytes foreign_key, foreign_props, foreign_topic, foreign_block

    cdef int read(self, Batch batch, uint32_t index, int64_t now_ms, bint started, Message* message) except -1
    cdef Py_ssize_t encode(self, OutBuffer out, Message* message, int first, uint32_t packet_id, bytes ids) except -1
    cdef uint32_t alias_of(self, Message* message, bint* known) except? 0
    cdef bint too_large(self, Message* message, bytes ids) noexcept
