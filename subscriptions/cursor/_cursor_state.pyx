# cython: auto_pickle=False
"""Where a queue stands: its memberships, its window, and what a restart and the log must know of both.

It does not move by itself: `Cursor` takes and settles, `CursorLimits` drops.
"""

from cpython.object cimport PyObject
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t

from penstock.log_core.feeds._feed cimport Feed
from penstock.log_core.maintenance._seal cimport Needs
from penstock.subscriptions.cursor._backlog_count cimport count_untaken
from penstock.subscriptions.cursor._memberships cimport Member, add_member, end_of, free_members, remove_member
from penstock.subscriptions.cursor._ranges cimport add_run, free_runs, last_known
from penstock.subscriptions.cursor._state_record cimport StateReader, decode_notes, decode_runs, encode_state
from penstock.subscriptions.cursor._take_result cimport MATCH_SET, TakeResult
from penstock.subscriptions.cursor._window cimport (
    DONE,
    OUT,
    READY,
    Entry,
    free_window,
    idle_window,
    entry_of,
    ready_in,
    undone_of,
)

from penstock.errors import SubscriptionError

cdef enum:
    NOTES_MAX = 1 << 20         # bytes of a cursor's notes: they stand in each state record
    NOTE_OVERHEAD = 128         # what a note costs beside its own bytes

cdef enum:                      # `_seen` besides what was found
    NEVER = 0
    TOUCHED = 1


cdef inline uint64_t mixed(uint64_t found, uint64_t number) noexcept nogil:
    """Another number, mixed in: a multiplication by 2^64 over the golden ratio."""
    found = (found ^ number) * <uint64_t>0x9E3779B97F4A7C15
    return found ^ found >> 32


