"""Timers of wills and session ends. Words in _timers.pyi."""

from penstock.protocols.mqtt.clients._client cimport ClientFields


cdef class Timers:
    cdef list near                  # a heap
    cdef dict far                   # clients by slot
    cdef list slots                 # the keys of `far`, as a heap

    cpdef bint arm(self, double at, ClientFields client, double now) except -1
    cpdef next(self)
