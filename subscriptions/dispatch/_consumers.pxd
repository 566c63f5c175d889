"""The consumers of one queue. Words in _consumers.pyi."""


cdef class Turn:
    cdef object _ring
    cdef readonly list consumers
    cdef readonly object least
    cdef readonly bint whole


cdef class Consumers:
    cdef bint _ranked
    cdef dict _levels               # by rank, the lowest first; None: one sits alone
    cdef list _awake                # the ranks with somebody in the ring, ascending; None while one sits alone
    cdef public object active
    cdef readonly Py_ssize_t count

    cdef bint has(self, consumer) except -1
    cdef object _rank(self, consumer)
    cpdef add(self, consumer)
    cdef int _sit(self, consumer) except -1
    cpdef bint remove(self, consumer) except -1
    cpdef rouse(self, consumer=*)
    cdef int _wake(self, rank, level, list consumers) except -1
    cdef int _doze(self, rank) except -1
    cdef int _sleep(self, rank, level, consumer) except -1
