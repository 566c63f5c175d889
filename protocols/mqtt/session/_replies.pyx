# cython: auto_pickle=False, nonecheck=True
"""Replies that wait for the disk, in one queue with those behind them, so that they leave in order."""

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcpy

from penstock.log_core.wal._writer cimport Writer
from penstock.protocols.net.outbuffer cimport OutBuffer


cdef int write_bytes(OutBuffer out, bytes data) except -1:
    cdef Py_ssize_t size = len(data)        # raises for None
    if size:
        memcpy(out.reserve(size), PyBytes_AS_STRING(data), size)
        out.commit(size)
    return 0


cdef class Replies:
    def __init__(self, host not None, Writer log not None):
        self.host = host
        self.log = log
        # An empty deque has 600 bytes: a connection that waits for nothing has none, here and elsewhere.
        self.waiting = None

    cpdef send(self, bytes data, unsigned long long lsn=0, then=None):
        self.host.dirty()
        self.sent += 1
        if self.waiting is None and lsn <= self.log.synced_lsn:
            write_bytes(self.host.out, data)
            if then is not None:
                then()
            return
        if self.waiting is None:
            self.waiting = deque()
        self.waiting.append((lsn, data, then))
        if lsn > self.awaited:
            self.awaited = lsn
            self.host.await_synced(lsn)

    cpdef release(self):
        cdef unsigned long long synced = self.log.synced_lsn
        waiting = self.waiting
        if waiting is None:
            return
        # The call after one may end the connection, which clears them.
        while self.waiting is waiting and waiting and <unsigned long long>waiting[0][0] <= synced:
            _, data, then = waiting.popleft()
            write_bytes(self.host.out, data)
            if then is not None:
                then()
        if not waiting and self.waiting is waiting:
            self.waiting = None

    cpdef clear(self):
        self.waiting = None
