# cython: auto_pickle=False
"""Callbacks that wait for an LSN to be written, or to be durable. Each tick asks whether there are any.

A callback that raises is logged; the others are called all the same.
"""

import logging
from bisect import insort
from collections import deque

from penstock.log_core.errors import LogFailed

logger = logging.getLogger("penstock.log")


cdef class Waiters:
    def __init__(self):
        self.waiting = deque()

    @property
    def first_lsn(self):
        return self.waiting[0][0]

    def add(self, uint64_t lsn, callback not None):
        self.serial += 1
        entry = (lsn, self.serial, callback)
        if self.count == 0 or <uint64_t>self.waiting[self.count - 1][0] <= lsn:
            self.waiting.append(entry)
        else:
            insort(self.waiting, entry)
        self.count += 1

    cpdef reached(self, uint64_t lsn):
        while self.count and <uint64_t>self.waiting[0][0] <= lsn:
            self.tell(True)

    cpdef fail(self):
        while self.count:
            self.tell(False)

    cdef int tell(self, bint ok) except -1:
        self.count -= 1
        callback = self.waiting.popleft()[2]
        try:
            callback(ok)
        except LogFailed:
            pass                        # it wanted to write something in its turn; the log has said that it failed
        except Exception:
            logger.exception("a callback that waited for the log failed; the others go on")
        return 0
