# cython: auto_pickle=False
"""Batches taken whole: what a cursor gives without a look at each record.

A batch whose records are, one and all, what comes next in the queue's only feed can be handed on as it is
stored. That the feed has all of them is seen by two of its entries: positions rise, so as many entries as
records between the first and the last one are all there are. Records that only a look at each can judge - those
with a time to live, those of another encoding - are left to `Cursor.take`.

A cursor that gave back something, that sorts or counts what waits, or that is being restored takes as always.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.log_core._batch cimport ENC_AMQP091, KIND_RECORDS, Batch, RecordHeader
from penstock.log_core._feed cimport Feed
from penstock.subscriptions._cursor cimport Cursor
from penstock.subscriptions._events cimport ACK, EVENTS, note_message
from penstock.subscriptions._members cimport Member, count_active
from penstock.subscriptions._rules cimport CursorRules
from penstock.subscriptions._taken cimport READ, begin_take, find_record
from penstock.subscriptions._window cimport OUT, Entry, make_room, push_done, ready_in

cdef enum:
    EVERLASTING = -2            # ttl_ms of a cursor that looks at no record's own time (_rules.pyx)
    COUNT_MIN = 16              # records of a batch that is worth its head


cdef class BatchOutlet:
    cpdef Py_ssize_t deliver_batch(self, Cursor cursor) except -1:
        return 0


cdef bint is_plain(Batch batch, bint timeless) noexcept:
    """Whether each record is in AMQP's encoding and, unless `timeless`, has no time to live."""
    cdef const RecordHeader* record = batch.headers
    cdef uint32_t i, odd = 0
    for i in range(batch.count):
        odd |= record[i].enc ^ ENC_AMQP091
    if not timeless:
        for i in range(batch.count):
            odd |= record[i].ttl
    return odd == 0


cdef Batch next_batch(Cursor cursor, Py_ssize_t most):
    cdef Member* member = NULL
    cdef CursorRules rules = cursor._rules
    cdef Feed feed
    cdef Batch batch
    cdef uint64_t first, last
    cdef bint timeless = False
    if rules is not None:
        timeless = rules.ttl_ms == EVERLASTING
        if rules.bytes_max >= 0 or rules.ttl_ms >= 0:
            return None
    if (
        cursor._gathers
        or cursor._runs != NULL
        or cursor._members.counted != NULL
        or ready_in(&cursor._window)
        or count_active(&cursor._members, &member) != 1
    ):
        return None
    feed = <Feed>member.feed
    first = feed.position(member.next)
    if first == 0 or first < cursor.skip_transient_until or first <= cursor.unclean_until:
        return None
    begin_take()
    if not find_record(cursor._log, first) or READ.lost or READ.base != first or READ.count < COUNT_MIN:
        return None
    last = member.next + READ.count - 1
    if <Py_ssize_t>READ.count > most or last >= feed.end or last >= member.to:
        return None
    if feed.position(last) != first + READ.count - 1:
        return None
    batch = <Batch>READ.batch
    return batch if batch.kind == KIND_RECORDS and is_plain(batch, timeless) else None


cdef uint64_t take_batch(Cursor cursor, Batch batch, bint settled) except 0:
    cdef Member* member = NULL
    cdef Entry* entry
    cdef uint64_t seq, last = batch.base_lsn + batch.count - 1
    cdef uint32_t i
    count_active(&cursor._members, &member)
    if settled:
        push_done(&cursor._window, last, cursor.outstanding)
        seq = cursor._window.tail
        cursor.settled += batch.count
        if EVENTS.kinds >> ACK & 1:
            for i in range(batch.count):
                note_message(ACK, cursor, batch.base_lsn + i, None)
        cursor._soil()
    else:
        while cursor._window.ring == NULL or cursor._window.tail - cursor._window.head + batch.count > cursor._window.mask + 1:
            make_room(&cursor._window, cursor.outstanding)
        seq = cursor._window.tail
        for i in range(batch.count):
            entry = &cursor._window.ring[(seq + i) & cursor._window.mask]
            entry.pos = batch.base_lsn + i
            entry.match = member.tag
            entry.size = 0
            entry.count = 0
            entry.state = OUT
            entry.level = 0
            entry.slot = 0
        cursor._window.tail = seq + batch.count
        cursor.outstanding += batch.count
    member.next += batch.count
    cursor.frontier = last
    return seq
