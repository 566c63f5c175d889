"""When to wait for more sockets before a round. Words in _moderation.pyi."""

from libc.stdint cimport uint64_t

cdef enum State:
    WATCHING
    TRYING
    HOLDING
    RESTING


cdef class Moderation:
    cdef State state
    cdef public uint64_t span_ns    # of a wait; 0: there is none
    cdef uint64_t began, ends       # of the window, in ns
    cdef uint64_t reads, rounds     # in the window
    cdef uint64_t phase_ends        # of HOLDING and RESTING
    cdef uint64_t rest_ns           # how long the next rest takes
    cdef double watched             # reads per ns in the last window without waiting
    cdef int waits, gained          # of a trial

    cpdef uint64_t wait_ns(self, int ready, uint64_t now) noexcept
    cpdef int waited(self, int before, int after, uint64_t now) except -1
    cdef int decide(self, uint64_t now) noexcept
    cdef int rest(self, uint64_t now) noexcept
