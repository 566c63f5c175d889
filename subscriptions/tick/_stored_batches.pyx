# cython: auto_pickle=False
"""Batches taken whole: what a cursor gives without a look at each record.

A batch whose records are, one and all, what comes next in the queue's only feed can be handed on as it is
stored: one that is in the log's memory, or a run of them out of the page cache (`log_core/reading/_resident.pyx`). That the feed has all of them is seen by two of its entries: positions rise, so as many entries as
records between the first and the last one are all there are. Records that only a look at each can judge - those
with a time to live, those of another encoding - are left to `Cursor.take`.

A cursor that gave back something, that sorts or counts what waits, or that is being restored takes as always.
"""

from libc.stdint cimport UINT64_MAX, uint8_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport KIND_RECORDS, Batch, is_plain
from penstock.log_core.feeds._feed cimport Feed
from penstock.log_core.reading._resident cimport Place, Run, is_worth
from penstock.log_core.segments._segment_file cimport Stretch
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._events cimport ACK, DELIVER, EVENTS, note_message
from penstock.subscriptions.cursor._memberships cimport Member, count_active
from penstock.subscriptions.cursor._rules cimport CursorRules
from penstock.subscriptions.cursor._take_result cimport READ, begin_take, find_record
from penstock.subscriptions.cursor._window cimport OUT, Entry, make_room, push_done, ready_in

cdef enum:
    EVERLASTING = -2            # ttl_ms of a cursor that looks at no record's own time (_rules.pyx)


cdef class BatchConsumer:
    cpdef Py_ssize_t deliver_batch(self, Cursor cursor) except -1:
        return 0


cdef bint takes_whole(Cursor cursor, Next* next) except -1:
    """Whether nothing but the next entries of one feed is to be taken; finds out which."""
    cdef Member* member = NULL
    cdef CursorRules rules = cursor._rules
    cdef uint64_t visible
    next.timeless = False
    next.rest = 0
    if rules is not None:
        next.timeless = rules.ttl_ms == EVERLASTING
        if rules.bytes_max >= 0 or rules.ttl_ms >= 0:
            return False
    if (
        cursor._gathers
        or cursor._runs != NULL
        or cursor._members.counted != NULL
        or ready_in(&cursor._window)
        or count_active(&cursor._members, &member) != 1
    ):
        return False
    next.feed = member.feed
    next.index = member.next
    next.first = (<Feed>member.feed).position_known(member.next)
    next.limit = min((<Feed>member.feed).end, member.to)
    visible = cursor._log.visible_lsn
    if visible != UINT64_MAX and <uint64_t>(<Feed>member.feed).last_position > visible:
        next.limit = min(next.limit, (<Feed>member.feed).index_of(visible + 1))
        if next.index >= next.limit:
            return False
    return next.first != 0 and next.first >= cursor.skip_transient_until and next.first > cursor.unclean_until


cdef Batch next_batch(Cursor cursor, Py_ssize_t most, Next* next):
    cdef uint64_t last
    cdef Batch batch
    if not takes_whole(cursor, next):
        return None
    begin_take()
    if not find_record(cursor._log, next.first) or READ.lost:
        return None
    last = next.index + (READ.base + READ.count - next.first) - 1
    if last >= next.limit or (<Feed>next.feed).position_known(last) != READ.base + READ.count - 1:
        return None
    if READ.base != next.first:
        next.rest = READ.base + READ.count - next.first
        return None
    if <Py_ssize_t>READ.count > most:
        return None
    batch = <Batch>READ.batch
    if (batch.kind != KIND_RECORDS or not is_plain(batch.header, next.timeless)
            or not is_worth(batch.header, &next.small)):
        return None
    return batch


cdef bint goes_on(Cursor cursor, Place place):
    cdef Next next
    return takes_whole(cursor, &next) and place.goes_on(cursor._log.resident, next.first)


cdef size_t next_run(Cursor cursor, Place place, Py_ssize_t most, Next* next) except? 0:
    if not takes_whole(cursor, next):
        return 0
    if not place.goes_on(cursor._log.resident, next.first):
        begin_take()
        if find_record(cursor._log, next.first):
            return 0
    next.limit = min(next.limit, next.index + most)
    return place.seek(cursor._log.resident, next.first, <Feed>next.feed, next.index, next.limit)


cdef size_t read_run(Cursor cursor, Place place, Next* next, uint8_t* into, size_t capacity, Run* run) except? 0:
    return place.read_run(cursor._log.resident, <Feed>next.feed, next.index, next.limit, next.timeless, into, capacity,
                          &next.small, run)


cdef Stretch find_run(Cursor cursor, Place place, Next* next, size_t capacity, Run* run):
    return place.find_run(cursor._log.resident, <Feed>next.feed, next.index, next.limit, next.timeless, capacity,
                          &next.small, run)


cdef uint64_t take_whole(Cursor cursor, uint64_t first, uint32_t count, bint settled) except 0:
    cdef Member* member = NULL
    cdef Entry* entry
    cdef uint64_t seq, last = first + count - 1
    cdef uint32_t i
    count_active(&cursor._members, &member)
    if EVENTS.kinds >> DELIVER & 1:
        for i in range(count):
            note_message(DELIVER, cursor, first + i, None)
    if settled:
        push_done(&cursor._window, last, cursor.outstanding)
        seq = cursor._window.tail
        cursor.settled += count
        if EVENTS.kinds >> ACK & 1:
            for i in range(count):
                note_message(ACK, cursor, first + i, None)
        cursor._mark_dirty()
    else:
        while cursor._window.ring == NULL or cursor._window.tail - cursor._window.head + count > cursor._window.mask + 1:
            make_room(&cursor._window, cursor.outstanding)
        seq = cursor._window.tail
        for i in range(count):
            entry = &cursor._window.ring[(seq + i) & cursor._window.mask]
            entry.pos = first + i
            entry.match = member.tag
            entry.size = 0
            entry.count = 0
            entry.state = OUT
            entry.level = 0
            entry.slot = 0
        cursor._window.tail = seq + count
        cursor.outstanding += count
    member.next += count
    cursor.frontier = last
    return seq
