# cython: auto_pickle=False
"""The straight way of a lone message from its feeds to its consumers.

A message that comes alone finds cold caches: what it costs is the number of functions and objects that it
touches. So here the ordinary way - wake the queues at the feeds, take, encode, send - is one piece of compiled
code for the ordinary case. Whatever is not ordinary is woken, and served by the turn as always.
"""

from penstock.log_core.feeds._feed cimport Feed
from penstock.subscriptions.cursor._events cimport DELIVER, EVENTS

cdef enum:
    WAITERS_MAX = 16                # with more queues at a feed it is a lone message no more


cdef class FastPath:
    cdef bint serve(self) except -1:
        return False


cdef class Served:
    pass


cdef int deliver_directly(list feeds) except -1:
    cdef Feed feed
    cdef FastPath fast_path
    cdef dict waiters
    for feed in feeds:
        waiters = feed.waiters
        if not waiters:
            continue
        if len(waiters) > WAITERS_MAX:
            feed.waiters = {}
            for queue in waiters:
                queue.fed(feed)
            continue
        for queue in tuple(waiters):
            if not _serve(queue):
                waiters.pop(queue, None)
                queue.fed(feed)
    return 0


cdef bint _serve(queue) except -1:
    cdef Served served
    if not isinstance(queue, Served):
        return False
    served = queue
    # Rules, waiting getters and events of deliveries are the turn's business.
    if EVENTS.kinds >> DELIVER & 1:
        return False
    if served.fast_path is None or served._limits is not None or served._getters is not None:
        return False
    try:
        return served.fast_path.serve()
    except Exception:
        queue.outlet_failed(queue.active, 0, 1)     # detached: it waits nowhere, or was woken
        return True
