"""When a thread beside the loop works, and when it rests. Words in _pace.pyi."""

cimport cython
from libc.stdint cimport uint64_t

cdef enum:
    WATCHED_MAX = 3
    STEP_BYTES = 131072


cdef double monotonic() noexcept nogil


@cython.final
cdef class Pace:
    cdef const uint64_t* position           # where publishers are
    cdef const Py_ssize_t* waiting[WATCHED_MAX]    # how many wait
    cdef int watched
    cdef list owners                        # of what is pointed to
    cdef uint64_t seen
    cdef double seen_at                     # when the position was found to be another one
    cdef double began                       # the step
    cdef size_t done                        # bytes of this step
    cdef readonly uint64_t rests
    cdef readonly bint stopped

    cdef void moves(self, object owner, const uint64_t* position)
    cdef void watch(self, object owner, const Py_ssize_t* waiting)
    cdef void begin(self) noexcept nogil
    cdef inline void worked(self, size_t nbytes) noexcept nogil:
        """So many more bytes were looked at."""
        self.done += nbytes
        if self.done >= STEP_BYTES and not self.stopped:
            self.pause()

    cdef void pause(self) noexcept nogil
    cdef bint awaited(self) noexcept nogil
