# Ranges of positions that a cursor knows something of before it comes to them. The words are in _runs.pyx.

from libc.stdint cimport uint8_t, uint16_t, uint64_t

from penstock.log_core.feeds._feed cimport Feed


cdef struct Run:                # of positions [first, last]
    uint64_t first
    uint64_t last
    uint16_t count              # deliveries before that failed
    uint8_t released            # and that did not
    bint done


cdef struct Runs:
    Run* runs                   # [at, n): ascending, apart, not passed yet
    Py_ssize_t n, at


cdef int add_run(Runs** runs, uint64_t first, uint64_t last, uint16_t count, uint8_t released, bint done) except -1
cdef Run* run_of(Runs** runs, uint64_t pos) noexcept
cdef uint64_t last_known(Runs* runs) noexcept nogil
cdef uint64_t done_among(Runs* runs, Feed feed, uint64_t first, uint64_t end) except? 0xFFFFFFFFFFFFFFFF
cdef void free_runs(Runs** runs) noexcept
