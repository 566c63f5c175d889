# cython: auto_pickle=False
"""One queue's place in its feeds: what is taken, settled, given back, and what comes next.

A cursor is where the queue stands (_cursor_state.pyx: memberships and the window of what it took), how much it
may hold (_bounds.pyx), and how it moves. Reading merges the feeds by position, equal positions once. Nothing
here knows of consumers, protocols or files; records are found through the log core's cache, and where one is
not in memory `take` stops and says which (`cold`, `cold_feed`), so that the queue can ask for it.

A cursor with priorities or a byte limit gathers: before a take, everything ready is admitted to the window as
READY, where the heap sorts it by priority and its bytes are counted. That costs 32 bytes of memory for each
ready message; other cursors leave what they did not take in the feeds. One that drops the newest of too many
gathers when it is told to (`cap`), so that what a consumer takes at once is never too much.

The result of a take is one for the process (_take_result.pyx): the next take of any cursor overwrites it.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport F_PERSISTENT, Batch, RecordHeader
from penstock.log_core.feeds._feed cimport Feed
from penstock.subscriptions.cursor._events cimport ACK, DROP, EVENTS, REQUEUE, note_message
from penstock.subscriptions.cursor._memberships cimport (
    HEADS,
    Member,
    TagSets,
    count_active,
    end_of,
    next_merged,
    recount,
    start_merge,
    uncount,
)
from penstock.subscriptions.cursor._rules cimport CursorRules, expiry_of, let_go
from penstock.subscriptions.cursor._ranges cimport Run, run_of
from penstock.subscriptions.cursor._take_result cimport (
    KeptResult,
    COUNTED,
    MATCH_SET,
    MAX_TAKE,
    READ,
    TAKEN,
    Item,
    begin_take,
    find_record,
    header_of,
    stop_at_entry,
)
from penstock.subscriptions.cursor._window cimport (
    DONE,
    LOOSE,
    OUT,
    READY,
    RELEASED_MAX,
    SEQ_BITS,
    Entry,
    Window,
    advance,
    first_ready,
    is_full,
    make_room,
    entry_of,
    pop_ready,
    push_ready,
    ready_in,
    settle_aside,
)

from penstock.subscriptions.cursor._events import settled_as

cdef enum:                      # what _stale says
    REPORTED = 2
    FULL = 3

cdef enum:
    REPORTED_MAX = 128          # records one take may report as expired, or as too many: each costs some work
    GATHER_MAX = 65536          # records one take gathers, about 3 ms

cdef uint64_t POSITIONS[MAX_TAKE]


cdef class Cursor(CursorLimits):
    def succeed(self, Cursor former not None):
        self.queue, former.queue = former.queue, None
        self.is_kept, former.is_kept = former.is_kept, False
        self.place, former.place = former.place, 0
        self.scheduled = former.scheduled
        self._seen = former._seen
        self.touch()

    # Taking

    cpdef Py_ssize_t take(self, Py_ssize_t n) except -1:
        cdef int64_t now = 0
        cdef Py_ssize_t active
        cdef Member* only = NULL
        cdef uint64_t first, waiting
        begin_take()
        if n > MAX_TAKE:
            n = MAX_TAKE
        if self._gathers:
            self._gather(&now)
            if self._rules.priority_max and (TAKEN.cold or TAKEN.cold_feed != NULL or TAKEN.more):
                n = 0                       # what comes first is not known yet
        if ready_in(&self._window):
            self._take_ready(n, &now)
        waiting = TAKEN.n
        if not TAKEN.cold and TAKEN.n < n and not self._gathers:
            active = count_active(&self._members, &only)
            if active == 1:
                first = only.next
                self._take_one(only, n - TAKEN.n, &now)
                if not waiting and TAKEN.plain and <uint64_t>TAKEN.n == only.next - first:
                    TAKEN.run_feed = (<Feed>only.feed).id
                    TAKEN.run_first = first
                    TAKEN.run_count = <uint32_t>TAKEN.n
            elif active:
                self._take_merged(n - TAKEN.n, &now)
        if self._rules is not None and self._rules.dropped is not None:
            self._report()
        return TAKEN.n

    cdef int _report(self) except -1:
        """Tell of what this take found expired."""
        dropped = self._rules.dropped
        self._rules.dropped = None
        if self._gathers:               # what was looked at only now was told before what had waited
            dropped.sort(key=self._order)
        self._rules.on_expired(dropped)
        return 0

    def _order(self, uint64_t seq):
        return <uint64_t>entry_of(&self._window, seq).level << SEQ_BITS | seq

    cdef int _take_ready(self, Py_ssize_t n, int64_t* now) except -1:
        cdef uint64_t seq
        cdef Entry* entry
        cdef int stale
        while ready_in(&self._window) and TAKEN.n < n:
            seq = first_ready(&self._window)
            entry = entry_of(&self._window, seq)
            if not find_record(self._log, entry.pos):
                self._missing(entry.pos)
                return 0
            stale = self._stale(entry.pos, entry.count + entry.released, now)
            if stale == FULL:
                return 0
            self._unready()
            if stale == 1:
                self._settle(seq, entry)
                continue
            entry.state = OUT
            self.outstanding += 1
            if stale:
                self._loose(entry)
                self._rules.dropped.append(seq)
                continue
            self._give(seq, entry)
        return 0

    cdef int _gather(self, int64_t* now) except -1:
        """Admit all there is as READY; where it stops short, `cold` and the like say why, `more` that it was enough."""
        cdef Member* only = NULL
        cdef Py_ssize_t active = count_active(&self._members, &only)
        if active == 1:
            self._take_one(only, GATHER_MAX, now)
        elif active:
            self._take_merged(GATHER_MAX, now)
        if TAKEN.cold or TAKEN.cold_feed != NULL or TAKEN.unwritten or TAKEN.held or TAKEN.more:
            return 0
        if count_active(&self._members, &only):
            TAKEN.more = True
        else:
            self._rules.ahead = 0
        return 0

    cdef int _take_one(self, Member* member, Py_ssize_t n, int64_t* now) except -1:
        cdef Feed feed = <Feed>member.feed
        cdef uint64_t end = end_of(member), pos
        cdef Py_ssize_t i, got
        cdef int given
        cdef bint unwanted
        if self.skip_transient_until and feed.persistent_end <= member.next:
            self._pass_transient(feed, member, end)
        while n and member.next < end:
            got = feed.copy(member.next, min(n, MAX_TAKE, <Py_ssize_t>(end - member.next)), POSITIONS)
            if got <= 0:
                stop_at_entry(feed, member.next)
                return 0
            for i in range(got):
                pos = POSITIONS[i]
                unwanted = pos < self.skip_transient_until and feed.is_transient(member.next)
                given = self._admit(pos, member.tag, unwanted, now)
                if given == 2:
                    return 0
                n -= given
                member.next += 1
        return 0

    cdef int _pass_transient(self, Feed feed, Member* member, uint64_t end) except -1:
        """Everything left is transient: pass what is to be skipped in one step."""
        cdef uint64_t to = min(end, feed.index_of(self.skip_transient_until)), pos
        if to > member.next:
            pos = feed.position(to - 1)
            if pos:
                member.next = to
                recount(&self._members)
                self._skip(pos)
        return 0

    cdef int _take_merged(self, Py_ssize_t n, int64_t* now) except -1:
        cdef Py_ssize_t heads = start_merge(&self._members, False), i
        cdef uint64_t pos, slots, memo = 0          # sets of memberships, as bits
        cdef uint32_t match, memo_match = 0
        cdef Member* member
        cdef bint unwanted
        cdef int given
        if heads < 0:
            return 0
        while heads and n:
            pos = HEADS[0].pos
            member = &self._members.list[HEADS[0].slot]
            match = member.tag
            if heads > 1 and (HEADS[1].pos == pos or (heads > 2 and HEADS[2].pos == pos)):
                slots = 0
                for i in range(heads):
                    if HEADS[i].pos == pos:
                        slots |= <uint64_t>1 << (HEADS[i].slot & 63)
                if slots != memo or self._members.n > 64:
                    memo = slots
                    memo_match = self._match_of(heads)
                match = memo_match
            unwanted = pos < self.skip_transient_until and (<Feed>member.feed).is_transient(member.next)
            given = self._admit(pos, match, unwanted, now)
            if given == 2:
                return 0
            n -= given
            while heads and HEADS[0].pos == pos:
                heads = next_merged(&self._members, heads, False)
                if heads < 0:
                    return 0
        return 0

    cdef uint32_t _match_of(self, Py_ssize_t heads) except? 0xFFFFFFFF:
        """The tags of all memberships that have the first position."""
        cdef Py_ssize_t i
        cdef set tags = set()
        for i in range(heads):
            if HEADS[i].pos == HEADS[0].pos:
                tags.add(self._members.list[HEADS[i].slot].tag)
        if len(tags) == 1:
            return tags.pop()
        if self._sets is None:
            self._sets = TagSets()
        return self._sets.intern(tuple(sorted(tags)))

    cpdef tuple match_tags(self, uint32_t match):
        return (match,) if match < MATCH_SET else self._sets.tags(match)

    cdef int _admit(self, uint64_t pos, uint32_t match, bint unwanted, int64_t* now) except -1:
        """Look at the next position: 1 given or gathered, 0 skipped and done, 2 not in memory or `more` (nothing changed).
        """
        cdef Run* run = NULL
        cdef RecordHeader* header
        cdef CursorRules rules
        cdef uint64_t seq
        cdef Entry* entry
        cdef uint16_t count = 0, released = 0
        cdef int stale
        if self._runs != NULL:
            run = run_of(&self._runs, pos)
            if run != NULL:
                if run.done:
                    self._skip(pos)
                    return 0
                count = run.count
                released = run.released
        if unwanted:                        # without a look at the record, which may be on disk
            uncount(&self._members, pos)
            self._skip(pos)
            return 0
        if not find_record(self._log, pos):
            self._missing(pos)
            return 2
        stale = self._stale(pos, count + released, now)
        if stale == FULL:
            return 2
        if self._gathers and self._rules.caps and len(self._rules.excess) >= REPORTED_MAX:
            TAKEN.more = True
            return 2
        uncount(&self._members, pos)
        if stale == 1:
            if self._notes is not None:
                self._forget(pos)
            self._skip(pos)
            return 0
        if is_full(&self._window):
            make_room(&self._window, self.outstanding + ready_in(&self._window))
        seq = self._window.tail
        self._window.tail = seq + 1
        entry = &self._window.ring[seq & self._window.mask]
        entry.pos = pos
        entry.match = match
        entry.size = 0
        entry.count = count
        entry.state = OUT
        entry.level = 0
        entry.slot = 0                      # beside `released`: one store for both
        entry.released = released
        if count or released:
            self._window.touched = seq
        self.frontier = pos
        rules = self._rules
        if rules is not None:
            header = header_of(pos)
            if rules.bytes_max >= 0 and not stale:
                entry.size = header.size - header.key - header.props
                rules.ahead -= min(<uint64_t>entry.size, rules.ahead)
            if self._gathers:
                entry.level = rules.priority_max - min(header.priority, rules.priority_max)
            if self._gathers and not stale and not (rules.caps and self._is_excess(entry.size)):
                entry.state = READY
                self._ready(seq, entry)
                return 1
        self.outstanding += 1
        if stale:
            self._loose(entry)
            rules.dropped.append(seq)
            return 0
        if self._gathers:
            self._loose(entry)
            rules.excess.append(seq)
            return 1
        self._give(seq, entry)
        return 1

    cdef void _give(self, uint64_t seq, Entry* entry) noexcept:
        cdef Item* item = &TAKEN.items[TAKEN.n]
        item.seq = seq
        item.batch = READ.batch
        item.index = <uint32_t>(entry.pos - READ.base)
        item.match = entry.match
        item.count = entry.count
        item.released = entry.released
        item.redelivered = 0
        if entry.count or entry.released or entry.pos <= self.unclean_until:
            TAKEN.plain = False
            item.redelivered = 1
            if (entry.count or entry.released) and self._rules is not None and self._rules.tells_count:
                item.redelivered = COUNTED
        TAKEN.n += 1

    cdef void _missing(self, uint64_t pos):
        if pos > self._log.written_lsn:
            TAKEN.unwritten = True
        elif pos > self._log.visible_lsn:
            TAKEN.held = True
        else:
            TAKEN.cold = pos

    cdef int _stale(self, uint64_t pos, uint32_t count, int64_t* now) except -1:
        """1 when nobody may have the record: lost, its time is over, or it missed an offline session; else 0.

        REPORTED: its time is over, and `on_expired` is to be told. FULL: the same, but this take has told enough.
        """
        cdef RecordHeader* header = header_of(pos)
        cdef CursorRules rules
        cdef int64_t until
        if READ.lost:
            self.lost += 1
            if EVENTS.kinds:
                note_message(DROP, self, pos, "lost")
            return 1
        if pos < self.skip_transient_until and not header.flags & F_PERSISTENT:
            return 1
        if header.ttl == 0 and self._rules is None:
            return 0
        rules = self._rules
        until = expiry_of(header, READ.base_ts, rules)
        if until < 0:
            return 0
        if now[0] == 0:
            now[0] = self._log.now_ms()
        if until > now[0] or pos <= self.sent_until:
            return 0
        if self.awaited and count == 0 and until == READ.base_ts + <int64_t>header.ts:
            return 0                    # a time of 0 is long enough for a consumer that waited
        if rules is None or rules.on_expired is None:
            self.expired += 1
            if EVENTS.kinds:
                note_message(DROP, self, pos, "expired")
            return 1
        if rules.dropped is None:
            rules.dropped = []
        elif len(rules.dropped) >= REPORTED_MAX:
            TAKEN.more = True
            return FULL
        self.expired += 1
        return REPORTED

    def trim(self):
        cdef KeptResult kept = KeptResult()
        try:
            if self.take(1):
                self.put_back(0)
        finally:
            kept.restore()

    def deadline(self):
        cdef Item* item = TAKEN.items
        if TAKEN.n == 0:
            raise IndexError("nothing was taken")
        return expiry_of((<Batch>item.batch).headers + item.index, (<Batch>item.batch).base_ts, self._rules)

    # Settling

    cpdef void settle(self, uint64_t seq) noexcept:
        cdef Entry* entry = entry_of(&self._window, seq)
        if entry != NULL and entry.state == OUT:
            self.outstanding -= 1
            self.settled += 1
            if EVENTS.kinds:
                note_message(ACK, self, entry.pos, None)
            self._settle(seq, entry)

    cpdef void settle_run(self, uint64_t seq, uint64_t count) noexcept:
        cdef Window* window = &self._window
        cdef uint64_t at, mask = window.mask, last = 0
        cdef Py_ssize_t n = 0
        cdef Entry* ring = window.ring
        cdef Entry* entry
        if EVENTS.kinds or self._notes is not None or seq < window.head or window.tail < seq or window.tail - seq < count:
            for at in range(seq, seq + count):
                self.settle(at)
            return
        # All of them in the ring: nothing is set aside, and the mark moves once.
        for at in range(seq, seq + count):
            entry = &ring[at & mask]
            if entry.state == OUT:
                entry.state = DONE
                if entry.slot:
                    let_go(self._rules, entry)
                last = at
                n += 1
        if n == 0:
            return
        self.outstanding -= n
        self.settled += n
        window.touched = max(window.touched, last)
        if not self.dirty:
            self._mark_dirty()
        if seq == window.head:
            advance(window)
        if self.wake_below:
            self._wake_queue()

    cpdef void settle_taken(self, Py_ssize_t first=0, Py_ssize_t step=1) noexcept:
        cdef Py_ssize_t i
        if first >= 0 and step > 0:
            for i in range(first, TAKEN.n, step):
                self.settle(TAKEN.items[i].seq)

    cdef int _drop(self, uint64_t seq, str why) except -1:
        """Nobody wants it: it is done."""
        if EVENTS.kinds:
            settled_as(self, seq, "drop", why)
        else:
            self.settle(seq)
        return 0

    cdef void _settle(self, uint64_t seq, Entry* entry) noexcept:
        entry.state = DONE
        if self._notes is not None:
            self._forget(entry.pos)
        if entry.slot:
            let_go(self._rules, entry)
        if seq > self._window.touched:
            self._window.touched = seq
        if not self.dirty:
            self._mark_dirty()
        if seq == self._window.head:
            advance(&self._window)
        elif seq < self._window.head:
            settle_aside(&self._window)
        if self.wake_below:
            self._wake_queue()

    cdef void _wake_queue(self) noexcept:
        if self.outstanding < <Py_ssize_t>self.wake_below:
            self.wake_below = 0
            if self.queue is not None:
                self.queue.wake()

    cpdef int reject(self, uint64_t seq) except -1:
        cdef Entry* entry = entry_of(&self._window, seq)
        if self._rules is None or self._rules.on_refused is None or entry == NULL or entry.state != OUT:
            self._drop(seq, "rejected")
        else:
            self._loose(entry)
            self._rules.on_refused(seq, "rejected")
        return 0

    cpdef bint requeue(self, uint64_t seq) except -1:
        cdef Entry* entry = entry_of(&self._window, seq)
        if entry == NULL or entry.state != OUT:
            return False
        if self._rules is not None and entry.count >= self._rules.delivery_limit:
            if self._rules.on_refused is None:
                self._drop(seq, "delivery_limit")
            else:
                self._loose(entry)
                self._rules.on_refused(seq, "delivery_limit")
            return True
        self._again(seq, entry)
        if entry.count < 0xFFFF:
            entry.count += 1
        return True

    cpdef bint release(self, uint64_t seq) except -1:
        cdef Entry* entry = entry_of(&self._window, seq)
        if entry == NULL or entry.state != OUT:
            return False
        if self._rules is not None and self._rules.delivery_limit == 0:
            return self.requeue(seq)            # nothing is given twice
        self._again(seq, entry)
        if entry.released < RELEASED_MAX:
            entry.released += 1
        return True

    cdef int _again(self, uint64_t seq, Entry* entry) except -1:
        """It was delivered, and is READY at its place; the caller counts it."""
        self._ready(seq, entry)
        entry.state = READY
        if seq > self._window.touched:
            self._window.touched = seq
        self.outstanding -= 1
        self.requeued += 1
        if EVENTS.kinds:
            note_message(REQUEUE, self, entry.pos, None)
        self._mark_dirty()
        if not self.scheduled and self.queue is not None:
            self.queue.wake()
        return 0

    def retries_of(self, uint64_t seq):
        cdef Entry* entry = entry_of(&self._window, seq)
        if entry == NULL or entry.state != OUT:
            return -1
        if self._rules is not None and entry.count >= self._rules.delivery_limit:
            return -1
        return entry.count

    cpdef bint unsend(self, uint64_t seq) except -1:
        cdef Entry* entry = entry_of(&self._window, seq)
        if entry == NULL or entry.state != OUT:
            return False
        self._ready(seq, entry)
        entry.state = READY
        self.outstanding -= 1
        return True

    cpdef void unhold(self, uint64_t seq) noexcept:
        cdef Entry* entry = entry_of(&self._window, seq)
        if entry != NULL and entry.state == OUT:
            if entry.slot:
                let_go(self._rules, entry)
            self._loose(entry)

    cdef void _loose(self, Entry* entry) noexcept:
        """No consumer has it any more, though it is out. A key that it holds stays held until it is not."""
        if entry.slot == 0:
            entry.slot = LOOSE

    cpdef Py_ssize_t requeue_all(self) except -1:
        cdef uint64_t seq
        cdef Py_ssize_t n = 0
        if self.outstanding == 0:
            return 0
        for seq in self._out():
            if entry_of(&self._window, seq).slot != LOOSE:
                n += self.requeue(seq)
        return n

    def _out(self):
        """The seqs of what is out, in order."""
        cdef uint64_t seq
        cdef Py_ssize_t i
        cdef list out = []
        if self._window.aside != NULL:
            for i in range(self._window.aside.first, self._window.aside.n):
                if self._window.aside.places[i].entry.state == OUT:
                    out.append(self._window.aside.places[i].seq)
        for seq in range(self._window.head, self._window.tail):
            if self._window.ring[seq & self._window.mask].state == OUT:
                out.append(seq)
        return out

    cpdef Py_ssize_t put_back(self, Py_ssize_t first, Py_ssize_t step=1, Py_ssize_t took=0) except -1:
        cdef Py_ssize_t i, n = 0
        cdef Entry* entry
        if first < 0 or step < 1 or took < 0:
            raise ValueError(f"no slice of items: first={first}, step={step}, took={took}")
        for i in range(first + step * took, TAKEN.n, step):
            entry = entry_of(&self._window, TAKEN.items[i].seq)
            if entry != NULL and entry.state == OUT:
                self._ready(TAKEN.items[i].seq, entry)
                entry.state = READY
                self.outstanding -= 1
                n += 1
        return n

    cdef int _ready(self, uint64_t seq, Entry* entry) except -1:
        push_ready(&self._window, seq, entry)
        if entry.slot:
            let_go(self._rules, entry)
        if self._rules is not None and self._rules.bytes_max >= 0:
            self._rules.bytes += entry.size
        return 0

    cdef void _unready(self) noexcept:
        if self._rules is not None and self._rules.bytes_max >= 0:
            self._rules.bytes -= entry_of(&self._window, first_ready(&self._window)).size
        pop_ready(&self._window)

    # Rules

    def gather(self):
        cdef int64_t now = 0
        begin_take()
        if self._gathers:
            self._gather(&now)
            if self._rules.dropped is not None:
                self._report()

    def cap(self, int64_t length_max):
        cdef CursorRules rules = self.rules
        cdef bint gathers = self._gathers
        cdef list excess = []
        rules.caps = self._gathers = True
        rules.cap = length_max
        rules.excess = excess
        try:
            self.gather()
        finally:
            rules.caps = False
            self._gathers = gathers
            rules.excess = None
        if excess and rules.on_excess is not None:
            rules.on_excess(excess)
        else:
            for seq in excess:
                self.settle(seq)
