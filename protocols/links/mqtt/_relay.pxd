"""See _relay.pyx."""

from libc.stdint cimport uint8_t, uint16_t

from penstock.protocols.net.outbuffer cimport OutBuffer


cdef class InFlight:
    cdef readonly Py_ssize_t most, count
    cdef uint8_t _ids[8192]         # a bit for each packet id that is not answered for good
    cdef object _held               # deque of (packet id, packet) that wait until there are fewer
    cdef int send(self, OutBuffer out, Py_ssize_t start, uint16_t packet_id) except -1
    cdef int answered(self, OutBuffer out, uint16_t packet_id) except -1


cdef class Relay:
    cdef InFlight _back             # of the source, which answers
    cdef InFlight _on               # of the target
    cdef bint _from_5, _to_5, _keeps_retain
    cdef Py_ssize_t _most           # bytes of a packet that the target takes
    cdef object _name_of
    cdef dict _names                # of topics at the target, by topic; None: it does not cross
    cdef bytes _topic, _name        # the last ones
    cdef OutBuffer _out, _answers
    cdef readonly bytes out, answers
    cdef readonly Py_ssize_t forwarded, unnamed, too_large
    cdef readonly list reasons
    cdef readonly int ended
    cdef int _publish(self, const uint8_t* p, Py_ssize_t size, Py_ssize_t at) except -1
    cdef int _named(self, const uint8_t* topic, Py_ssize_t size) except -1
    cdef int _answer(self, const uint8_t* p, Py_ssize_t size, Py_ssize_t at) except -1
    cdef int _refuse(self, uint8_t qos, uint16_t packet_id) except -1
