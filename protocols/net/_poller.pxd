"""The sockets of one loop. Words in _poller.pyi."""

from penstock.protocols.net._moderation cimport Moderation
from penstock.subscriptions.tick._tick cimport Gathering


cdef class Watched:                 # a socket, as the poller sees it
    cdef int on_events(self, bint readable, bint writable) except -1
    cdef int join_others(self) except -1    # be watched by the poller again
    cdef int finish(self, exc) except -1    # it is lost: close it, and say so


cdef class Poller(Gathering):
    cdef object __weakref__
    cdef object loop                # a weak reference: the loop refers to us
    cdef int fd                     # of the epoll; -1 while nothing is watched
    cdef bint shutting              # it will be looked at whether the epoll is used
    cdef dict watched               # Watched by descriptor
    cdef list ended                 # those that are to be finished, each with the error by which it was lost, or None
    cdef bint in_round              # and will be, behind it
    cdef readonly list direct                # those that the loop watches itself
    cdef readonly Moderation moderation
    cdef readonly unsigned long long rounds, reads      # looks at the sockets, and how many were ready

    cdef int open(self) except -1
    cdef int shut(self) except -1
    cdef int watch(self, int fd, Watched who, bint reads, bint writes, bint known) except -1
    cdef int forget(self, int fd) except -1
    cdef int finish_soon(self, Watched who, int fd, exc) except -1
    cdef int shut_soon(self) except -1
    cdef int look(self, void* events) except -1
    cdef int begin_round(self, bint alone) except -1
    cdef int end_round(self) except -1
    cdef int read_new(self, list sockets) except -1
