# cython: auto_pickle=False
"""All sockets of connections in one epoll of ours: what is ready together is handled together.

The event loop watches the epoll's descriptor, not the sockets. When some are ready it calls `poll` once: all of them are
read, one after the other, and then the turns run that the reads asked for. So the loop's own work (a callback, a handle
and a context for each socket) is per round, a turn serves all reads of a round, and a read that is the only one of its
round is known to be alone.

Behind two epolls a message that comes alone is read some 5 us later, so the few sockets that were alone in many rounds
one after the other are watched by the loop itself (`Watched`, `direct`), until a round has many. Where many sockets
become ready one shortly after the other, a round waits a moment for more (`_moderation`). docs/adr/0018-one-epoll.md has
the measurements.

Knows sockets by their descriptors, and no transport.
"""

import os
import weakref

from libc.errno cimport EINTR, errno
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport strerror
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, nanosleep, timespec

from penstock.protocols.net._moderation cimport Moderation

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        int fd
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int maxevents, int timeout)
    enum:
        EPOLL_CLOEXEC
        EPOLL_CTL_ADD
        EPOLL_CTL_DEL
        EPOLL_CTL_MOD
        EPOLLIN
        EPOLLOUT
        EPOLLERR
        EPOLLHUP

cdef enum:
    EVENTS_MAX = 256                # sockets of a round: others of the loop's concerns come between rounds
    MANY = 4                        # sockets of a round after which none is worth a wake-up of its own

SHUT_AFTER_S = 1.0
cdef object POLLERS = weakref.WeakKeyDictionary()
cdef object last_loop = None        # a weak reference, and its poller: most processes have one loop
cdef object last_poller = None


cdef uint64_t clock_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1000000000 + <uint64_t>now.tv_nsec


cdef void pause(uint64_t span_ns) noexcept nogil:
    """Sleep; a signal ends it early, which does no harm."""
    cdef timespec span
    span.tv_sec = 0
    span.tv_nsec = <long>span_ns
    nanosleep(&span, NULL)


def poller_of(loop not None):
    global last_loop, last_poller
    if last_loop is not None and last_loop() is loop:
        poller = last_poller()
        if poller is not None:
            return poller
    poller = POLLERS.get(loop)
    if poller is None:
        poller = POLLERS[loop] = Poller(loop)
    last_loop, last_poller = weakref.ref(loop), weakref.ref(poller)
    return poller


cdef class Watched:
    cdef int finish(self, exc) except -1:
        raise NotImplementedError

    cdef int on_events(self, bint readable, bint writable) except -1:
        raise NotImplementedError

    cdef int join_others(self) except -1:
        raise NotImplementedError


