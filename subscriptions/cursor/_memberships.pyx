"""The memberships of a cursor: the parts of feeds that belong to its queue, merged by position.

A membership is a part of a feed: entries [next, to) are still to be taken. Several are read as one by a heap of
their next positions; where two feeds have the same position it comes once, with the tags of all.

An item of several memberships carries an interned set of tags instead of one (`TagSets`).
"""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t

from penstock.log_core.feeds._feed cimport Feed
from penstock.subscriptions.cursor._take_result cimport MATCH_SET, stop_at_entry

cdef Py_ssize_t HEADS_ROOM = 0


cdef Member* add_member(Members* members, Feed feed, uint32_t tag, uint64_t index) except NULL:
    """An open one that takes entries from `index` on, and has all positions. The caller keeps the feed alive."""
    cdef Member* member
    cdef uint32_t room
    cdef void* p
    if members.n == members.room:
        room = members.room + 1 if members.room < 2 else 2 * members.room
        p = PyMem_Realloc(members.list, room * sizeof(Member))
        if p == NULL:
            raise MemoryError
        members.list = <Member*>p
        members.room = room
    member = &members.list[members.n]
    member.feed = <PyObject*>feed
    member.tag = tag
    member.from_pos = 0
    member.to = member.to_pos = UINT64_MAX
    member.next = member.counted = index
    member.closed = False
    members.n += 1
    if index < feed.end:                # older than what was counted
        recount(members)
    return member


cdef void remove_member(Members* members, Py_ssize_t i) noexcept:
    cdef uint32_t j
    members.closed -= members.list[i].closed
    for j in range(<uint32_t>i, members.n - 1):
        members.list[j] = members.list[j + 1]
    members.n -= 1


cdef void free_members(Members* members) noexcept:
    PyMem_Free(members.list)
    members.list = NULL
    recount(members)


cdef void recount(Members* members) noexcept:
    """The last count is void: the next one begins anew."""
    cdef uint32_t i
    if members.counted != NULL:
        PyMem_Free(members.counted)
        members.counted = NULL
    for i in range(members.n if members.list != NULL else 0):
        members.list[i].counted = members.list[i].next


# Merging

cdef int _heads_room(Py_ssize_t n) except -1:
    global HEADS, HEADS_ROOM
    cdef Py_ssize_t room
    cdef void* p
    if n > HEADS_ROOM:
        room = max(n, 2 * HEADS_ROOM)
        p = PyMem_Realloc(HEADS, room * sizeof(Head))
        if p == NULL:
            raise MemoryError
        HEADS = <Head*>p
        HEADS_ROOM = room
    return 0


cdef inline void _sift(Head* heads, Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    """Restore the heap heads[0..n) below place i."""
    cdef Head top = heads[i]
    cdef Py_ssize_t child
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and heads[child + 1].pos < heads[child].pos:
            child += 1
        if heads[child].pos >= top.pos:
            break
        heads[i] = heads[child]
        i = child
    heads[i] = top


cdef Py_ssize_t start_merge(Members* members, bint counting) except -2:
    """Fill HEADS with the next entry of every membership that has one, the lowest first; how many.

    -1: one is not resident; TAKEN says which, unless `counting`.
    """
    cdef Py_ssize_t i, heads = 0
    cdef uint64_t index
    cdef Member* member
    _heads_room(members.n)
    for i in range(members.n):
        member = &members.list[i]
        if member.next < end_of(member):
            index = member.counted if counting else member.next
            if index >= end_of(member):
                continue
            HEADS[heads].pos = (<Feed>member.feed).position(index)
            HEADS[heads].slot = i
            if HEADS[heads].pos == 0:
                if not counting:
                    stop_at_entry(<Feed>member.feed, index)
                return -1
            heads += 1
    for i in range(heads // 2 - 1, -1, -1):
        _sift(HEADS, i, heads)
    return heads


cdef Py_ssize_t next_merged(Members* members, Py_ssize_t heads, bint counting) except -2:
    """Move the membership of HEADS[0] on by one entry; how many heads remain, -1: not resident.

    Only whole positions are ever moved over: when one membership's next entry is not resident the
    others that share the position must move too, so they do, and reading stops after them.
    """
    cdef Head* all_heads = HEADS
    cdef Member* member = &members.list[all_heads[0].slot]
    cdef uint64_t index, pos, here = all_heads[0].pos
    cdef Py_ssize_t i
    if counting:
        member.counted += 1
        index = member.counted
    else:
        member.next += 1
        index = member.next
    if index >= end_of(member):
        all_heads[0] = all_heads[heads - 1]
        if heads > 1:
            _sift(all_heads, 0, heads - 1)
        return heads - 1
    pos = (<Feed>member.feed).position(index)
    if pos:
        all_heads[0].pos = pos
        _sift(all_heads, 0, heads)
        return heads
    for i in range(1, heads):
        if all_heads[i].pos == here:
            if counting:
                members.list[all_heads[i].slot].counted += 1
            else:
                members.list[all_heads[i].slot].next += 1
    if not counting:
        stop_at_entry(<Feed>member.feed, index)
    return -1


cdef class TagSets:
    """The sets of tags one cursor met, by number."""

    def __cinit__(self):
        self._sets = []
        self._ids = {}

    cdef uint32_t intern(self, tuple key) except? 0xFFFFFFFF:
        """The `match` that stands for these tags, which ascend."""
        found = self._ids.get(key)
        if found is None:
            found = MATCH_SET | <uint32_t>len(self._sets)
            self._ids[key] = found
            self._sets.append(key)
        return found

    cdef tuple tags(self, uint32_t match):
        return self._sets[match & ~<uint32_t>MATCH_SET]
