"""See _in_flight.pyx."""

from libc.stdint cimport uint8_t, uint64_t

cdef struct Run:
    uint64_t tag
    uint64_t count


cdef class InFlight:
    cdef readonly list others
    cdef uint64_t _published
    cdef uint64_t _settled          # publish numbers up to it are settled
    cdef uint64_t _reached          # and up to it confirmed
    cdef bint _refused              # a message was: nothing counts as confirmed any more
    cdef uint8_t* _single           # ring by publish number: those behind `_reached` that are confirmed
    cdef uint64_t _mask
    cdef Run* _runs                 # ring of what is not settled
    cdef uint64_t _runs_mask
    cdef uint64_t _first_run
    cdef uint64_t _next_run
    cdef int _grow(self) except -1
    cdef int _grow_runs(self) except -1
    cdef void _confirm(self, uint64_t number, bint multiple) noexcept
