# cython: auto_pickle=False
"""Group commit: one thread that syncs what is written.

The thread syncs everything written when it begins; what is written meanwhile gathers for the next sync, which
follows at once when somebody waits for it. There is no artificial wait. A failed sync is never repeated: the kernel
may have dropped the pages, so a second one would prove nothing.

The thread does without the interpreter: each time it took the lock, the loop that moves messages would have to let
go of it. It is woken by a semaphore, syncs, and rings an eventfd that the loop watches. Callers without an
eventfd (tests, tools), and those that must be told of a failure, are called by the thread.
"""

from cpython.pythread cimport (
    PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock, PyThread_type_lock,
    WAIT_LOCK,
)
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, strerror
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close, read, write

import logging
import os
import threading

from penstock.log_core.files.files import Files

cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass
    int sem_init(sem_t* it, int shared, unsigned int value)
    int sem_wait(sem_t* it)
    int sem_post(sem_t* it)
    int sem_destroy(sem_t* it)

cdef extern from "<unistd.h>" nogil:
    int fdatasync(int fd)

cdef object _LOG = logging.getLogger("penstock.log")

cdef enum:
    SLOW_NS = 1000000000


cdef uint64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1000000000 + <uint64_t>now.tv_nsec


cdef struct Descriptors:
    int* fds
    int count
    int room


cdef int make_room(Descriptors* it, int count) noexcept nogil:
    cdef int room = max(2 * it.room, max(count, 8))
    cdef int* grown
    if count <= it.room:
        return 0
    grown = <int*>realloc(it.fds, room * sizeof(int))
    if grown == NULL:
        return -1
    it.fds = grown
    it.room = room
    return 0


cdef bint has(const Descriptors* it, int fd) noexcept nogil:
    cdef int k
    for k in range(it.count):
        if it.fds[k] == fd:
            return True
    return False


