"""The straight way of a lone message. The words are in _straight.pyi."""


cdef class FastPath:
    cdef bint serve(self) except -1


cdef class Served:                  # a queue, as far as the straight way sees it; the rest of it is `queue.Queue`
    cdef public FastPath fast_path
    cdef public object _limits, _getters
    cdef public unsigned long long delivered


# Serve each queue that waits at one of `feeds` by its straight way, or wake it (`Queue.fed`).
cdef int deliver_directly(list feeds) except -1
