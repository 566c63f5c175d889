"""Layers between a socket and a stream. Words in _layer.pyi."""

from libc.stdint cimport uint8_t

from penstock.protocols.net._stream cimport Stream, Wire


cdef class Layer(Wire):             # read into as a stream is, written to as a socket is
    cdef public Wire below
    cdef Stream stream              # what is above, if no other layer is
    cdef Layer above

    cdef uint8_t* place(self, Py_ssize_t* capacity) except NULL
    cdef int arrived(self, Py_ssize_t nbytes) except -1
    cdef uint8_t* place_above(self, Py_ssize_t* capacity) except NULL
    cdef int hand_up(self, Py_ssize_t nbytes) except -1