cdef class CursorState(TakeResult):
    def __cinit__(self, log):
        self._log = log
        self._feeds = ()
        self._window.head = self._window.tail = 1       # seq 0 is never used

    def __dealloc__(self):
        free_members(&self._members)
        free_window(&self._window)
        free_runs(&self._runs)

    # Memberships

    def join(self, Feed feed not None, from_pos=None, uint32_t tag=0):
        cdef uint64_t index, start
        cdef uint32_t i
        cdef Member* member
        if tag >= MATCH_SET:
            raise ValueError(f"tag {tag} is not below 2^31")
        for i in range(self._members.n):
            member = &self._members.list[i]
            if member.feed == <PyObject*>feed and member.tag == tag:
                if not member.closed:
                    return False
                if member.to == feed.end and from_pos is None:      # nothing missed: it goes on
                    member.closed = False
                    member.to = member.to_pos = UINT64_MAX
                    self._members.closed -= 1
                    self._mark_dirty()
                    return True
        start = self._log.appender.next_lsn
        index = feed.end
        if from_pos is not None and <uint64_t>from_pos < start:
            start = max(<uint64_t>from_pos, self._floor() + 1)
            index = feed.index_of(start)
        self._add(feed, tag, index).from_pos = start
        self._mark_dirty()
        return True

    def join_part(self, Feed feed not None, uint64_t from_pos, to_pos=None, uint32_t tag=0):
        cdef uint64_t start = max(from_pos, self._floor() + 1)
        cdef Member* member = self._add(feed, tag, feed.index_of(start))
        member.from_pos = start
        if to_pos is not None:
            self._close(member, to_pos, feed.index_of(to_pos))
        self._mark_dirty()

    def begin(self, Feed feed not None, uint64_t index):
        if self._members.n or self.frontier:
            raise SubscriptionError("a cursor that was used cannot begin elsewhere", remedy="begin with a new one")
        self._add(feed, 0, index)

    def reach(self, uint64_t index):
        self._members.list[0].to = index

    def leave(self, Feed feed not None, uint32_t tag=0):
        cdef uint32_t i
        cdef Member* member
        for i in range(self._members.n):
            member = &self._members.list[i]
            if member.feed == <PyObject*>feed and member.tag == tag and not member.closed:
                self._close(member, self._log.appender.next_lsn, feed.end)
                self._mark_dirty()
                return True
        return False

    def reap(self):
        cdef list gone = []
        cdef list feeds
        cdef Py_ssize_t i = 0
        cdef Member* member
        cdef uint64_t undone
        if self._members.closed == 0:
            return gone
        undone = self._undone() or UINT64_MAX
        feeds = self.feeds
        while i < self._members.n:
            member = &self._members.list[i]
            # A message that is out must be found again after a crash: the membership stays until it is done.
            if member.closed and member.next >= end_of(member) and undone >= member.to_pos:
                gone.append(feeds.pop(i))
                remove_member(&self._members, i)
            else:
                i += 1
        if gone:
            self._feeds = feeds[0] if len(feeds) == 1 else tuple(feeds)
            self._mark_dirty()
        return gone

    def memberships(self):
        cdef uint32_t i
        return [
            (
                (<Feed>self._members.list[i].feed).id,
                self._members.list[i].tag,
                self._members.list[i].from_pos,
                None if not self._members.list[i].closed else self._members.list[i].to_pos,
            )
            for i in range(self._members.n)
        ]

    @property
    def feeds(self):
        return [self._feeds] if isinstance(self._feeds, Feed) else list(self._feeds)

    @property
    def member_count(self):
        return self._members.n

    @property
    def window(self):
        cdef Py_ssize_t aside = 0
        if self._window.aside != NULL:
            aside = self._window.aside.n - self._window.aside.first
        return self._window.tail - self._window.head + aside

    @property
    def mark(self):
        return self._undone() - 1 if self._undone() else self._window.done_to

    def refuse(self, uint64_t pos):
        if pos <= self._floor():
            raise ValueError(f"position {pos} is not behind everything this cursor knows")
        add_run(&self._runs, pos, pos, 0, 0, True)
        self._mark_dirty()

    cdef uint64_t _undone(self) noexcept:
        """The lowest position that was taken and is not done; 0: none."""
        return undone_of(&self._window)

    cdef uint64_t _floor(self) noexcept:
        """The highest position a new membership may not reach below."""
        return max(self.frontier, self._window.done_to, last_known(self._runs))

    cdef Member* _add(self, Feed feed, uint32_t tag, uint64_t index) except NULL:
        cdef object feeds = feed if self._members.n == 0 else (*self.feeds, feed)
        cdef Member* member = add_member(&self._members, feed, tag, index)
        self._feeds = feeds
        return member

    cdef void _close(self, Member* member, uint64_t to_pos, uint64_t to) noexcept:
        member.closed = True
        member.to_pos = to_pos
        member.to = to
        self._members.closed += 1

    cdef void _mark_dirty(self) noexcept:
        """The state record is out of date now."""
        if not self.dirty:
            self.dirty = True
            if not self.is_kept:
                return
            if self.dirty_queues is not None and PyList_GET_SIZE(self.dirty_queues) > 0:
                self.dirty_queues.append(self.queue)      # others are there: that these are put is seen to
            else:
                self.queue.mark_dirty()

    # Statistics

    cpdef bint is_counted(self) noexcept:
        return self._seen != NEVER

    cpdef void touch(self) noexcept:
        if self._seen != NEVER:
            self._seen = TOUCHED

    cdef bint has_moved(self, uint64_t handed_out) noexcept:
        """Whether a count of its queue may differ from the last call; `handed_out` is one that the queue has."""
        # Numbers that never fall as long as the memberships stay, so a mixture that is the same says that they are.
        cdef uint64_t found = mixed(mixed(handed_out, self.settled), self.requeued)
        cdef uint32_t i
        cdef Member* member
        found = mixed(mixed(found, self.expired), self.lost)
        found = mixed(mixed(mixed(found, self.frontier), <uint64_t>self.outstanding), ready_in(&self._window))
        for i in range(self._members.n):
            member = &self._members.list[i]
            found = mixed(mixed(found, end_of(member)), member.next)
        if found <= TOUCHED:
            found += TOUCHED + 1
        if found == self._seen:
            return False
        self._seen = found
        return True

    # The window

    def position(self, uint64_t seq):
        cdef Entry* entry = entry_of(&self._window, seq)
        return entry.pos if entry != NULL and entry.state == OUT else 0

    def idle(self):
        idle_window(&self._window)

    # Notes

    def note(self, uint64_t seq, bytes note not None):
        cdef Entry* entry = entry_of(&self._window, seq)
        cdef Py_ssize_t size = len(note) + NOTE_OVERHEAD
        if entry == NULL or entry.state != OUT:
            return True
        if self._notes is not None:
            for pos, other in self._notes.items():
                size += len(other) + NOTE_OVERHEAD if pos != entry.pos else 0
        if size > NOTES_MAX:
            return False
        if self._notes is None:
            self._notes = {}
        self._notes[entry.pos] = note
        self._mark_dirty()
        return True

    cpdef bytes note_of(self, uint64_t pos):
        return b"" if self._notes is None else self._notes.get(pos, b"")

    cdef void _forget(self, uint64_t pos) noexcept:
        """The position is done, and so is its note; the caller saw that there are notes."""
        self._notes.pop(pos, None)
        if not self._notes:
            self._notes = None

    # The positions that are needed

    cpdef uint64_t ready_count(self) except? 0xFFFFFFFFFFFFFFFF:
        return count_untaken(self._log, &self._members, self._runs) + ready_in(&self._window)

    def needs(self, Needs needs not None):
        cdef uint64_t seq, position, index, end
        cdef Py_ssize_t i
        cdef Member* member
        cdef Feed feed
        if self._window.aside != NULL:
            for i in range(self._window.aside.first, self._window.aside.n):
                if self._window.aside.places[i].entry.state != DONE:
                    needs.need(self._window.aside.places[i].entry.pos)
        for seq in range(self._window.head, self._window.tail):
            if self._window.ring[seq & self._window.mask].state != DONE:
                needs.need(self._window.ring[seq & self._window.mask].pos)
        for i in range(self._members.n):
            member = &self._members.list[i]
            feed = <Feed>member.feed
            end = end_of(member)
            if member.next >= end:
                continue
            position = feed.position(member.next) or max(member.from_pos, self.frontier + 1)
            if not feed.is_history:
                needs.need_feed(feed.id, position, member.to_pos)
                continue
            # Its records do not name it.
            index = max(member.next, feed.index_of(needs.base))
            while index < end:
                position = feed.position(index)
                if position == 0:
                    if feed.base_of(index) >= needs.end:
                        break
                    return feed, index
                if position >= needs.end:
                    break
                needs.need(position)
                index += 1
        return None

    cpdef uint64_t low(self) noexcept:
        cdef uint64_t low = self._undone() or UINT64_MAX, pos
        cdef uint32_t i
        cdef Member* member
        for i in range(self._members.n if low == UINT64_MAX else 0):
            member = &self._members.list[i]
            if member.next < end_of(member):
                if self.skip_transient_until == UINT64_MAX and (<Feed>member.feed).persistent_end <= member.next:
                    continue
                pos = (<Feed>member.feed).position(member.next)
                if pos == 0:
                    pos = max(member.from_pos, self.frontier + 1)
                low = min(low, pos)
        return low

    def fate(self, uint64_t pos):
        cdef uint64_t seq
        cdef Py_ssize_t i
        cdef Entry* entry = NULL
        if self._window.aside != NULL:
            for i in range(self._window.aside.first, self._window.aside.n):
                if self._window.aside.places[i].entry.pos == pos:
                    entry = &self._window.aside.places[i].entry
        for seq in range(self._window.head, self._window.tail):
            if self._window.ring[seq & self._window.mask].pos == pos:
                entry = &self._window.ring[seq & self._window.mask]
                break
        if entry != NULL:
            return "out" if entry.state == OUT else "ready" if entry.state == READY else "done"
        if pos <= self.frontier:
            return "done"
        if self._runs != NULL:
            for i in range(self._runs.at, self._runs.n):
                if self._runs.runs[i].done and self._runs.runs[i].first <= pos <= self._runs.runs[i].last:
                    return "done"
        return "ready"

    # State

    def state(self, Py_ssize_t runs_max=1000, bint final=False):
        return encode_state(&self._window, &self._members, self._runs, self.frontier, self.unclean_until,
                            runs_max, final, self._notes)

    def clean(self):
        self.dirty = False

    def restore(self, bytes data not None, feed_of, uint64_t unclean_until=0):
        cdef StateReader reader
        cdef uint64_t from_pos, to_pos
        cdef uint32_t tag
        cdef Member* member
        cdef Feed feed
        if self._members.n or self.frontier:
            raise SubscriptionError("a cursor that was used cannot be restored", remedy="restore a new one")
        reader = StateReader(data)
        self._window.done_to = reader.get()
        self.unclean_until = max(reader.get(), unclean_until)
        self.frontier = self._window.done_to
        missing = []
        for _ in range(reader.get()):
            feed_id = reader.get()
            tag = <uint32_t>(reader.get() & (MATCH_SET - 1))
            from_pos = reader.get()
            to_pos = reader.get()
            feed = feed_of(feed_id)
            if feed is None:
                missing.append(feed_id)
                continue
            member = self._add(feed, tag, feed.index_of(max(from_pos, self._window.done_to + 1)))
            member.from_pos = from_pos
            if to_pos:
                self._close(member, to_pos, feed.index_of(to_pos))
        decode_runs(reader, self._window.done_to, &self._runs)
        self._notes = decode_notes(reader, self._window.done_to)
        return missing
