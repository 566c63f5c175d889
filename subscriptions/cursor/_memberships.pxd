# The memberships of a cursor, and reading them as one. The words are in _members.pyx.

from cpython.object cimport PyObject
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t

from penstock.log_core.feeds._feed cimport Feed


cdef struct Member:
    PyObject* feed              # borrowed from the cursor's `_feeds`
    uint64_t next               # index of the next entry to take
    uint64_t to                 # index where the membership ends; UINT64_MAX while it is open
    uint64_t counted            # entries below this index are in Counted.distinct
    uint64_t from_pos           # positions below never belonged to it
    uint64_t to_pos             # positions from here on do not; UINT64_MAX while it is open
    uint32_t tag
    bint closed


cdef struct Counted:            # of several memberships: what was merged to be counted, and is not taken
    uint64_t distinct           # positions
    uint64_t to                 # the last of them


cdef struct Members:
    Member* list
    Counted* counted            # NULL: nothing was merged
    uint32_t n, room, closed


cdef struct Head:               # one membership's next entry while several are merged
    uint64_t pos
    Py_ssize_t slot


cdef Head* HEADS                # a heap by position

cdef Member* add_member(Members* members, Feed feed, uint32_t tag, uint64_t index) except NULL
cdef void remove_member(Members* members, Py_ssize_t i) noexcept
cdef void free_members(Members* members) noexcept
cdef Py_ssize_t start_merge(Members* members, bint counting) except -2
cdef Py_ssize_t next_merged(Members* members, Py_ssize_t heads, bint counting) except -2
cdef void recount(Members* members) noexcept


cdef inline uint64_t end_of(Member* member) noexcept:
    """The index where the membership ends for now; moves `next` over entries the feed gave up."""
    cdef Feed feed = <Feed>member.feed
    if member.next < feed.start:
        member.next = feed.start
    if member.counted < member.next:
        member.counted = member.next
    return feed.end if feed.end < member.to else member.to


cdef inline Py_ssize_t count_active(Members* members, Member** one) noexcept:
    """How many have entries to take; `one` is the last of them."""
    cdef Py_ssize_t active = 0
    cdef uint32_t i
    cdef Member* member
    for i in range(members.n):
        member = &members.list[i]
        if member.next < end_of(member):
            active += 1
            one[0] = member
    return active


cdef inline void uncount(Members* members, uint64_t pos) noexcept nogil:
    """The position is taken: it waits no more."""
    if members.counted != NULL and pos <= members.counted.to:
        members.counted.distinct -= 1


cdef class TagSets:
    cdef list _sets
    cdef dict _ids

    cdef uint32_t intern(self, tuple key) except? 0xFFFFFFFF
    cdef tuple tags(self, uint32_t match)
