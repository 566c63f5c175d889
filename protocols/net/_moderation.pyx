# cython: auto_pickle=False
"""Decides when the poller waits for more sockets before a round, as network cards moderate their interrupts.

A thousand clients that each send now and then bring a ready socket each 50 us. Each would be a round of its own: a
wake-up of the loop, a turn, a send to the subscriber. A wait of a fifth of a millisecond before the round gathers
several, and they share all that. Clients that wait for an answer must not be slowed down: a wait would bring nothing.

So it is tried, and measured in windows of 20 ms:

    WATCHING   no waits. Many reads in small rounds: the next window is a trial.
    TRYING     waits. If 8 waits brought next to nothing, or the rate falls, the clients wait for answers: rest.
    HOLDING    waits, for a second; then a window of watching measures the rate without waits again.
    RESTING    no waits and no trial: 0.1 s, doubled after each failed trial up to 6.4 s.

Knows no socket and no clock: the poller tells the time. Source: interrupt coalescing, e.g. the Linux kernel's net_dim.
"""

from libc.stdint cimport uint64_t

cdef enum:
    FEW = 8                         # ready sockets from which on a round waits for no more
    TRIAL_WAITS = 8

cdef uint64_t WINDOW = 20_000_000
cdef uint64_t HOLD = 1_000_000_000
cdef uint64_t REST_LEAST = 100_000_000
cdef uint64_t REST_MOST = 6_400_000_000
cdef double WORTH = 1.5             # sockets that a wait must be expected to bring
cdef double RATE_KEPT = 0.85        # of the rate without waits; a load that does not wait for us keeps all but chance


cdef class Moderation:
    def __cinit__(self):
        self.state = WATCHING
        self.rest_ns = REST_LEAST
        self.span_ns = 0

    @property
    def waiting(self):
        return self.state == TRYING or self.state == HOLDING

    cpdef uint64_t wait_ns(self, int ready, uint64_t now) noexcept:
        if now >= self.ends:
            self.decide(now)
        self.reads += <uint64_t>ready
        self.rounds += 1
        if ready < FEW and (self.state == TRYING or self.state == HOLDING):
            return self.span_ns
        return 0

    cpdef int waited(self, int before, int after, uint64_t now) except -1:
        self.reads += <uint64_t>max(after - before, 0)
        if self.state == TRYING:
            self.waits += 1
            self.gained += after - before
            if self.waits == TRIAL_WAITS and self.gained < TRIAL_WAITS:
                self.rest(now)
        return 0

    cdef int decide(self, uint64_t now) noexcept:
        """The window is over: the state of the next one."""
        cdef double rate = <double>self.reads / <double>(now - self.began + 1)
        cdef bint worth = rate * <double>self.span_ns >= WORTH
        if self.state == WATCHING:
            if worth and self.reads < FEW * self.rounds:
                self.state = TRYING
                self.watched = rate
                self.waits = self.gained = 0
        elif self.state == TRYING:
            if worth and rate >= RATE_KEPT * self.watched:
                self.state = HOLDING
                self.phase_ends = now + HOLD
                self.rest_ns = REST_LEAST
            else:
                return self.rest(now)
        elif self.state == HOLDING:
            if not worth or now >= self.phase_ends:
                self.state = WATCHING
        elif now >= self.phase_ends:
            self.state = WATCHING
        self.began = now
        self.ends = now + WINDOW
        self.reads = self.rounds = 0
        return 0

    cdef int rest(self, uint64_t now) noexcept:
        self.state = RESTING
        self.phase_ends = now + self.rest_ns
        self.rest_ns = min(2 * self.rest_ns, REST_MOST)
        self.began = now
        self.ends = now + WINDOW
        self.reads = self.rounds = 0
        return 0
