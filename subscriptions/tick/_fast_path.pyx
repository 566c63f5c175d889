# cython: auto_pickle=False
"""The fast path of a message from its feeds to its consumer.

The ordinary way - wake the queues at the feeds, take, encode, send - touches a dozen Python functions for each queue,
which is most of what a broker does for a message that comes alone, or for each of a thousand queues that get one
message in a turn. So here it is one piece of compiled code for the ordinary case. All other queues are woken,
and served by the turn as always.
"""

from penstock.log_core.feeds._feed cimport Feed
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._events cimport DELIVER, EVENTS

cdef enum:
    CHECK_EACH = 16                 # queues between two looks at the clock


cdef class FastPath:
    def __init__(self, Served queue not None):
        self.queue = queue
        self.cursor = queue.cursor
        self.ready = queue.tick.ready

    cdef int serve(self, bint at_once) except -1:
        return REST

    cdef int serve_all(self, bint at_once) except -1:
        """`serve`, if the queue is an ordinary one now."""
        cdef Served queue = self.queue
        cdef int found
        # Rules, waiting getters and events of deliveries are the turn's business.
        if queue._limits is not None or queue._getters is not None or queue._loading or EVENTS.kinds >> DELIVER & 1:
            return REST
        try:
            found = self.serve(at_once)
            if found != REST:
                self.cursor.awaited = found == CAUGHT_UP
            return found
        except Exception:
            (<object>queue).consumer_failed((<object>queue).active, 0, 1)     # detached: it waits nowhere, or was woken
            return STARVED

    cdef int wake(self) except -1:
        """Its consumer has credit again."""
        if not self.cursor.scheduled:
            self.cursor.scheduled = True
            self.ready(self.queue)
        return 0

    cdef bint pump(self) except -1:
        """The turn of a queue that was woken; False: `Queue.pump` is to be called."""
        cdef int found
        self.cursor.scheduled = False
        found = self.serve_all(False)
        if found == CAUGHT_UP and not self.queue.waits:
            (<object>self.queue).watch()
        return found != REST


cdef class Served:
    pass


cdef int deliver_directly(list feeds, bint at_once, clock, double most_s) except -1:
    cdef Feed feed
    cdef dict waiters
    cdef FastPath way
    cdef Py_ssize_t served = 0
    cdef double ends = -1.0
    cdef bint late = False
    for feed in feeds:
        waiters = feed.waiters
        if not waiters:
            continue
        for queue in tuple(waiters):
            if not late and served % CHECK_EACH == CHECK_EACH - 1:
                if ends < 0:
                    ends = <double>clock() + most_s
                else:
                    late = <double>clock() > ends
            served += 1
            way = (<Served>queue).fast_path if isinstance(queue, Served) else None
            if way is not None and late:
                way.wake()
            elif way is None or way.serve_all(at_once) == REST:
                waiters.pop(queue, None)        # a registration is for one waking
                queue.fed(feed)
    return 0
