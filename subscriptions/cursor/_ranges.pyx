"""The positions above a cursor's frontier that it knows: ranges of them, done or delivered before.

They come from its state record after a restart, or from a guard that refused a message for this queue alone.
Positions are asked for in ascending order; what was passed is forgotten, and the last one frees it all.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from libc.stdint cimport uint8_t, uint16_t, uint64_t

from penstock.log_core.feeds._feed cimport Feed


cdef int add_run(Runs** runs, uint64_t first, uint64_t last, uint16_t count, uint8_t released, bint done) except -1:
    """One more behind all others."""
    cdef Runs* all_runs = runs[0]
    cdef Run* run
    cdef void* p
    if all_runs == NULL:
        all_runs = <Runs*>PyMem_Calloc(1, sizeof(Runs))
        if all_runs == NULL:
            raise MemoryError
        runs[0] = all_runs
    if all_runs.n & (all_runs.n - 1) == 0:      # the room is the next power of two
        p = PyMem_Realloc(all_runs.runs, max(<Py_ssize_t>1, 2 * all_runs.n) * sizeof(Run))
        if p == NULL:
            raise MemoryError
        all_runs.runs = <Run*>p
    run = &all_runs.runs[all_runs.n]
    run.first = first
    run.last = last
    run.count = count
    run.released = released
    run.done = done
    all_runs.n += 1
    return 0


cdef Run* run_of(Runs** runs, uint64_t pos) noexcept:
    """The run that holds `pos`, or NULL; frees them when it lies behind all."""
    cdef Runs* all_runs = runs[0]
    while all_runs.at < all_runs.n and all_runs.runs[all_runs.at].last < pos:
        all_runs.at += 1
    if all_runs.at == all_runs.n:
        free_runs(runs)
        return NULL
    if pos < all_runs.runs[all_runs.at].first:
        return NULL
    return &all_runs.runs[all_runs.at]


cdef uint64_t last_known(Runs* runs) noexcept nogil:
    """The highest position there is a run of, 0: none."""
    return runs.runs[runs.n - 1].last if runs != NULL and runs.n else 0


cdef uint64_t done_among(Runs* runs, Feed feed, uint64_t first, uint64_t end) except? 0xFFFFFFFFFFFFFFFF:
    """How many of the entries [first, end) of `feed` are in runs that are done."""
    cdef uint64_t low, high, n = 0
    cdef Py_ssize_t i
    for i in range(runs.at, runs.n):
        if runs.runs[i].done:
            low = feed.index_of(runs.runs[i].first)
            high = feed.index_of(runs.runs[i].last + 1)
            n += min(max(high, first), end) - min(max(low, first), end)
    return n


cdef void free_runs(Runs** runs) noexcept:
    if runs[0] != NULL:
        PyMem_Free(runs[0].runs)
        PyMem_Free(runs[0])
        runs[0] = NULL
