"""See _messages.pyx."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t

from penstock.protocols.amqp10.codec._simple cimport Buffer
from penstock.protocols.net.outbuffer cimport OutBuffer


cdef class Messages:
    cdef Buffer _bytes
    cdef Py_ssize_t* _ends          # of each message
    cdef Py_ssize_t _room           # messages that there is room for
    cdef Py_ssize_t _count
    cdef Py_ssize_t _first          # the first one that has not gone
    cdef Py_ssize_t start(self, Py_ssize_t number) noexcept
    cdef int add(self, const uint8_t* p, Py_ssize_t n) except -1
    cdef int close(self) except -1
    cdef bytes drop_part(self)
    cdef bytes message(self, Py_ssize_t number)


cdef class Arriving:
    cdef uint32_t _frame_max
    cdef readonly Messages messages
    cdef readonly list runs
    cdef readonly Py_ssize_t frames
    cdef bint _gathering            # parts of a message came, and not its last one
    cdef uint32_t _number           # the delivery-id of the message that is under way
    cdef uint32_t _first            # of the run that is open: its first
    cdef Py_ssize_t _run            # and how many it has
    cdef int _part(self, uint32_t number, bint more, const uint8_t* p, Py_ssize_t n) except -1
    cdef int _close_run(self) except -1


cdef class Departing:
    cdef uint16_t _channel
    cdef uint32_t _handle, _frame_max
    cdef bint _settled
    cdef OutBuffer _out
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t frames
