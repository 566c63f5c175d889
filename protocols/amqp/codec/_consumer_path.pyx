# cython: auto_pickle=False
"""The fast path from a queue to its only consumer; see `subscriptions.tick._fast_path`."""

from penstock.protocols.amqp.codec._channel cimport Consumer
from penstock.subscriptions.tick._fast_path cimport CAUGHT_UP, REST, STARVED, Served, FastPath
from penstock.subscriptions.cursor._take_result cimport TAKEN


cdef class ConsumerFastPath(FastPath):
    cdef Consumer consumer
    cdef Py_ssize_t outstanding_max

    def __init__(self, Consumer consumer not None, Served queue not None):
        FastPath.__init__(self, queue)
        self.consumer = consumer
        self.outstanding_max = queue.outstanding_max

    cdef int serve(self, bint at_once) except -1:
        cdef Consumer consumer = self.consumer
        cdef Py_ssize_t wanted, n, took
        cdef unsigned long long settled
        if self.cursor.scheduled:
            return STARVED              # it has its turn in any case
        if self.cursor.outstanding >= self.outstanding_max or not consumer.attached:
            return REST
        wanted = consumer.credit()
        if wanted <= 0:
            return STARVED
        n = self.cursor.take(wanted)
        if n:
            settled = self.cursor.settled
            took = consumer.deliver(self.cursor, 0, 1)
            if at_once and took and consumer.channel.sink is not None:
                consumer.channel.sink.send_out()
            self.queue.delivered += took
            self.queue.unasked += self.cursor.settled - settled
            if took < n:
                self.cursor.put_back(0, 1, took)
                return REST
        if n < wanted and not (TAKEN.more or TAKEN.unwritten or TAKEN.cold or TAKEN.cold_feed != NULL):
            return CAUGHT_UP
        return REST
