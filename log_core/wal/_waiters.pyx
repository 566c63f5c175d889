# cython: auto_pickle=False
"""Callbacks that wait for an LSN to be written, or to be durable. Each tick asks whether there are any.

A callback that raises is logged; the others are called all the same.
"""

import logging

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport free, malloc

from penstock.log_core.errors import LogFailed

logger = logging.getLogger("penstock.log")

cdef enum:
    ROOM_FIRST = 64


cdef class Awaiting:
    cdef int reached(self, bint ok) except -1:
        raise NotImplementedError


cdef class Waiters:
    def __dealloc__(self):
        cdef Py_ssize_t k
        for k in range(self.count):
            Py_DECREF(<object>self.at(k).who)
        free(self.ring)

    @property
    def first_lsn(self):
        if self.count == 0:
            raise IndexError("nobody waits")
        return self.at(0).lsn

    def add(self, uint64_t lsn, callback not None):
        self.put(lsn, callback)

    cdef int put(self, uint64_t lsn, object who) except -1:
        cdef Py_ssize_t k = self.count
        if self.ring == NULL or <uint64_t>self.count > self.mask:
            self.grow()
        # As a rule at the end. Behind those of the same LSN.
        while k and self.at(k - 1).lsn > lsn:
            self.at(k)[0] = self.at(k - 1)[0]
            k -= 1
        Py_INCREF(who)
        self.at(k).lsn = lsn
        self.at(k).who = <PyObject*>who
        self.count += 1
        return 0

    cdef int grow(self) except -1:
        cdef uint64_t room = ROOM_FIRST if self.ring == NULL else 2 * (self.mask + 1)
        cdef Py_ssize_t k
        cdef Waiter* ring = <Waiter*>malloc(room * sizeof(Waiter))
        if ring == NULL:
            raise MemoryError
        for k in range(self.count):
            ring[k] = self.at(k)[0]
        free(self.ring)
        self.ring = ring
        self.mask = room - 1
        self.first = 0
        return 0

    cpdef reached(self, uint64_t lsn):
        while self.count and self.at(0).lsn <= lsn:
            self.tell_first(True)

    cpdef fail(self):
        while self.count:
            self.tell_first(False)

    cdef int tell_first(self, bint ok) except -1:
        """Tell who waits for the lowest LSN, who may begin to wait anew."""
        who = <object>self.at(0).who
        Py_DECREF(who)
        self.first += 1
        self.count -= 1
        try:
            if isinstance(who, Awaiting):
                (<Awaiting>who).reached(ok)
            else:
                who(ok)
        except LogFailed:
            pass                        # it wanted to write something in its turn; the log has said that it failed
        except Exception:
            logger.exception("a callback that waited for the log failed; the others go on")
        return 0