cdef class Poller(Gathering):
    def __cinit__(self, loop not None):
        self.loop = weakref.ref(loop)
        self.fd = -1
        self.watched = {}
        self.ended = []
        self.direct = []
        self.moderation = Moderation()

    def __dealloc__(self):
        if self.fd >= 0:
            os.close(self.fd)

    cdef int watch(self, int fd, Watched who, bint reads, bint writes, bint known) except -1:
        """Call `who.on_events` while the socket `fd` is ready for what is wanted; `known`: it is watched for something."""
        cdef epoll_event event
        if not (reads or writes):
            return self.forget(fd) if known else 0
        if self.fd < 0:
            self.open()
        event.events = (EPOLLIN if reads else 0) | (EPOLLOUT if writes else 0)
        event.data.u64 = 0
        event.data.fd = fd
        if epoll_ctl(self.fd, EPOLL_CTL_MOD if known else EPOLL_CTL_ADD, fd, &event) < 0:
            raise OSError(errno, strerror(errno).decode())
        self.watched[fd] = who
        return 0

    cdef int forget(self, int fd) except -1:
        cdef epoll_event event
        del self.watched[fd]
        if epoll_ctl(self.fd, EPOLL_CTL_DEL, fd, &event) < 0:
            raise OSError(errno, strerror(errno).decode())
        return self.shut_soon()

    def _shut_if_unused(self):
        self.shutting = False
        if not self.watched and self.fd >= 0:
            self.shut()

    cdef int finish_soon(self, Watched who, int fd, exc) except -1:
        """Have `who.finish(exc)`, which closes the socket, called from the loop; it is watched no more: `fd`, or -1.

        All that end in a round end behind it, without a handle of the loop for each. A socket that is closed leaves the
        epoll by itself.
        """
        if fd >= 0:
            self.watched.pop(fd, None)
        self.ended.append((who, exc))
        if not self.in_round and len(self.ended) == 1:
            self.loop().call_soon(self._finish_ended)
        return 0

    def _finish_ended(self):
        cdef Watched who
        ended, self.ended = self.ended, []
        for who, exc in ended:
            try:
                who.finish(exc)
            except Exception as error:
                self.loop().call_exception_handler({"message": "a lost connection failed", "exception": error})
        self.shut_soon()

    cdef int shut_soon(self) except -1:
        if not self.watched and not self.shutting and self.fd >= 0:
            # Soon, not now: clients that come one by one would have an epoll made for each.
            self.shutting = True
            self.loop().call_later(SHUT_AFTER_S, self._shut_if_unused)
        return 0

    cdef int open(self) except -1:
        self.fd = epoll_create1(EPOLL_CLOEXEC)
        if self.fd < 0:
            raise OSError(errno, strerror(errno).decode())
        self.loop().add_reader(self.fd, self.poll)
        return 0

    cdef int shut(self) except -1:
        """Nothing is watched: a loop that is over has nothing of ours."""
        fd, self.fd = self.fd, -1
        self.loop().remove_reader(fd)
        os.close(fd)
        return 0

    cdef int look(self, void* events) except -1:
        """The number of sockets that are ready now; `events` has room for EVENTS_MAX."""
        cdef int n = epoll_wait(self.fd, <epoll_event*>events, EVENTS_MAX, 0)
        if n < 0:
            if errno == EINTR:
                return 0            # they are ready still: the loop calls again
            raise OSError(errno, strerror(errno).decode())
        return n

    def poll(self):
        cdef epoll_event[EVENTS_MAX] events
        cdef uint64_t wait_ns
        cdef int n, i, before
        cdef uint32_t found
        cdef Watched who
        if self.fd < 0:
            return
        n = self.look(events)
        if n == 0:
            return
        wait_ns = self.moderation.wait_ns(n, clock_ns())
        if wait_ns:
            with nogil:
                pause(wait_ns)
            before = n
            n = self.look(events)
            self.moderation.waited(before, n, clock_ns())
        self.rounds += 1
        self.reads += <unsigned long long>n
        if n >= MANY and self.direct:
            for who in self.direct:
                who.join_others()
            self.direct = []
        self.begin_round(n == 1)
        try:
            for i in range(n):
                # One that was lost in this round is watched no more.
                who = self.watched.get(events[i].data.fd)
                if who is not None:
                    found = events[i].events
                    who.on_events(found & ~<uint32_t>EPOLLOUT != 0, found & (EPOLLOUT | EPOLLERR | EPOLLHUP) != 0)
        finally:
            self.end_round()

    cdef int begin_round(self, bint alone) except -1:
        self.begin(alone)
        self.in_round = True
        return 0

    cdef int end_round(self) except -1:
        try:
            self.end()
        finally:
            self.in_round = False
            if self.ended:
                self._finish_ended()
        return 0

    cdef int read_new(self, list sockets) except -1:
        """A round of these, of which the loop knows nothing yet: what their peers have said may be there already."""
        cdef Watched who
        self.rounds += 1
        self.reads += <unsigned long long>len(sockets)
        self.begin_round(len(sockets) == 1)
        try:
            for who in sockets:
                who.on_events(True, False)
        finally:
            self.end_round()
        return 0
