"""A cursor's state record: what a restart must know of its queue. Varints are LEB128.

    version u8 = 1 | mark | unclean_until
    members n, then n x: feed id | tag | from_pos | to_pos (0 = open)
    runs n, then n x: first - last of the run before (mark for run 0) | last - first | kind
        kind = released << 17 | count << 1 | done
    notes n, then n x: position - mark | size | bytes          (where there are some)

Runs are ascending, apart, and above the mark. One that is not done says how often its records were delivered
before: `count` times that failed, `released` times that did not. Nothing else of a window is kept: what was
out comes back.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint8_t, uint16_t, uint64_t

from penstock.log_core.feeds._feed cimport Feed
from penstock.subscriptions.cursor._memberships cimport Member, Members
from penstock.subscriptions.cursor._ranges cimport Run, Runs, add_run
from penstock.subscriptions.cursor._window cimport DONE, OUT, RELEASED_MAX, Entry, Window, undone_of

from penstock.errors import SubscriptionError

cdef enum:
    STATE_VERSION = 1

cdef struct Draft:              # the runs of a record while it is made
    Run* runs
    Py_ssize_t n, limit
    bint broken                 # the next run does not continue the last one


# Encoding

cdef inline void _add_run(Draft* draft, uint64_t first, uint64_t last, uint16_t count, uint8_t released, bint done) noexcept nogil:
    """One more run, or more of the last; what is over the limit is left out, and all after it."""
    cdef Run* run
    run = &draft.runs[max(draft.n - 1, <Py_ssize_t>0)]
    if draft.n and not draft.broken and run.done == done and run.count == count and run.released == released:
        run.last = last
    elif draft.n < draft.limit:
        run = &draft.runs[draft.n]
        run.first = first
        run.last = last
        run.count = count
        run.released = released
        run.done = done
        draft.n += 1
        draft.broken = False
    else:
        draft.limit = 0
        draft.broken = True         # or the last run would grow over what was left out


cdef inline void _add_entry(Draft* draft, Entry* entry, uint64_t first, bint final) noexcept nogil:
    cdef uint16_t count = entry.count
    if entry.state == DONE:
        _add_run(draft, first, entry.pos, 0, 0, True)
        return
    if final and entry.state == OUT and count < 0xFFFF:
        count += 1
    if count or entry.released:
        _add_run(draft, first, entry.pos, count, entry.released, False)
    else:
        draft.broken = True         # neither done nor delivered before: no run


cdef void _add_all(Draft* draft, Window* window, Runs* runs, uint64_t mark, uint64_t frontier, bint final) noexcept nogil:
    """The runs of everything above the mark, in order: what is aside, the ring, what is not passed yet."""
    cdef uint64_t before = mark, seq, tail = window.tail
    cdef Entry* entry
    cdef Run* run
    cdef Py_ssize_t i
    if window.aside != NULL:
        for i in range(window.aside.first, window.aside.n):
            entry = &window.aside.places[i].entry
            if entry.state == DONE:
                continue
            if entry.pos > before + 1:
                _add_run(draft, before + 1, entry.pos - 1, 0, 0, True)
            _add_entry(draft, entry, entry.pos, final)
            before = entry.pos
    if before < window.done_to:
        _add_run(draft, before + 1, window.done_to, 0, 0, True)
        before = window.done_to
    if not final and window.touched + 1 < tail:
        tail = window.touched + 1
    for seq in range(window.head, tail):
        entry = &window.ring[seq & window.mask]
        _add_entry(draft, entry, before + 1 if entry.state == DONE else entry.pos, final)
        before = entry.pos
    if runs != NULL:
        for i in range(runs.at, runs.n):
            run = &runs.runs[i]
            if run.last > frontier:
                draft.broken = True
                _add_run(draft, max(run.first, frontier + 1), run.last, run.count, run.released, run.done)


cdef inline uint8_t* _put_varint(uint8_t* p, uint64_t value) noexcept nogil:
    while value >= 0x80:
        p[0] = <uint8_t>(value | 0x80)
        value >>= 7
        p += 1
    p[0] = <uint8_t>value
    return p + 1


cdef bytes encode_state(Window* window, Members* members, Runs* runs, uint64_t frontier, uint64_t unclean_until,
                        Py_ssize_t runs_max, bint final, dict notes):
    """The record; runs after the first `runs_max` are left out. `final`: what is out counts as given back.

    `notes`: by position; None: there are none.
    """
    cdef uint64_t before, mark = undone_of(window) - 1 if undone_of(window) else window.done_to
    cdef Py_ssize_t i, limit = window.tail - window.head + 1
    cdef Draft draft
    cdef Member* member
    cdef uint8_t* out
    cdef uint8_t* p
    if window.aside != NULL:
        limit += 2 * (window.aside.n - window.aside.first)
    if runs != NULL:
        limit += runs.n - runs.at
    limit = max(<Py_ssize_t>0, min(runs_max, limit))
    draft.n = 0
    draft.limit = limit
    draft.broken = False
    draft.runs = <Run*>PyMem_Malloc((limit + 1) * sizeof(Run))
    out = <uint8_t*>PyMem_Malloc(64 + 32 * members.n + 24 * limit)
    try:
        if draft.runs == NULL or out == NULL:
            raise MemoryError
        _add_all(&draft, window, runs, mark, frontier, final)
        p = out
        p[0] = STATE_VERSION
        p = _put_varint(p + 1, mark)
        p = _put_varint(p, unclean_until)
        p = _put_varint(p, members.n)
        for i in range(members.n):
            member = &members.list[i]
            p = _put_varint(p, (<Feed>member.feed).id)
            p = _put_varint(p, member.tag)
            p = _put_varint(p, member.from_pos)
            p = _put_varint(p, member.to_pos if member.closed else 0)
        p = _put_varint(p, draft.n)
        before = mark
        for i in range(draft.n):
            p = _put_varint(p, draft.runs[i].first - before)
            p = _put_varint(p, draft.runs[i].last - draft.runs[i].first)
            p = _put_varint(
                p, <uint64_t>draft.runs[i].released << 17 | <uint64_t>draft.runs[i].count << 1 | draft.runs[i].done
            )
            before = draft.runs[i].last
        record = (<char*>out)[:p - out]
    finally:
        PyMem_Free(draft.runs)
        PyMem_Free(out)
    return record if notes is None else record + _encode_notes(notes, mark)


cdef bytes _encode_notes(dict notes, uint64_t mark):
    cdef uint8_t number[10]
    cdef list parts = []
    numbers = [len(notes)]
    for pos, note in sorted(notes.items()):
        numbers += [pos - mark, len(note)]
        for value in numbers:
            parts.append((<char*>number)[:_put_varint(number, value) - number])
        parts.append(note)
        numbers = []
    return b"".join(parts)


# Decoding

cdef class StateReader:
    """Reads a record from the mark on; every length is checked against its end."""

    def __cinit__(self, bytes data not None):
        if not data or data[0] != STATE_VERSION:
            raise SubscriptionError(f"a cursor's state record has version {data[:1].hex() or 'none'}, not 01")
        self.data = data
        self.at = 1

    cdef uint64_t get(self) except? 0xFFFFFFFFFFFFFFFE:
        """The next varint."""
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


cdef void decode_runs(StateReader reader, uint64_t mark, Runs** runs) except *:
    """The rest of the record, after its members."""
    cdef uint64_t n = reader.get(), first, last = mark, kind, i
    if n > <uint64_t>len(reader.data):              # a run has 3 bytes at least
        raise SubscriptionError("a cursor's state record is cut short or damaged")
    for i in range(n):
        first = last + reader.get()
        last = first + reader.get()
        kind = reader.get()
        add_run(runs, first, last, <uint16_t>(kind >> 1), <uint8_t>(kind >> 17 & RELEASED_MAX), kind & 1)


cdef dict decode_notes(StateReader reader, uint64_t mark):
    """The notes behind the runs, by position; None: there are none."""
    cdef uint64_t n, pos, size
    cdef dict notes = {}
    if reader.at == len(reader.data):
        return None
    n = reader.get()
    for _ in range(n):
        pos = mark + reader.get()
        size = reader.get()
        if size > <uint64_t>(len(reader.data) - reader.at):
            raise SubscriptionError("a cursor's state record is cut short or damaged")
        notes[pos] = reader.data[reader.at:reader.at + <Py_ssize_t>size]
        reader.at += <Py_ssize_t>size
    return notes
