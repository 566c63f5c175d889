# cython: auto_pickle=False
"""One queue's place in its feeds: what is taken, settled, given back, and what comes next.

A cursor owns memberships and a window. A membership is the part of a feed that belongs to the
queue: entries [next, to) are still to be taken. The window is a ring of everything taken from the
first position that is not done on, in log order; `seq` numbers its places and names a delivery.
Reading merges the feeds by position, equal positions once. Nothing here knows of consumers,
protocols or files; records are found through the log core's cache, and where one is not in memory
`take` stops and says which (`cold`, `cold_feed`), so that the queue can ask for it.

States of a place:

    OUT     taken, neither settled nor given back           take -> OUT
    READY   to be given again, before anything newer        requeue (counted), put_back (not counted)
    DONE    settled, expired, purged or skipped             settle, purge

The mark moves over DONE places at the head. READY places stand in a heap of seqs, so that they go
out in log order. A DONE place stands for every position after the place before it up to its own:
positions between two places are either done or not of this queue, because places are taken in log
order and a membership never starts below the frontier. That makes a purge one place, and done
ranges in a state record ranges of positions.

A state record (`state`), varints as in LEB128:

    version u8 = 1 | mark | unclean_until
    members n, then n x: feed id | tag | from_pos | to_pos (0 = open)
    runs n, then n x: first - last of the run before (mark for run 0) | last - first | count << 1 | done

Runs are ascending, apart, and above the mark. One that is not done says how often its records
were delivered before. Nothing else of a window is kept: what was out comes back.

Places that stay undone while thousands after them are done are set aside, so that one consumer that
never acknowledges does not make the ring grow with the traffic. Everything between them is done.

`items` is one scratch array of the process: the next take of any cursor overwrites it.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from penstock.log_core._batch cimport F_PERSISTENT, KIND_LOST, Batch, RecordHeader
from penstock.log_core._feed cimport Feed
from penstock.log_core._tail cimport Cache

from penstock.errors import SubscriptionError

cdef enum:
    OUT = 1
    READY = 2
    DONE = 3
    STATE_VERSION = 1
    RING_MIN = 16               # places of a first ring: 256 B
    COUNT_LOADS = 32            # chunks of feed entries that one count reads from disk; about 1 ms each when large
    EXPIRED_MAX = 128           # records one take may report as expired: each costs its listener some work
    NO_LIMIT = 0xFFFF           # more deliveries than a place counts
    TTL_NEVER = 0xFFFFFFFF

cdef struct Head:               # one feed's next entry while several are merged
    uint64_t pos
    Py_ssize_t slot

cdef struct Reading:            # the batch that was read last; HELD[-1] owns it, READ_CACHE the cache
    PyObject* cache
    PyObject* batch
    RecordHeader* headers
    uint64_t base
    uint64_t count
    int64_t base_ts
    bint lost                   # it stands for records that cannot be read any more

cdef Item ITEMS[MAX_TAKE]
cdef uint64_t POSITIONS[MAX_TAKE]
cdef list HELD = []             # the batches that ITEMS points into
cdef Reading READ
cdef object READ_CACHE = None   # owned, so that no other cache can stand at its address
cdef bint PLAIN = True          # no item of this take is redelivered
cdef Head* HEADS = NULL
cdef uint32_t* TAGS = NULL
cdef Py_ssize_t HEADS_ROOM = 0
cdef Py_ssize_t RING_KEPT = 1024    # a larger ring is freed when the window empties, and sets stragglers aside

memset(&READ, 0, sizeof(READ))


def release() -> None:
    """Let go of the batches of the last take. The tick calls it when all queues are served."""
    global READ_CACHE
    HELD.clear()
    READ_CACHE = None
    memset(&READ, 0, sizeof(READ))


def set_ring_kept(places: int) -> int:
    """For tests: the ring size (a power of two) from which on stragglers are set aside; the one before."""
    global RING_KEPT
    before, RING_KEPT = RING_KEPT, places
    return before


cdef inline void _start_take() noexcept:
    """Keep only the batch read last, which the next take probably reads too."""
    if len(HELD) > 1:
        del HELD[: len(HELD) - 1]


cdef int _heads_room(Py_ssize_t n) except -1:
    global HEADS, TAGS, HEADS_ROOM
    cdef Py_ssize_t room
    cdef void* p
    if n > HEADS_ROOM:
        room = max(n, 2 * HEADS_ROOM)
        p = PyMem_Realloc(HEADS, room * sizeof(Head))
        if p == NULL:
            raise MemoryError
        HEADS = <Head*>p
        p = PyMem_Realloc(TAGS, room * sizeof(uint32_t))
        if p == NULL:
            raise MemoryError
        TAGS = <uint32_t*>p
        HEADS_ROOM = room
    return 0


cdef inline void _sift(Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    """Restore the heap HEADS[0..n) below place i."""
    cdef Head top = HEADS[i]
    cdef Py_ssize_t child
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and HEADS[child + 1].pos < HEADS[child].pos:
            child += 1
        if HEADS[child].pos >= top.pos:
            break
        HEADS[i] = HEADS[child]
        i = child
    HEADS[i] = top


cdef inline uint64_t _end(Member* member) noexcept:
    """The index where the membership ends for now; moves `next` over entries the feed gave up."""
    cdef Feed feed = <Feed>member.feed
    if member.next < feed.start:
        member.next = feed.start
    if member.counted < member.next:
        member.counted = member.next
    return feed.end if feed.end < member.to else member.to


cdef inline uint8_t* _put_varint(uint8_t* p, uint64_t value) noexcept:
    while value >= 0x80:
        p[0] = <uint8_t>(value | 0x80)
        value >>= 7
        p += 1
    p[0] = <uint8_t>value
    return p + 1


cdef struct Runs:               # the runs of a state record while it is made
    Run* runs
    Py_ssize_t n, limit
    bint broken                 # the next run does not continue the last one


cdef inline void _add_run(Runs* runs, uint64_t first, uint64_t last, uint16_t count, bint done) noexcept nogil:
    """One more run, or more of the last; what is over the limit is left out, and all after it."""
    cdef Run* run
    if runs.n and not runs.broken and runs.runs[runs.n - 1].done == done and runs.runs[runs.n - 1].count == count:
        runs.runs[runs.n - 1].last = last
    elif runs.n < runs.limit:
        run = &runs.runs[runs.n]
        run.first = first
        run.last = last
        run.count = count
        run.done = done
        runs.n += 1
        runs.broken = False
    else:
        runs.limit = 0
        runs.broken = True          # or the last run would grow over what was left out


cdef inline void _add_entry(Runs* runs, Entry* entry, uint64_t first, bint final) noexcept nogil:
    cdef uint16_t count = entry.count
    if entry.state == DONE:
        _add_run(runs, first, entry.pos, 0, True)
        return
    if final and entry.state == OUT and count < 0xFFFF:
        count += 1
    if count:
        _add_run(runs, first, entry.pos, count, False)
    else:
        runs.broken = True          # neither done nor delivered before: no run


cdef class _Varints:
    """Reads a state record; every length is checked against its end."""

    cdef bytes data
    cdef Py_ssize_t at

    def __cinit__(self, bytes data):
        self.data = data
        self.at = 0

    cdef uint64_t get(self) except? 0xFFFFFFFFFFFFFFFE:
        cdef const uint8_t* p = self.data
        cdef uint64_t value = 0
        cdef int shift = 0
        while True:
            if self.at >= len(self.data) or shift > 63:
                raise SubscriptionError("a cursor's state record is cut short or damaged")
            value |= <uint64_t>(p[self.at] & 0x7F) << shift
            self.at += 1
            if not p[self.at - 1] & 0x80:
                return value
            shift += 7


cdef class Cursor:
    def __cinit__(self, log):
        self._log = log
        self._cache = log.cache
        self._feeds = ()
        self.items = ITEMS
        self._head = self._tail = 1         # seq 0 is never used
        self.ttl_ms = -1
        self.delivery_limit = NO_LIMIT

    def __dealloc__(self):
        PyMem_Free(self._members)
        PyMem_Free(self._ring)
        PyMem_Free(self._heap)
        PyMem_Free(self._runs)
        PyMem_Free(self._aside)

    def __sizeof__(self):
        """Bytes of this cursor and all it owns, without the interned sets of tags."""
        size = type(self).__basicsize__ + self._cmembers * sizeof(Member) + self._feeds.__sizeof__()
        if self._ring != NULL:
            size += (self._mask + 1) * sizeof(Entry)
        size += self._caside * sizeof(Straggler)
        return size + self._cheap * sizeof(uint64_t) + self._nruns * sizeof(Run)

    # Memberships

    def join(self, Feed feed not None, from_pos=None, uint32_t tag=0):
        cdef uint64_t index, start
        cdef Py_ssize_t i
        cdef Member* member
        if tag >= MATCH_SET:
            raise ValueError(f"tag {tag} is not below 2^31")
        for i in range(self._nmembers):
            member = &self._members[i]
            if member.feed == <PyObject*>feed and member.tag == tag:
                if not member.closed:
                    return False
                if member.to == feed.end and from_pos is None:      # nothing missed: it goes on
                    member.closed = False
                    member.to = member.to_pos = UINT64_MAX
                    self._nclosed -= 1
                    self._soil()
                    return True
        start = self._log.appender.next_lsn
        index = feed.end
        if from_pos is not None and <uint64_t>from_pos < start:
            start = max(<uint64_t>from_pos, self._floor() + 1)
            index = feed.index_of(start)
        self._add(feed, tag, start, UINT64_MAX, index, UINT64_MAX)
        self._soil()
        return True

    def leave(self, Feed feed not None, uint32_t tag=0):
        cdef Py_ssize_t i
        cdef Member* member
        for i in range(self._nmembers):
            member = &self._members[i]
            if member.feed == <PyObject*>feed and member.tag == tag and not member.closed:
                member.closed = True
                member.to = feed.end
                member.to_pos = self._log.appender.next_lsn
                self._nclosed += 1
                self._soil()
                return True
        return False

    def reap(self):
        cdef list gone = []
        cdef Py_ssize_t i = 0
        cdef Member* member
        cdef uint64_t undone
        if self._nclosed == 0:
            return gone
        undone = self._undone() or UINT64_MAX
        while i < self._nmembers:
            member = &self._members[i]
            # What is out must be found again after a crash: the membership stays until it is done.
            if member.closed and member.next >= _end(member) and undone >= member.to_pos:
                gone.append(self._feeds[i])
                self._remove(i)
            else:
                i += 1
        if gone:
            self._soil()
        return gone

    def memberships(self):
        return [
            (
                (<Feed>self._members[i].feed).id,
                self._members[i].tag,
                self._members[i].from_pos,
                None if not self._members[i].closed else self._members[i].to_pos,
            )
            for i in range(self._nmembers)
        ]

    @property
    def feeds(self):
        return list(self._feeds)

    @property
    def member_count(self):
        return self._nmembers

    @property
    def window(self):
        return self._tail - self._head + self._naside - self._aside_first

    @property
    def mark(self):
        return self._undone() - 1 if self._undone() else self._done_to

    cdef uint64_t _floor(self) noexcept:
        """The highest position a new membership may not reach below."""
        cdef uint64_t floor = max(self.frontier, self._done_to)
        if self._nruns:
            floor = max(floor, self._runs[self._nruns - 1].last)
        return floor

    cdef int _add(self, Feed feed, uint32_t tag, uint64_t from_pos, uint64_t to_pos, uint64_t index,
                  uint64_t to) except -1:
        cdef Member* member
        cdef Py_ssize_t room
        cdef void* p
        if self._nmembers == self._cmembers:
            room = self._cmembers + 1 if self._cmembers < 2 else 2 * self._cmembers
            p = PyMem_Realloc(self._members, room * sizeof(Member))
            if p == NULL:
                raise MemoryError
            self._members = <Member*>p
            self._cmembers = room
        self._feeds += (feed,)
        member = &self._members[self._nmembers]
        member.feed = <PyObject*>feed
        member.tag = tag
        member.from_pos = from_pos
        member.to_pos = to_pos
        member.next = member.counted = index
        member.to = to
        member.closed = to != UINT64_MAX
        self._nmembers += 1
        self._nclosed += member.closed
        if index < feed.end:                # older than what was counted
            self._recount()
        return 0

    cdef int _remove(self, Py_ssize_t i) except -1:
        cdef Py_ssize_t j
        self._feeds = self._feeds[:i] + self._feeds[i + 1 :]
        self._nclosed -= self._members[i].closed
        for j in range(i, self._nmembers - 1):
            self._members[j] = self._members[j + 1]
        self._nmembers -= 1
        return 0

    cdef void _recount(self) noexcept:
        self._distinct = self._counted_pos = 0
        for i in range(self._nmembers):
            self._members[i].counted = self._members[i].next

    # Taking

    cpdef Py_ssize_t take(self, Py_ssize_t n) except -1:
        global PLAIN
        cdef int64_t now = 0
        cdef Py_ssize_t i, active = 0
        cdef Member* only = NULL
        cdef uint64_t first, waiting
        _start_take()
        self.taken = 0
        self.cold = 0
        self.cold_feed = None
        self.unwritten = False
        self.more = False
        self.run_count = 0
        PLAIN = True
        if n > MAX_TAKE:
            n = MAX_TAKE
        if self._nheap:
            self._take_ready(n, &now)
        waiting = self.taken
        if not self.cold and self.taken < n:
            for i in range(self._nmembers):
                if self._members[i].next < _end(&self._members[i]):
                    active += 1
                    only = &self._members[i]
            if active == 1:
                first = only.next
                self._take_one(only, n, &now)
                if not waiting and PLAIN and <uint64_t>self.taken == only.next - first:
                    self.run_feed = (<Feed>only.feed).id
                    self.run_first = first
                    self.run_count = <uint32_t>self.taken
            elif active:
                self._take_merged(n, &now)
        if self._dropped is not None:
            dropped = self._dropped
            self._dropped = None
            self.on_expired(dropped)
        return self.taken

    cdef int _take_ready(self, Py_ssize_t n, int64_t* now) except -1:
        cdef uint64_t seq
        cdef Entry* entry
        cdef int stale
        while self._nheap and self.taken < n:
            seq = self._heap[0]
            entry = self._entry(seq)
            if not self._find(entry.pos):
                self._missing(entry.pos)
                return 0
            stale = self._stale(entry.pos, now)
            if stale == 2:
                return 0
            self._unready()
            if stale:
                self._settle(seq, entry)
                continue
            entry.state = OUT
            self.outstanding += 1
            self._give(seq, entry)
        return 0

    cdef int _take_one(self, Member* member, Py_ssize_t n, int64_t* now) except -1:
        cdef Feed feed = <Feed>member.feed
        cdef uint64_t end = _end(member), pos
        cdef Py_ssize_t i, got
        cdef bint unwanted
        if self.skip_transient_until and feed.persistent_end <= member.next:
            self._pass_transient(feed, member, end)
        while self.taken < n and member.next < end:
            got = feed.copy(member.next, <Py_ssize_t>min(<uint64_t>(n - self.taken), end - member.next), POSITIONS)
            if got <= 0:
                self.cold_feed = feed
                self.cold_index = member.next
                return 0
            for i in range(got):
                pos = POSITIONS[i]
                unwanted = pos < self.skip_transient_until and feed.is_transient(member.next)
                if self._admit(pos, member.tag, unwanted, now) == 2:
                    return 0
                member.next += 1
        return 0

    cdef int _pass_transient(self, Feed feed, Member* member, uint64_t end) except -1:
        """Everything left is transient: pass what is to be skipped in one step."""
        cdef uint64_t to = min(end, feed.index_of(self.skip_transient_until)), pos
        if to > member.next:
            pos = feed.position(to - 1)
            if pos:
                member.next = to
                self._recount()
                self._skip(pos)
        return 0

    cdef int _take_merged(self, Py_ssize_t n, int64_t* now) except -1:
        cdef Py_ssize_t heads = self._heads(False), tags, i
        cdef uint64_t pos, slots, memo = 0          # sets of memberships, as bits
        cdef uint32_t match, memo_match = 0
        cdef Member* member
        cdef bint unwanted
        if heads < 0:
            return 0
        while heads and self.taken < n:
            pos = HEADS[0].pos
            match = self._members[HEADS[0].slot].tag
            if heads > 1 and (HEADS[1].pos == pos or (heads > 2 and HEADS[2].pos == pos)):
                tags = 0
                slots = 0
                for i in range(heads):
                    if HEADS[i].pos == pos:
                        TAGS[tags] = self._members[HEADS[i].slot].tag
                        tags += 1
                        slots |= <uint64_t>1 << (HEADS[i].slot & 63)
                if slots != memo or self._nmembers > 64:
                    memo = slots
                    memo_match = self._intern(TAGS, tags)
                match = memo_match
            member = &self._members[HEADS[0].slot]
            unwanted = pos < self.skip_transient_until and (<Feed>member.feed).is_transient(member.next)
            if self._admit(pos, match, unwanted, now) == 2:
                return 0
            while heads and HEADS[0].pos == pos:
                heads = self._next_head(heads, False)
                if heads < 0:
                    return 0
        return 0

    cdef Py_ssize_t _heads(self, bint counting) except -2:
        """Fill HEADS with the next entry of every membership that has one; -1: one is not resident."""
        cdef Py_ssize_t i, heads = 0
        cdef uint64_t index
        cdef Member* member
        _heads_room(self._nmembers)
        for i in range(self._nmembers):
            member = &self._members[i]
            if member.next < _end(member):
                index = member.counted if counting else member.next
                if index >= _end(member):
                    continue
                HEADS[heads].pos = (<Feed>member.feed).position(index)
                HEADS[heads].slot = i
                if HEADS[heads].pos == 0:
                    if not counting:
                        self.cold_feed = <Feed>member.feed
                        self.cold_index = index
                    return -1
                heads += 1
        for i in range(heads // 2 - 1, -1, -1):
            _sift(i, heads)
        return heads

    cdef Py_ssize_t _next_head(self, Py_ssize_t heads, bint counting) except -2:
        """Move the membership of HEADS[0] on by one entry; how many heads remain, -1: not resident.

        Only whole positions are ever moved over: when one membership's next entry is not resident the
        others that share the position must move too, so they do, and reading stops after them.
        """
        cdef Member* member = &self._members[HEADS[0].slot]
        cdef uint64_t index, pos, here = HEADS[0].pos
        cdef Py_ssize_t i
        if counting:
            member.counted += 1
            index = member.counted
        else:
            member.next += 1
            index = member.next
        if index >= _end(member):
            HEADS[0] = HEADS[heads - 1]
            if heads > 1:
                _sift(0, heads - 1)
            return heads - 1
        pos = (<Feed>member.feed).position(index)
        if pos:
            HEADS[0].pos = pos
            _sift(0, heads)
            return heads
        for i in range(1, heads):
            if HEADS[i].pos == here:
                if counting:
                    self._members[HEADS[i].slot].counted += 1
                else:
                    self._members[HEADS[i].slot].next += 1
        if not counting:
            self.cold_feed = <Feed>member.feed
            self.cold_index = index
        return -1

    cdef int _admit(self, uint64_t pos, uint32_t match, bint unwanted, int64_t* now) except -1:
        """Look at the next position: 1 given, 0 skipped and done, 2 not in memory or `more` (nothing changed)."""
        cdef Run* run = NULL
        cdef uint64_t seq
        cdef Entry* entry
        cdef uint16_t count = 0
        cdef int stale
        if self._runs != NULL:
            run = self._run_of(pos)
            if run != NULL:
                if run.done:
                    self._skip(pos)
                    return 0
                count = run.count
        if unwanted:                        # without a look at the record, which may be on disk
            self._uncount(pos)
            self._skip(pos)
            return 0
        if not self._find(pos):
            self._missing(pos)
            return 2
        stale = self._stale(pos, now)
        if stale:
            if stale == 1:
                self._uncount(pos)
                self._skip(pos)
                return 0
            return 2
        self._uncount(pos)
        if self._ring == NULL or self._tail - self._head > self._mask:
            self._grow()
        seq = self._tail
        self._tail = seq + 1
        entry = &self._ring[seq & self._mask]
        entry.pos = pos
        entry.match = match
        entry.count = count
        if count:
            self._touched = seq
        entry.state = OUT
        self.outstanding += 1
        self.frontier = pos
        self._give(seq, entry)
        return 1

    cdef void _uncount(self, uint64_t pos) noexcept:
        if pos <= self._counted_pos:
            self._distinct -= 1

    cdef int _give(self, uint64_t seq, Entry* entry) except -1:
        global PLAIN
        cdef Item* item = &ITEMS[self.taken]
        item.seq = seq
        item.batch = READ.batch
        item.index = <uint32_t>(entry.pos - READ.base)
        item.match = entry.match
        item.count = entry.count
        item.redelivered = entry.count > 0 or entry.pos <= self.unclean_until
        if item.redelivered:
            PLAIN = False
        self.taken += 1
        return 0

    cdef bint _find(self, uint64_t pos) except -1:
        """Make READ the batch that holds `pos`; False when it is not in memory."""
        global READ_CACHE
        cdef Batch batch
        if READ.cache == <PyObject*>self._cache and pos - READ.base < READ.count:
            return True
        batch = self._cache.find(pos)
        if batch is None:
            return False
        HELD.append(batch)
        READ.cache = <PyObject*>self._cache
        READ_CACHE = self._cache
        READ.batch = <PyObject*>batch
        READ.headers = batch.headers
        READ.lost = batch.kind == KIND_LOST
        READ.base = batch.base_lsn
        READ.count = batch.count
        READ.base_ts = batch.base_ts
        return True

    cdef void _missing(self, uint64_t pos):
        if pos > self._log.written_lsn:
            self.unwritten = True
        else:
            self.cold = pos

    cdef int _stale(self, uint64_t pos, int64_t* now) except -1:
        """1 when nobody may have the record: lost, its time is over, or it missed an offline session; else 0.

        2: its time is over, and enough were reported by this take already (`more`).
        """
        cdef RecordHeader* header = READ.headers + (pos - READ.base)
        cdef int64_t until
        if READ.lost:
            self.lost += 1
            return 1
        if pos < self.skip_transient_until and not header.flags & F_PERSISTENT:
            return 1
        until = self._expiry(header, READ.base_ts)
        if until < 0:
            return 0
        if now[0] == 0:
            now[0] = self._log.now_ms()
        if until > now[0]:
            return 0
        if self.on_expired is not None:
            if self._dropped is None:
                self._dropped = []
            elif len(self._dropped) >= EXPIRED_MAX:
                self.more = True
                return 2
            self._dropped.append(pos)
        self.expired += 1
        return 1

    cdef inline int64_t _expiry(self, RecordHeader* header, int64_t base_ts) noexcept:
        """When the record's time is over, in ms since the epoch; -1: never."""
        cdef int64_t ttl = -1
        if header.ttl != 0 and header.ttl != TTL_NEVER:
            ttl = header.ttl
        if self.ttl_ms >= 0 and (ttl < 0 or self.ttl_ms < ttl):
            ttl = max(self.ttl_ms, 1)
        return -1 if ttl < 0 else base_ts + <int64_t>header.ts + ttl

    cdef int _skip(self, uint64_t pos) except -1:
        """The next position is done without having been given to anybody."""
        self.frontier = pos
        self._soil()
        if self._head == self._tail:
            self._done_to = pos
        elif self._ring[(self._tail - 1) & self._mask].state == DONE:
            self._ring[(self._tail - 1) & self._mask].pos = pos
        else:
            self._push_done(pos)
        return 0

    cdef int _push_done(self, uint64_t pos) except -1:
        cdef Entry* entry
        if self._tail - self._head > self._mask:
            self._grow()
            if self._head == self._tail:    # all that was left of the ring was done
                self._done_to = pos
                return 0
        entry = &self._ring[self._tail & self._mask]
        entry.pos = pos
        entry.match = 0
        entry.count = 0
        entry.state = DONE
        self._touched = self._tail
        self._tail += 1
        return 0

    # Settling

    cpdef void settle(self, uint64_t seq) noexcept:
        cdef Entry* entry = self._entry(seq)
        if entry != NULL and entry.state == OUT:
            self.outstanding -= 1
            self.settled += 1
            self._settle(seq, entry)

    cpdef void settle_taken(self, Py_ssize_t first=0, Py_ssize_t step=1) noexcept:
        cdef Py_ssize_t i
        if first >= 0 and step > 0:
            for i in range(first, self.taken, step):
                self.settle(ITEMS[i].seq)

    cdef void _settle(self, uint64_t seq, Entry* entry) noexcept:
        entry.state = DONE
        if seq > self._touched:
            self._touched = seq
        if not self.dirty:
            self._soil()
        if seq == self._head:
            self._advance()
        elif seq < self._head:
            self._aside_done += 1
            self._trim_aside()
        if self.wake_below:
            self._wake_queue()

    cdef void _wake_queue(self) noexcept:
        if self.outstanding < self.wake_below:
            self.wake_below = 0
            if self.queue is not None:
                self.queue.wake()

    cdef void _advance(self) noexcept:
        cdef uint64_t head = self._head, tail = self._tail, mask = self._mask
        cdef Entry* ring = self._ring
        while head < tail and ring[head & mask].state == DONE:
            self._done_to = ring[head & mask].pos
            head += 1
        self._head = head
        if head == tail and mask >= <uint64_t>RING_KEPT:
            self._free_ring()

    cdef void _free_ring(self) noexcept:
        PyMem_Free(self._ring)
        self._ring = NULL
        self._mask = 0

    cpdef int reject(self, uint64_t seq) except -1:
        cdef Entry* entry = self._entry(seq)
        if self.on_refused is None or entry == NULL or entry.state != OUT:
            self.settle(seq)
        else:
            self.on_refused(seq, "rejected")
        return 0

    def refuse(self, uint64_t pos):
        """`pos` becomes a restored run that is done: take passes it without a look."""
        cdef void* p
        cdef Run* last
        if pos <= self._floor():
            raise ValueError(f"position {pos} is not behind everything this cursor knows")
        p = PyMem_Realloc(self._runs, (self._nruns + 1) * sizeof(Run))
        if p == NULL:
            raise MemoryError
        self._runs = <Run*>p
        last = &self._runs[self._nruns]
        last.first = last.last = pos
        last.count = 0
        last.done = True
        self._nruns += 1
        self._soil()

    def position(self, uint64_t seq):
        cdef Entry* entry = self._entry(seq)
        return entry.pos if entry != NULL and entry.state == OUT else 0

    def deadline(self):
        if self.taken == 0:
            raise IndexError("nothing was taken")
        return self._expiry((<Batch>ITEMS[0].batch).headers + ITEMS[0].index, (<Batch>ITEMS[0].batch).base_ts)

    cpdef bint requeue(self, uint64_t seq) except -1:
        cdef Entry* entry = self._entry(seq)
        if entry == NULL or entry.state != OUT:
            return False
        if entry.count >= self.delivery_limit:
            if self.on_refused is None:
                self.settle(seq)
            else:
                self.on_refused(seq, "delivery_limit")
            return True
        self._ready(seq)
        entry.state = READY
        if entry.count < 0xFFFF:
            entry.count += 1
        if seq > self._touched:
            self._touched = seq
        self.outstanding -= 1
        self.requeued += 1
        self._soil()
        if not self.scheduled and self.queue is not None:
            self.queue.wake()
        return True

    cpdef Py_ssize_t requeue_all(self) except -1:
        cdef uint64_t seq
        cdef Py_ssize_t i, n = 0
        if self.outstanding == 0:
            return 0
        for i in range(self._aside_first, self._naside):
            n += self.requeue(self._aside[i].seq)
        for seq in range(self._head, self._tail):
            n += self.requeue(seq)
        return n

    cpdef Py_ssize_t put_back(self, Py_ssize_t first, Py_ssize_t step=1, Py_ssize_t took=0) except -1:
        cdef Py_ssize_t i, n = 0
        cdef Entry* entry
        if first < 0 or step < 1 or took < 0:
            raise ValueError(f"no slice of items: first={first}, step={step}, took={took}")
        i = first + step * took
        while i < self.taken:
            entry = self._entry(ITEMS[i].seq)
            if entry != NULL and entry.state == OUT:
                self._ready(ITEMS[i].seq)
                entry.state = READY
                self.outstanding -= 1
                n += 1
            i += step
        return n

    def purge(self):
        cdef uint64_t n = self.ready_count(), pos = self._log.appender.next_lsn - 1, end
        cdef Py_ssize_t i
        cdef Entry* entry
        for i in range(self._nheap):
            self._entry(self._heap[i]).state = DONE
            self._aside_done += self._heap[i] < self._head
            self._touched = max(self._touched, self._heap[i])
        self._nheap = 0
        for i in range(self._nmembers):
            end = _end(&self._members[i])
            if self._members[i].next < end:
                self._members[i].next = end
        self._recount()
        PyMem_Free(self._runs)
        self._runs = NULL
        self._nruns = self._run = 0
        self._trim_aside()
        if self._head < self._tail:
            self._advance()
        if pos > self.frontier:
            self._skip(pos)
        self._soil()
        return n

    def idle(self):
        """Give back the memory that only a queue in use needs."""
        if self._head == self._tail:
            self._free_ring()
        if self._nheap == 0:
            PyMem_Free(self._heap)
            self._heap = NULL
            self._cheap = 0

    cdef Entry* _entry(self, uint64_t seq) noexcept:
        cdef Py_ssize_t low, high, middle
        if seq - self._head < self._tail - self._head:
            return &self._ring[seq & self._mask]
        low = self._aside_first
        high = self._naside
        while low < high:
            middle = (low + high) // 2
            if self._aside[middle].seq < seq:
                low = middle + 1
            else:
                high = middle
        if low < self._naside and self._aside[low].seq == seq:
            return &self._aside[low].entry
        return NULL

    cdef uint64_t _undone(self) noexcept:
        """The lowest position that was taken and is not done; 0: none."""
        if self._aside_first < self._naside:
            return self._aside[self._aside_first].entry.pos
        if self._head < self._tail:
            return self._ring[self._head & self._mask].pos
        return 0

    cdef int _set_aside(self) except -1:
        """Move what is not done from the older half of the ring aside."""
        cdef uint64_t seq, half = self._head + (self._tail - self._head) // 2
        cdef Py_ssize_t room
        cdef void* p
        for seq in range(self._head, half):
            if self._ring[seq & self._mask].state == DONE:
                continue
            if self._naside == self._caside:
                room = max(<Py_ssize_t>16, 2 * self._caside)
                p = PyMem_Realloc(self._aside, room * sizeof(Straggler))
                if p == NULL:
                    raise MemoryError
                self._aside = <Straggler*>p
                self._caside = room
            self._aside[self._naside].seq = seq
            self._aside[self._naside].entry = self._ring[seq & self._mask]
            self._naside += 1
            # One by one, so that a failure between two leaves each place in one of them.
            self._head = seq + 1
        self._done_to = self._ring[(half - 1) & self._mask].pos
        self._head = half
        self._advance()
        return 0

    cdef void _trim_aside(self) noexcept:
        """Drop what is done from the front, and from everywhere when that is more than half."""
        cdef Py_ssize_t i, n = 0
        while self._aside_first < self._naside and self._aside[self._aside_first].entry.state == DONE:
            self._aside_first += 1
            self._aside_done -= 1
        if self._aside_first == self._naside:
            PyMem_Free(self._aside)
            self._aside = NULL
            self._aside_first = self._naside = self._caside = 0
        elif self._aside_first + 2 * self._aside_done > self._naside:
            for i in range(self._aside_first, self._naside):
                if self._aside[i].entry.state != DONE:
                    self._aside[n] = self._aside[i]
                    n += 1
            self._naside = n
            self._aside_first = self._aside_done = 0

    cdef int _grow(self) except -1:
        cdef uint64_t room, old = self._mask, seq
        cdef Entry* ring
        cdef uint64_t span = self._tail - self._head
        cdef uint64_t undone = self.outstanding + self._nheap - (self._naside - self._aside_first - self._aside_done)
        if old >= <uint64_t>RING_KEPT - 1 and undone < span // 4:
            self._set_aside()
            if self._ring != NULL and self._tail - self._head <= self._mask:
                return 0
            old = self._mask
        room = RING_MIN if self._ring == NULL else 2 * (self._mask + 1)
        ring = <Entry*>PyMem_Malloc(room * sizeof(Entry))
        if ring == NULL:
            raise MemoryError
        for seq in range(self._head, self._tail):
            ring[seq & (room - 1)] = self._ring[seq & old]
        PyMem_Free(self._ring)
        self._ring = ring
        self._mask = room - 1
        return 0

    cdef void _soil(self) noexcept:
        """The state record is out of date now."""
        if not self.dirty:
            self.dirty = True
            if self.on_dirty is not None:
                self.on_dirty(self.queue)

    # The heap of READY seqs

    cdef int _ready(self, uint64_t seq) except -1:
        cdef Py_ssize_t i, parent
        cdef void* p
        if self._nheap == self._cheap:
            i = max(16, 2 * self._cheap)
            p = PyMem_Realloc(self._heap, i * sizeof(uint64_t))
            if p == NULL:
                raise MemoryError
            self._heap = <uint64_t*>p
            self._cheap = i
        i = self._nheap
        self._nheap += 1
        while i:
            parent = (i - 1) // 2
            if self._heap[parent] <= seq:
                break
            self._heap[i] = self._heap[parent]
            i = parent
        self._heap[i] = seq
        return 0

    cdef void _unready(self) noexcept:
        """Take the lowest seq off the heap."""
        cdef Py_ssize_t i = 0, child, n = self._nheap - 1
        cdef uint64_t last = self._heap[n]
        self._nheap = n
        while True:
            child = 2 * i + 1
            if child >= n:
                break
            if child + 1 < n and self._heap[child + 1] < self._heap[child]:
                child += 1
            if self._heap[child] >= last:
                break
            self._heap[i] = self._heap[child]
            i = child
        self._heap[i] = last

    # Sets of tags

    cdef uint32_t _intern(self, uint32_t* tags, Py_ssize_t n) except? 0xFFFFFFFF:
        cdef Py_ssize_t i
        for i in range(1, n):
            if tags[i] != tags[0]:
                break
        else:
            return tags[0]
        key = tuple(sorted({tags[i] for i in range(n)}))
        if self._set_ids is None:
            self._set_ids = {}
            self._sets = []
        found = self._set_ids.get(key)
        if found is None:
            found = MATCH_SET | <uint32_t>len(self._sets)
            self._set_ids[key] = found
            self._sets.append(key)
        return found

    cpdef tuple match_tags(self, uint32_t match):
        if match < MATCH_SET:
            return (match,)
        return self._sets[match & ~<uint32_t>MATCH_SET]

    # Counting

    cpdef uint64_t ready_count(self) except? 0xFFFFFFFFFFFFFFFF:
        cdef Py_ssize_t i, active = 0
        cdef Member* only = NULL
        cdef uint64_t n, first, last, end
        for i in range(self._nmembers):
            if self._members[i].next < _end(&self._members[i]):
                active += 1
                only = &self._members[i]
        if active > 1:
            self._count_merged()
            for _ in range(COUNT_LOADS):
                if not self._load_uncounted():
                    break
                self._count_merged()
            n = self._distinct
            for i in range(self._nmembers):      # very long and on disk: not merged, so an upper bound
                if self._members[i].counted < _end(&self._members[i]):
                    n += _end(&self._members[i]) - self._members[i].counted
            return n + self._nheap
        if active == 0:
            return self._nheap
        end = _end(only)
        n = end - only.next
        for i in range(self._run, self._nruns):
            if self._runs[i].done:
                first = (<Feed>only.feed).index_of(self._runs[i].first)
                last = (<Feed>only.feed).index_of(self._runs[i].last + 1)
                first = min(max(first, only.next), end)
                last = min(max(last, only.next), end)
                n -= last - first
        return n + self._nheap

    cdef bint _load_uncounted(self) except -1:
        """Have the entries in memory that stopped the count; False: nothing did, or they cannot be read."""
        cdef Py_ssize_t i
        cdef Member* member
        for i in range(self._nmembers):
            member = &self._members[i]
            if member.counted < _end(member) and (<Feed>member.feed).position(member.counted) == 0:
                return self._log.load_feed_now(<Feed>member.feed, member.counted)
        return False

    cdef int _count_merged(self) except -1:
        """Count the distinct positions that came since the last call; amortised one merge per entry."""
        cdef Py_ssize_t heads = self._heads(True), run = self._run
        cdef uint64_t pos
        while heads > 0:
            pos = HEADS[0].pos
            while run < self._nruns and self._runs[run].last < pos:
                run += 1
            if run == self._nruns or not self._runs[run].done or pos < self._runs[run].first:
                self._distinct += 1
            self._counted_pos = pos
            while heads > 0 and HEADS[0].pos == pos:
                heads = self._next_head(heads, True)
        return 0

    def low(self):
        cdef uint64_t low = UINT64_MAX, pos
        cdef Py_ssize_t i
        cdef Member* member
        low = self._undone() or UINT64_MAX
        for i in range(self._nmembers if low == UINT64_MAX else 0):
            member = &self._members[i]
            if member.next < _end(member):
                if self.skip_transient_until == UINT64_MAX and (<Feed>member.feed).persistent_end <= member.next:
                    continue
                pos = (<Feed>member.feed).position(member.next)
                if pos == 0:
                    pos = max(member.from_pos, self.frontier + 1)
                low = min(low, pos)
        return low

    def run_key(self):
        if self.run_count == 0:
            return None
        return (self.run_feed, self.run_first, self.run_count)

    def records(self):
        """The items of the last take, for slow paths: (seq, position, match, count, redelivered)."""
        return [
            (
                ITEMS[i].seq,
                (<Batch>ITEMS[i].batch).base_lsn + ITEMS[i].index,
                ITEMS[i].match,
                ITEMS[i].count,
                bool(ITEMS[i].redelivered),
            )
            for i in range(self.taken)
        ]

    def record(self, Py_ssize_t i):
        """The batch of item `i` and the record's place in it, for slow paths."""
        if not 0 <= i < self.taken:
            raise IndexError(i)
        return <Batch>ITEMS[i].batch, ITEMS[i].index

    # State

    cdef Run* _run_of(self, uint64_t pos) noexcept:
        """The restored run that holds `pos`, or NULL. Positions come in ascending order."""
        while self._run < self._nruns and self._runs[self._run].last < pos:
            self._run += 1
        if self._run == self._nruns:
            PyMem_Free(self._runs)
            self._runs = NULL
            self._nruns = self._run = 0
            return NULL
        if pos < self._runs[self._run].first:
            return NULL
        return &self._runs[self._run]

    def state(self, Py_ssize_t runs_max=1000, bint final=False):
        cdef Py_ssize_t i, limit
        cdef uint64_t seq, before, mark = self._undone() - 1 if self._undone() else self._done_to
        cdef Entry* entry
        cdef Run run
        cdef Runs runs
        cdef uint8_t* out = NULL
        cdef uint8_t* p
        limit = 2 * (self._naside - self._aside_first) + <Py_ssize_t>(self._tail - self._head)
        limit = max(<Py_ssize_t>0, min(runs_max, limit + 1 + self._nruns - self._run))
        runs.n = 0
        runs.limit = limit
        runs.broken = False
        runs.runs = <Run*>PyMem_Malloc((limit + 1) * sizeof(Run))
        out = <uint8_t*>PyMem_Malloc(64 + 32 * self._nmembers + 24 * limit)
        try:
            if runs.runs == NULL or out == NULL:
                raise MemoryError
            before = mark
            for i in range(self._aside_first, self._naside):
                entry = &self._aside[i].entry
                if entry.state == DONE:
                    continue
                if entry.pos > before + 1:
                    _add_run(&runs, before + 1, entry.pos - 1, 0, True)
                _add_entry(&runs, entry, entry.pos, final)
                before = entry.pos
            if before < self._done_to:
                _add_run(&runs, before + 1, self._done_to, 0, True)
                before = self._done_to
            for seq in range(self._head, self._tail if final else min(self._tail, self._touched + 1)):
                entry = &self._ring[seq & self._mask]
                _add_entry(&runs, entry, before + 1 if entry.state == DONE else entry.pos, final)
                before = entry.pos
            for i in range(self._run, self._nruns):      # restored and not passed yet
                run = self._runs[i]
                if run.last > self.frontier:
                    runs.broken = True
                    _add_run(&runs, max(run.first, self.frontier + 1), run.last, run.count, run.done)
            p = out
            p[0] = STATE_VERSION
            p = _put_varint(p + 1, mark)
            p = _put_varint(p, self.unclean_until)
            p = _put_varint(p, self._nmembers)
            for i in range(self._nmembers):
                p = _put_varint(p, (<Feed>self._members[i].feed).id)
                p = _put_varint(p, self._members[i].tag)
                p = _put_varint(p, self._members[i].from_pos)
                p = _put_varint(p, self._members[i].to_pos if self._members[i].closed else 0)
            p = _put_varint(p, runs.n)
            before = mark
            for i in range(runs.n):
                p = _put_varint(p, runs.runs[i].first - before)
                p = _put_varint(p, runs.runs[i].last - runs.runs[i].first)
                p = _put_varint(p, <uint64_t>runs.runs[i].count << 1 | runs.runs[i].done)
                before = runs.runs[i].last
            return (<char*>out)[:p - out]
        finally:
            PyMem_Free(runs.runs)
            PyMem_Free(out)

    def clean(self):
        """The state was persisted."""
        self.dirty = False

    def restore(self, bytes data not None, feed_of, uint64_t unclean_until=0):
        cdef _Varints varints
        cdef uint64_t n, mark, unclean, from_pos, to_pos, first, last, kind, to
        cdef uint32_t tag
        cdef Feed feed
        if self._nmembers or self.frontier:
            raise SubscriptionError("a cursor that was used cannot be restored", remedy="restore a new one")
        if not data or data[0] != STATE_VERSION:
            raise SubscriptionError(f"a cursor's state record has version {data[:1].hex() or 'none'}, not 01")
        varints = _Varints(data)
        varints.at = 1
        self._done_to = varints.get()
        self.unclean_until = max(varints.get(), unclean_until)
        self.frontier = self._done_to
        missing = []
        n = varints.get()
        for _ in range(n):
            feed_id = varints.get()
            tag = <uint32_t>(varints.get() & (MATCH_SET - 1))
            from_pos = varints.get()
            to_pos = varints.get()
            feed = feed_of(feed_id)
            if feed is None:
                missing.append(feed_id)
                continue
            to = feed.index_of(to_pos) if to_pos else UINT64_MAX
            self._add(feed, tag, from_pos, to_pos or UINT64_MAX, feed.index_of(max(from_pos, self._done_to + 1)), to)
        n = varints.get()
        if n > <uint64_t>len(data):                     # a run has 3 bytes at least
            raise SubscriptionError("a cursor's state record is cut short or damaged")
        if n:
            self._runs = <Run*>PyMem_Malloc(n * sizeof(Run))
            if self._runs == NULL:
                raise MemoryError
            last = self._done_to
            for _ in range(n):
                first = last + varints.get()
                last = first + varints.get()
                kind = varints.get()
                self._runs[self._nruns].first = first
                self._runs[self._nruns].last = last
                self._runs[self._nruns].count = <uint16_t>(kind >> 1)
                self._runs[self._nruns].done = kind & 1
                self._nruns += 1
        return missing
