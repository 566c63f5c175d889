"""The scanner of one AMQP connection. The words are in _codec.pyx."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from penstock.log_core.batch._appender cimport Appender
from penstock.protocols.amqp.codec._channel cimport Channel
from penstock.protocols.net._stream cimport QuickReader
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.router.routes._routes cimport RouteTable


cdef class Codec(QuickReader):
    cdef readonly OutBuffer out
    cdef RouteTable table
    cdef Appender appender
    cdef bytes user
    cdef dict channels
    cdef Channel memo                   # the channel of the last frame
    cdef public uint32_t frame_max      # whole frames, header and end included
    cdef readonly uint64_t message_max
    cdef readonly uint64_t published
    cdef uint64_t sizes[9]              # publishes by the size of their body: BOUNDS, and above
    cdef readonly uint64_t size_sum
    cdef readonly uint64_t held_max
    cdef uint64_t held                  # bytes of messages under way
    cdef uint64_t written_wanted, synced_wanted
    cdef list awaiting                  # channels with unconfirmed publishes
    cdef set touched                    # channels that settled something and have starved consumers
    cdef object buffer                  # what is being scanned, kept alive
    cdef const uint8_t* p
    cdef Py_ssize_t at, end
    cdef public bint stop_publishes     # what is in front of the next basic.publish is handled, and no more
    cdef readonly bint stopped          # that one has come
    cdef object found                   # the event that `read` stopped at; None: none
    cdef object raised                  # what it stopped at was an error

    cpdef feed_starved(self)
    cpdef bint confirm(self, uint64_t written, uint64_t synced) except -1
    cdef Channel channel_of(self, uint16_t number)
    cdef int expect(self, Channel channel, uint64_t lsn, bint sync) except -1
    cdef object step(self)
    cdef object fault(self, Channel channel, uint16_t number, str name, int kind, const uint8_t* p, Py_ssize_t n,
                      uint64_t detail)
    cdef object publish(self, Channel channel, const uint8_t* p, Py_ssize_t n, Py_ssize_t next)
    cdef object header(self, Channel channel, const uint8_t* p, Py_ssize_t n)
    cdef object body(self, Channel channel, const uint8_t* p, Py_ssize_t n)
    cdef object complete(self, Channel channel, const uint8_t* key, uint16_t key_size, uint8_t bits,
                         const uint8_t* props, uint32_t props_size, const uint8_t* body, uint64_t body_size)
    cdef void count(self, Channel channel, uint64_t body_size) noexcept
    cdef object settle(self, Channel channel, uint16_t method, const uint8_t* p, Py_ssize_t n)
