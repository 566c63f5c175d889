"""The fast path of a message. The words are in _fast_path.pyi."""


from penstock.subscriptions.cursor._cursor cimport Cursor

cdef enum:                          # what `FastPath.serve` says
    REST = 0                        # it did nothing, or there is more: the queue has its turn
    STARVED = 1                     # its consumer has no credit, and wakes the queue when it has
    CAUGHT_UP = 2                   # it handed out all there is


cdef class FastPath:
    cdef Served queue
    cdef Cursor cursor
    cdef object ready               # `TickBase.ready`

    cdef int serve(self, bint at_once) except -1
    cdef int serve_all(self, bint at_once) except -1
    cdef int wake(self) except -1
    cdef bint pump(self) except -1


cdef class Served:                  # a queue, as far as the fast path sees it; the rest of it is `queue.Queue`
    cdef public FastPath fast_path
    cdef public object _limits, _getters
    cdef public Py_ssize_t _loading         # reasons to hand out nothing: reads that are under way, `hold`
    cdef public unsigned long long delivered, unasked
    cdef public bint waits                  # at all of its feeds


# Serve each queue that waits at one of `feeds` by its fast path, or wake it (`Queue.fed`): one that has none, and,
# after `most_s` seconds of `clock`, those whose turn has not come. `at_once`: what they get is sent before the next one.
cdef int deliver_directly(list feeds, bint at_once, clock, double most_s) except -1
