"""The scanner of one connection of AMQP 1.0. The words are in _scanner.pyx."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t

from penstock.log_core.batch._appender cimport Appender
from penstock.protocols.amqp10.channel._core cimport ChannelCore, ConnectionCore, IncomingCore
from penstock.router.routes._routes cimport RouteTable


cdef class Scanner(ConnectionCore):
    cdef public RouteTable table        # where messages go
    cdef Appender appender
    cdef bytes user                     # a message's user-id must be this
    cdef list sessions                  # by channel
    cdef ChannelCore newest             # that of the last frame; None: look in `sessions`
    cdef public uint32_t frame_most     # of frames of the peer
    cdef public bint stop_transfers     # what is in front of the next transfer is handled, and no more
    cdef Py_ssize_t done                # bytes that a `read` which gave -1 took

    cdef Py_ssize_t scan_bytes(self, const uint8_t* p, Py_ssize_t at, Py_ssize_t size) except -1
    cdef bint frame(self, ChannelCore channel, const uint8_t* p, const uint8_t* end) except -1
    cdef bint transfer(self, ChannelCore channel, const uint8_t* p, const uint8_t* end) except -1
    cdef bint publish(
        self, ChannelCore channel, IncomingCore link, uint32_t delivery, bint settled, const uint8_t* p, Py_ssize_t size
    ) except -1
    cdef bint disposition(self, ChannelCore channel, const uint8_t* p, const uint8_t* end) except -1
    cdef bint flow(self, ChannelCore channel, const uint8_t* p, const uint8_t* end) except -1
