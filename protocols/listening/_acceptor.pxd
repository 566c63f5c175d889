"""The acceptor of a listener. Words in _acceptor.pyi."""


cdef class Acceptor:
    cdef readonly set connections
    cdef readonly dict gone
    cdef public unsigned long long gone_bytes_in, gone_bytes_out, opened, closed
    cdef object loop, factory, place, reached_at, layered
    cdef public object _came        # deque of those accepted that nothing was begun with
    cdef public object _empty, _admission
    cdef public bint _backpressure
    cdef public frozenset _full
    cdef public Py_ssize_t _max
    cdef public bint _is_open
    cdef object lost, known         # its methods, bound once
    cdef list fresh                 # those that `take_some` has begun with; None: it does not run

    cdef int read_fresh(self, list fresh) except -1
    cdef object made(self, str host, int port, bint foreign)
    cdef int begin(self, int fd, str host, int port, bint proxied) except -1
