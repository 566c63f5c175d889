"""See _relay.pyx."""

from libc.stdint cimport uint8_t, uint16_t, uint64_t

from penstock.protocols.links.amqp._header_edit cimport HeaderEdit
from penstock.protocols.net.outbuffer cimport OutBuffer


cdef class Relay:
    cdef uint16_t _channel
    cdef bytes _publish             # the whole frame of each message, or None
    cdef bytes _exchange            # short strings; None: the message's own
    cdef bytes _key
    cdef HeaderEdit _change
    cdef readonly Py_ssize_t left
    cdef readonly bytes out
    cdef readonly list others
    cdef readonly list runs
    cdef readonly list dropped
    cdef bint _skipping             # bodies are of a message that does not pass
    cdef OutBuffer _out
    cdef uint64_t _tag              # of the run that is open: its first
    cdef Py_ssize_t _run            # and how many it has
    cdef Py_ssize_t _deliver(self, const uint8_t* start, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size) except -2
    cdef int _put_publish(self, const uint8_t* exchange, const uint8_t* key) except -1
    cdef int _put(self, const uint8_t* data, Py_ssize_t size) except -1
    cdef int _close_run(self) except -1
