# cython: auto_pickle=False
"""How much a queue may hold: the rules of a cursor, the bytes of what is ready, and what is dropped unasked.

Part of a cursor between where it stands (_cursor_state.pyx) and how it takes (_cursor.pyx).
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport RecordHeader
from penstock.log_core.feeds._feed cimport Feed
from penstock.subscriptions.cursor._memberships cimport Member, end_of, recount
from penstock.subscriptions.cursor._rules cimport CursorRules
from penstock.subscriptions.cursor._ranges cimport free_runs
from penstock.subscriptions.cursor._take_result cimport READ, TAKEN, find_record, header_of
from penstock.subscriptions.cursor._window cimport (
    DONE,
    OUT,
    Entry,
    done_parted,
    part_ready,
    entry_of,
    push_done,
    ready_at,
    ready_in,
)

from penstock.errors import SubscriptionError


cdef class CursorLimits(CursorState):
    @property
    def rules(self):
        if self._rules is None:
            self._rules = CursorRules()
        return self._rules

    @property
    def has_rules(self):
        return self._rules is not None

    def prioritise(self, uint8_t priority_max):
        cdef CursorRules rules = self.rules
        if self._window.tail != 1 or self.frontier:
            raise SubscriptionError("a cursor that was used cannot be sorted", remedy="sort a new one")
        rules.priority_max = priority_max
        self._gathers = priority_max > 0 or rules.bytes_max >= 0

    def limit_bytes(self, int64_t bytes_max, bint gathers=True):
        cdef CursorRules rules = self.rules
        cdef bint counted = rules.bytes_max >= 0
        rules.bytes_max = bytes_max
        self._gathers = rules.priority_max > 0 or (bytes_max >= 0 and gathers)
        if counted != (bytes_max >= 0):
            self._size_all()

    cdef void _size_all(self) noexcept:
        """Counting begins or ends: what is in the window has the size of its body, or none."""
        cdef CursorRules rules = self._rules
        cdef bint counts = rules.bytes_max >= 0
        cdef Py_ssize_t i
        cdef uint64_t seq
        cdef Entry* entry
        rules.bytes = rules.ahead = 0
        if self._window.aside != NULL:
            for i in range(self._window.aside.first, self._window.aside.n):
                entry = &self._window.aside.places[i].entry
                entry.size = _size_of(self._log, entry.pos) if counts and entry.state != DONE else 0
        for seq in range(self._window.head, self._window.tail):
            entry = &self._window.ring[seq & self._window.mask]
            entry.size = _size_of(self._log, entry.pos) if counts and entry.state != DONE else 0
        for i in range(ready_in(&self._window)):
            rules.bytes += entry_of(&self._window, ready_at(&self._window, i)).size

    cdef bint _is_excess(self, uint64_t size):
        cdef CursorRules rules = self._rules
        if 0 <= rules.cap <= ready_in(&self._window):
            return True
        return 0 <= rules.bytes_max and <uint64_t>rules.bytes_max < rules.bytes + size

    def sizes(self):
        cdef Py_ssize_t i
        return [entry_of(&self._window, TAKEN.items[i].seq).size for i in range(TAKEN.n)]

    @property
    def ready_bytes(self):
        return 0 if self._rules is None else self._rules.bytes + self._rules.ahead

    cdef bint has_room(self, uint64_t size) except -1:
        """Whether one more message with a body of `size` bytes stays within the limits."""
        cdef CursorRules rules = self._rules
        if rules is None:
            return True
        if rules.refuses_bytes and rules.bytes_max >= 0 and rules.bytes + rules.ahead + size > <uint64_t>rules.bytes_max:
            return False
        return rules.length_max < 0 or self.ready_count() < <uint64_t>rules.length_max

    cpdef int expect(self, uint64_t size) except -1:
        """Such a message is about to be appended to a feed of this cursor."""
        if self._rules is not None and self._rules.bytes_max >= 0:
            self._rules.ahead += size
        return 0

    # Dropping

    def purge(self, uint64_t before=UINT64_MAX):
        cdef uint64_t n = self.ready_count(), to = min(before, <uint64_t>self._log.appender.next_lsn), end
        cdef uint32_t i
        cdef Member* member
        for i in range(self._members.n):
            member = &self._members.list[i]
            end = end_of(member)
            if before != UINT64_MAX:
                end = min(end, (<Feed>member.feed).index_of(before))
            if member.next < end:
                member.next = end
        recount(&self._members)
        if before == UINT64_MAX:
            free_runs(&self._runs)
        done_parted(&self._window, self._part(to, ready_in(&self._window)))
        if before == UINT64_MAX and self._rules is not None:
            self._rules.bytes = self._rules.ahead = 0
        if to - 1 > self.frontier:
            self._skip(to - 1)
        if self._notes is not None:
            for pos in [pos for pos in self._notes if pos < to and self.fate(pos) == "done"]:
                self._forget(pos)
        self._mark_dirty()
        return n - self.ready_count()

    def take_before(self, uint64_t before, Py_ssize_t most):
        cdef Py_ssize_t i, parted = self._part(before, most)
        cdef uint64_t seq
        cdef list seqs = []
        for i in range(ready_in(&self._window), ready_in(&self._window) + parted):
            seq = ready_at(&self._window, i)
            entry_of(&self._window, seq).state = OUT
            seqs.append(seq)
        self.outstanding += parted
        seqs.sort()
        return seqs

    cdef Py_ssize_t _part(self, uint64_t before, Py_ssize_t most) noexcept:
        """`part_ready`, and their bytes count no more."""
        cdef Py_ssize_t i, parted = part_ready(&self._window, before, most)
        if self._rules is not None and self._rules.bytes_max >= 0:
            for i in range(ready_in(&self._window), ready_in(&self._window) + parted):
                self._rules.bytes -= entry_of(&self._window, ready_at(&self._window, i)).size
        return parted

    cdef int _skip(self, uint64_t pos) except -1:
        """The next position is done without having been given to anybody."""
        self.frontier = pos
        self._mark_dirty()
        return push_done(&self._window, pos, self.outstanding + ready_in(&self._window))


cdef uint32_t _size_of(object log, uint64_t pos) except? 0xFFFFFFFF:
    """Bytes of the body; 0 when its record is not in memory."""
    cdef RecordHeader* header
    if not find_record(log, pos) or READ.lost:
        return 0
    header = header_of(pos)
    return header.size - header.key - header.props
