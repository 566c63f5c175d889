"""The scanner of one connection. Words in _scan.pyi."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from penstock.log_core.batch._appender cimport Appender
from penstock.protocols.mqtt.codec._packet_ids cimport Inflight, Received
from penstock.protocols.net._stream cimport QuickReader
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.router.routes._routes cimport Route, RouteTable

cdef enum:                      # the answers of `scan`
    _MORE = 0
    _PACKET = 1
    _PUBLISH = 2
    _RETAIN = 3
    _UNIT = 4
    _FAULT = 5
    _GO_ON = 6

cdef struct Answer:             # one acknowledgement that waits for its turn
    uint64_t lsn                # what it waits for; LATER = not known yet
    uint16_t packet_id
    uint8_t kind                # first byte of the packet
    uint8_t reason
    uint8_t wait


cdef class Scanner(QuickReader):
    cdef public int version
    cdef public uint32_t max_packet, receive_maximum, alias_maximum, max_levels, origin
    cdef public bint unit, persistent
    cdef public bint stop_publishes     # what is in front of the next PUBLISH is handled, and no more
    cdef readonly bint stopped          # that one has come
    cdef public dict texts
    cdef public RouteTable table
    cdef public Inflight inflight
    cdef public Received received
    cdef Appender appender

    cdef readonly Py_ssize_t at, start, stop
    cdef int found                  # what `read` stopped at; -1 = nothing is left to be taken up
    cdef readonly int kind, flags, fault
    cdef readonly str complaint
    cdef readonly int qos, wait
    cdef readonly bint retain, duplicate
    cdef readonly uint32_t packet_id, ttl_ms
    cdef readonly bytes topic, block
    cdef readonly Route route
    cdef readonly uint64_t lsn

    cdef readonly uint64_t published, published_bytes, acknowledged, completed
    cdef readonly bint unstamped
    cdef readonly Py_ssize_t used

    cdef list aliases
    cdef uint8_t* memo
    cdef Py_ssize_t memo_size, memo_capacity
    cdef uint8_t* scratch
    cdef Py_ssize_t scratch_capacity

    cdef Answer* ring
    cdef uint64_t mask, head, tail, stamp_from

    cdef bint is_quiet(self) noexcept
    cpdef raise_last(self, uint64_t lsn)
    cpdef uint64_t release(self, uint64_t written, uint64_t synced, OutBuffer out) except? 0xFFFFFFFFFFFFFFFF
    cdef int run(self, const uint8_t* p, Py_ssize_t at, Py_ssize_t end) except -1
    cdef int refuse(self, int fault, str complaint)
    cdef int publish(self, const uint8_t* data, Py_ssize_t at, Py_ssize_t end) except -1
    cdef note(self, const uint8_t* data, const uint8_t* topic, Py_ssize_t topic_size, const uint8_t* block,
              Py_ssize_t block_size, Py_ssize_t at, int qos, uint32_t packet_id, uint32_t ttl_ms, Route route,
              uint64_t lsn)
    cdef int answer_from_peer(self, const uint8_t* data, Py_ssize_t at, Py_ssize_t end) except -1
    cdef int check_topic(self, const uint8_t* topic, Py_ssize_t size) except -1
    cdef int push(self, uint8_t kind, uint32_t packet_id, int reason, int wait, uint64_t lsn) except -1
