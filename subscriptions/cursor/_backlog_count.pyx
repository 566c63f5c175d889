"""How many messages wait in a cursor's memberships.

One membership: a subtraction. Several may have positions in common: they are merged, each entry once, and what
was counted is remembered until it is taken.
"""

from cpython.mem cimport PyMem_Calloc
from libc.stdint cimport uint32_t, uint64_t

from penstock.log_core.feeds._feed cimport Feed
from penstock.subscriptions.cursor._memberships cimport (
    HEADS,
    Counted,
    Member,
    Members,
    count_active,
    end_of,
    next_merged,
    start_merge,
)
from penstock.subscriptions.cursor._ranges cimport Runs, done_among

cdef enum:
    LOADS_MAX = 32              # chunks of feed entries that one count reads from disk; about 1 ms each when large


cdef uint64_t count_untaken(object log, Members* members, Runs* runs) except? 0xFFFFFFFFFFFFFFFF:
    """Distinct positions to be taken, those of runs that are done left out.

    With more chunks on disk than one count reads: an upper bound.
    """
    cdef Member* one = NULL
    cdef Member* member
    cdef Py_ssize_t active = count_active(members, &one)
    cdef uint64_t n, end
    cdef uint32_t i
    if active == 0:
        return 0
    if active == 1:
        end = end_of(one)
        n = end - one.next
        return n if runs == NULL else n - done_among(runs, <Feed>one.feed, one.next, end)
    _merge(members, runs)
    for _ in range(LOADS_MAX):
        if not _load(log, members):
            break
        _merge(members, runs)
    n = members.counted.distinct
    for i in range(members.n):      # very long and on disk: not merged
        member = &members.list[i]
        if member.counted < end_of(member):
            n += end_of(member) - member.counted
    return n


cdef int _merge(Members* members, Runs* runs) except -1:
    """Count the distinct positions that came since the last call; amortised one merge per entry."""
    cdef Py_ssize_t heads, run = 0, last = 0
    cdef Counted* counted = members.counted
    cdef uint64_t pos
    if counted == NULL:
        counted = <Counted*>PyMem_Calloc(1, sizeof(Counted))
        if counted == NULL:
            raise MemoryError
        members.counted = counted
    if runs != NULL:
        run = runs.at
        last = runs.n
    heads = start_merge(members, True)
    while heads > 0:
        pos = HEADS[0].pos
        while run < last and runs.runs[run].last < pos:
            run += 1
        if run == last or not runs.runs[run].done or pos < runs.runs[run].first:
            counted.distinct += 1
        counted.to = pos
        while heads > 0 and HEADS[0].pos == pos:
            heads = next_merged(members, heads, True)
    return 0


cdef bint _load(object log, Members* members) except -1:
    """Have the entries in memory that stopped the count; False: nothing did, or they cannot be read."""
    cdef uint32_t i
    cdef Member* member
    for i in range(members.n):
        member = &members.list[i]
        if member.counted < end_of(member) and (<Feed>member.feed).position(member.counted) == 0:
            return log.load_feed_now(<Feed>member.feed, member.counted)
    return False
