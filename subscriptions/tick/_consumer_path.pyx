# cython: auto_pickle=False
"""The fast path from a queue to its only consumer; see `_fast_path`."""

from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._take_result cimport TAKEN
from penstock.subscriptions.tick._fast_path cimport CAUGHT_UP, REST, STARVED, Served, FastPath


cdef class DirectConsumer:
    cdef Py_ssize_t room(self) except -1:
        raise NotImplementedError

    cdef Py_ssize_t put(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step) except -1:
        raise NotImplementedError

    def credit(self):
        return self.room()

    def deliver(self, Cursor cursor not None, Py_ssize_t first, Py_ssize_t step):
        return self.put(cursor, first, step)

    cdef int send_out(self) except -1:
        return 0


cdef class ConsumerFastPath(FastPath):
    cdef DirectConsumer consumer
    cdef Py_ssize_t outstanding_max

    def __init__(self, DirectConsumer consumer not None, Served queue not None):
        FastPath.__init__(self, queue)
        self.consumer = consumer
        self.outstanding_max = queue.outstanding_max

    cdef int serve(self, bint at_once) except -1:
        cdef DirectConsumer consumer = self.consumer
        cdef Py_ssize_t wanted, n, took
        cdef unsigned long long settled
        if self.cursor.scheduled:
            return STARVED              # it has its turn in any case
        if self.cursor.outstanding >= self.outstanding_max or not consumer.attached:
            return REST
        wanted = consumer.room()
        if wanted <= 0:
            return STARVED
        n = self.cursor.take(wanted)
        if n:
            settled = self.cursor.settled
            took = consumer.put(self.cursor, 0, 1)
            if at_once and took:
                consumer.send_out()
            self.queue.delivered += took
            self.queue.unasked += self.cursor.settled - settled
            if took < n:
                self.cursor.put_back(0, 1, took)
                return REST
        if n < wanted and not (TAKEN.more or TAKEN.unwritten or TAKEN.cold or TAKEN.cold_feed != NULL):
            return CAUGHT_UP
        return REST