cdef class Committer:
    cdef sem_t wake
    cdef PyThread_type_lock lock            # over all up to `stopping`; held for moments, never with a call of Python
    cdef Descriptors wanted, released
    cdef uint64_t wanted_lsn, wanted_mark, wants
    cdef uint64_t synced_lsn, synced_mark   # of the last sync that the bell was rung for
    cdef int bell
    cdef bint stopping
    cdef Descriptors current                # the thread's own
    cdef uint64_t began                     # of `wants`: what it worked on last
    cdef readonly uint64_t syncs
    cdef readonly uint64_t ns
    cdef object files, done, thread
    cdef bint direct                        # fdatasync is the system's, not a test's

    def __cinit__(self):
        self.bell = -1
        sem_init(&self.wake, 0, 0)
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError()

    def __dealloc__(self):
        sem_destroy(&self.wake)
        if self.lock != NULL:
            PyThread_free_lock(self.lock)
        free(self.wanted.fds)
        free(self.released.fds)
        free(self.current.fds)
        if self.bell >= 0:
            close(self.bell)

    def __init__(self, files not None, done not None):
        self.files = files
        self.done = done
        self.direct = getattr(files.fdatasync, "__func__", None) is Files.fdatasync
        self.thread = threading.Thread(target=self._run, name="penstock-committer", daemon=True)
        self.thread.start()

    cdef void take(self) noexcept nogil:
        PyThread_acquire_lock(self.lock, WAIT_LOCK)

    cdef void give(self) noexcept nogil:
        PyThread_release_lock(self.lock)

    def want(self, tuple descriptors not None, uint64_t lsn, uint64_t mark):
        cdef int count = <int>len(descriptors), k
        cdef int failed
        self.take()
        failed = make_room(&self.wanted, count)
        if not failed:
            for k in range(count):
                self.wanted.fds[k] = descriptors[k]
            self.wanted.count = count
            self.wanted_lsn = lsn
            self.wanted_mark = mark
            self.wants += 1
        self.give()
        if failed:
            raise MemoryError()
        sem_post(&self.wake)

    def release(self, int fd):
        cdef int failed
        self.take()
        failed = make_room(&self.released, self.released.count + 1)
        if not failed:
            self.released.fds[self.released.count] = fd
            self.released.count += 1
        self.give()
        if failed:
            raise MemoryError()
        sem_post(&self.wake)

    # The bell

    def hang_bell(self):
        cdef int bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.take()
        self.bell = bell
        self.give()
        return bell

    def answer_bell(self):
        cdef uint64_t times, lsn, mark
        if self.bell >= 0:
            read(self.bell, &times, 8)
        self.take()
        lsn, mark = self.synced_lsn, self.synced_mark
        self.give()
        return lsn, mark

    def take_bell_down(self):
        cdef int bell
        self.take()
        bell, self.bell = self.bell, -1
        self.give()
        if bell >= 0:
            close(bell)
        return self.answer_bell()

    # The thread

    def _run(self):
        try:
            self._serve()
        except BaseException as error:
            # All that wait for a sync must hear of it: nothing can be confirmed any more.
            _LOG.exception("an internal error in the committer")
            self.done(self.synced_lsn, self.synced_mark, OSError(EIO, f"an internal error: {error!r}"))

    def _serve(self):
        cdef int code
        with nogil:
            while True:
                while sem_wait(&self.wake) < 0 and errno == EINTR:
                    pass
                code = self.sync()
                if code:
                    with gil:
                        self.done(self.synced_lsn, self.synced_mark, OSError(code, strerror(code).decode()))
                    break
                self.close_released()
                if self.over():
                    break

    cdef int sync(self) except -1 nogil:
        # Sync what is wanted, unless that is done; errno.
        cdef uint64_t lsn, mark, began, took, one = 1
        cdef int k, code = 0, bell
        self.take()
        if self.wants == self.began:
            self.give()
            return 0
        if make_room(&self.current, self.wanted.count):
            self.give()
            with gil:
                raise MemoryError()
        memcpy(self.current.fds, self.wanted.fds, self.wanted.count * sizeof(int))
        self.current.count = self.wanted.count
        self.began = self.wants
        lsn = self.wanted_lsn
        mark = self.wanted_mark
        self.give()
        began = now_ns()
        for k in range(self.current.count):
            code = self.sync_one(self.current.fds[k])
            if code:
                return code
        took = now_ns() - began
        self.syncs += 1
        self.ns += took
        if took > SLOW_NS:
            with gil:
                _LOG.warning("a sync of the log took %.1f s; the disk is slow or busy", took / 1e9)
        self.take()
        self.synced_lsn = lsn
        self.synced_mark = mark
        bell = self.bell
        if bell >= 0:
            write(bell, &one, 8)                # under the lock, so that it is there still
        self.give()
        if bell < 0:
            with gil:
                self.done(lsn, mark, None)
        return 0

    cdef int sync_one(self, int fd) except -1 nogil:
        if self.direct:
            while fdatasync(fd) < 0:
                if errno != EINTR:
                    return errno
            return 0
        with gil:
            return self.sync_by_files(fd)

    cdef int sync_by_files(self, int fd) except -1:
        # Apart, since a function with a variable of Python takes the interpreter's lock at its end, in any case.
        try:
            self.files.fdatasync(fd)
        except OSError as error:
            return error.errno
        return 0

    cdef void close_released(self) noexcept nogil:
        # A later want does not name what was released before it, so only the newest can still need it.
        cdef int k, kept = 0
        self.take()
        for k in range(self.released.count):
            if self.wants != self.began and has(&self.wanted, self.released.fds[k]):
                self.released.fds[kept] = self.released.fds[k]
                kept += 1
            else:
                close(self.released.fds[k])
        self.released.count = kept
        self.give()

    cdef bint over(self) noexcept nogil:
        cdef bint it
        self.take()
        it = self.stopping and self.wants == self.began
        self.give()
        return it

    def stop(self):
        self.take()
        self.stopping = True
        self.give()
        sem_post(&self.wake)
        self.thread.join()
