# cython: auto_pickle=False
"""Who waits for an LSN to be written, or to be durable. Each turn asks whether there is anybody."""

from bisect import insort
from collections import deque


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
            self.pop()(True)

    cpdef fail(self):
        while self.count:
            self.pop()(False)

    cdef object pop(self):
        self.count -= 1
        return self.waiting.popleft()[2]
