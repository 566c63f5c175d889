"""The native protocol's kernel: frames in, each to the side that it is for. Words in _codec.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.log_core.batch._appender cimport Appender
from penstock.protocols.native.codec._consumer cimport Outgoing
from penstock.protocols.native.codec._producer cimport Confirms
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.router.routes._routes cimport RouteTable


cdef class Codec:
    cdef readonly OutBuffer out
    cdef readonly Outgoing outgoing
    cdef Appender appender
    cdef public RouteTable table        # of the user who is logged in; None before
    cdef public bytes user
    cdef public bint tells_routed       # confirms say which batches went nowhere
    cdef public uint32_t frame_max
    cdef readonly Py_ssize_t want       # whole size of the incomplete frame in front; 0: not known, or it fits
    cdef public bint halted             # no further frame is looked at
    cdef public bint stalled            # so is `halted`, by a frame for a handle in `opening`
    cdef readonly set opening           # handles of consumers that are being opened
    cdef public bint stop_publishes     # what is in front of the next PRODUCE is handled, and no more
    cdef readonly bint stopped          # that one has come
    cdef readonly bint more             # frames wait, for what came before them was enough for a turn
    cdef Py_ssize_t spent               # of TURN_BYTES
    cdef object host
    cdef dict producers, consumers
    cdef Confirms confirms
    cdef readonly uint64_t published, confirmed

    cdef bint must_wait(self, uint8_t kind, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1
    cdef int handle(self, uint8_t kind, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1
    cdef int produce(self, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1
    cdef int settle(self, uint8_t kind, uint32_t id, const uint8_t* p, Py_ssize_t n) except -1
