"""Retained messages, as each publish keeps one. Words in _retained.pyi."""

from libc.stdint cimport int64_t


cdef class Level:
    cdef readonly dict children
    cdef public bytes row
    cdef public long long set


cdef class RetainedLevels:
    cdef readonly bytes _wire
    cdef bytes row_head
    cdef readonly object _tables
    cdef public Level _root
    cdef public Py_ssize_t _count
    cdef public long long _begun

    cpdef unsigned long long keep(self, bytes topic, int enc, bytes props, bytes body, int flags, int priority,
                                  int64_t stored_ms, int64_t expires_ms) except? 0
    cdef bytes put_in(self, bytes topic, bytes row)
