# cython: auto_pickle=False
"""When a thread beside the loop works, and when it rests, so that publishers do not notice it.

Work is cut into steps of some ten microseconds: a thread that sleeps holds no core that the loop, or a client on
this machine, wants to wake up on. Behind each step it rests:

1. as long as the step took;
2. three times as long while messages are published, which the position of the log tells;
3. further as long as somebody waits for a confirm, but no longer than `PATIENCE_S`: where somebody always waits,
   the work goes on slowly.

All of this is without the interpreter's lock. Numbers that others write are read without a lock, too: one that is
old by a moment does no harm.
"""

cimport cython
from libc.stdint cimport uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, nanosleep, timespec

cdef enum:
    SHARE = 3                        # rest per work while messages are published

cdef double PATIENCE_S = 0.002
cdef double NAP_S = 0.0001
cdef double REST_MAX_S = 0.01        # a step takes long when the thread gets no core
cdef double QUIET_S = 0.25           # nobody published for so long: nobody does


cdef double monotonic() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double>now.tv_sec + 1e-9 * <double>now.tv_nsec


cdef void rest(double seconds) noexcept nogil:
    cdef timespec time
    time.tv_sec = <long>seconds
    time.tv_nsec = <long>(1e9 * (seconds - <double>time.tv_sec))
    nanosleep(&time, NULL)


@cython.final
cdef class Pace:
    def __cinit__(self):
        self.owners = []

    cdef void moves(self, object owner, const uint64_t* position):
        """Messages are published while the number there changes; `owner` keeps it."""
        self.owners.append(owner)
        self.position = position
        self.seen = position[0]

    cdef void watch(self, object owner, const Py_ssize_t* waiting):
        """Somebody waits while the number there is not 0; `owner` keeps it."""
        self.owners.append(owner)
        self.waiting[self.watched] = waiting
        self.watched += 1

    def stop(self):
        self.stopped = True

    cdef void begin(self) noexcept nogil:
        self.began = monotonic()
        self.done = 0

    cdef void pause(self) noexcept nogil:
        cdef double now = monotonic(), until
        cdef double took = now - self.began
        if self.position != NULL and self.position[0] != self.seen:
            self.seen = self.position[0]
            self.seen_at = now
        rest(min(took * SHARE if now - self.seen_at < QUIET_S else took, REST_MAX_S))
        until = now + PATIENCE_S
        while self.awaited() and not self.stopped and monotonic() < until:
            rest(NAP_S)
        self.rests += 1
        self.begin()

    cdef bint awaited(self) noexcept nogil:
        cdef int k
        for k in range(self.watched):
            if self.waiting[k][0]:
                return True
        return False
