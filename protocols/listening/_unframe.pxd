"""WebSocket frames. Words in _unframe.pyi."""

from libc.stdint cimport uint8_t, uint64_t

from penstock.protocols.net.outbuffer cimport OutBuffer


cdef class Unframer:
    cdef uint8_t _head[14]
    cdef int _have              # bytes of the header so far
    cdef bint _inside           # in a payload; `_left` of it are to come
    cdef uint64_t _left
    cdef uint8_t _mask[4]
    cdef unsigned int _at       # of the mask: the next payload byte is masked with _mask[_at]
    cdef int _opcode
    cdef bint _message          # a message was begun and not yet finished
    cdef uint8_t _control[125]
    cdef int _control_size
    cdef public object ping
    cdef readonly object close
    cdef readonly object fault

    cdef Py_ssize_t unframe(self, uint8_t* bytes_, Py_ssize_t size) except -1
    cdef Py_ssize_t _header(self, const uint8_t* data, Py_ssize_t size) except -1
    cdef bint _opening(self) except -1
    cdef int _begin(self, int need) except -1
    cdef bint _control_done(self) except -1
    cdef bint _fail(self, int code, str text) except -1
    cdef void _unmask(self, uint8_t* to, const uint8_t* data, Py_ssize_t n) noexcept


cdef class PacketFramer:
    cdef int _state, _shift
    cdef Py_ssize_t _rest       # of the packet's body, in _LENGTH what is known of it

    cdef int frame_into(self, const uint8_t* data, Py_ssize_t n, OutBuffer out) except -1


cdef int write_frame(const uint8_t* data, Py_ssize_t n, OutBuffer out) except -1
