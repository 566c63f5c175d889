# cython: auto_pickle=False
"""Layers between a socket and a stream, such as TLS: towards the socket a protocol, towards the stream a wire.

Their work for each read and each write is C, as it is for a stream without layers: a socket, or the layer below, reads
into `place` and calls `arrived`; a stream, or the layer above, calls `send_output`. The rest is asyncio's words between
transports and protocols, in Python: the classes that derive from these have it.
"""

from libc.stdint cimport uint8_t

from penstock.protocols.net._stream cimport Stream, Wire


cdef class Layer(Wire):
    def __init__(self, above not None):
        self.stream = above if isinstance(above, Stream) else None
        self.above = None if isinstance(above, Stream) else above

    cdef bint is_over(self) noexcept:
        return self.closing or self.below is None or self.below.is_over()

    cdef uint8_t* place(self, Py_ssize_t* capacity) except NULL:
        """Where the next bytes go, and how many of them at most."""
        raise NotImplementedError

    cdef int arrived(self, Py_ssize_t nbytes) except -1:
        """So many bytes are there now."""
        raise NotImplementedError

    cdef uint8_t* place_above(self, Py_ssize_t* capacity) except NULL:
        return self.stream.place(capacity) if self.stream is not None else self.above.place(capacity)

    cdef int hand_up(self, Py_ssize_t nbytes) except -1:
        return self.stream.arrived(nbytes) if self.stream is not None else self.above.arrived(nbytes)
