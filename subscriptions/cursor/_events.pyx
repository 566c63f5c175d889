# cython: auto_pickle=False
"""The fate of messages and connections, noted for the table of events, which is off by default.

Kernels note what they do as they do it: 32 bytes an event, and its names once per block. At the beginning of a
turn's write all of it becomes one record of the log, in a log partition of its own, in no feed: so events are
ordered, synced, compressed, kept and let go of like traffic, and nothing of the log knows what they are.

The record's body (docs/reference/format.md, "Events"), little-endian; a name is given by its number, 0 is none:

    | 1 u32 | events u32 | names u32 | 0 u32 | events 32 each | names: size u32, UTF-8 |
    event: | position u64 | vhost u32 | queue u32 | connection u32 | user u32 | detail u32 | kind u8 | redelivered u8 |
           | positions u16 |

`positions` is for publish: so many from `position` on, which a publisher had appended by one read.

Besides, what becomes of a sample of the messages may be traced: their events are tuples that `traced` hands
out, and cost nothing of other messages but a hash of the position. The log keeps no more for it.

There is one for the process, as there is one loop.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memset
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from penstock.log_core.batch._appender cimport Appender, Target
from penstock.log_core.batch._batch cimport ENC_EVENTS, EVENTS_LP, Batch
from penstock.subscriptions.cursor._cursor_state cimport CursorState
from penstock.subscriptions.cursor._take_result cimport TAKEN
from penstock.subscriptions.cursor._window cimport OUT, Entry, entry_of

KINDS = (
    "connect", "disconnect", "subscribe", "unsubscribe", "deliver", "ack", "requeue", "dead_letter", "drop", "gap",
    "publish",
)

cdef enum:
    VERSION = 1
    EVENTS_MAX = 262144             # noted in one turn, 8 MiB: far more than a turn can do
    POSITIONS_MAX = 65535           # of one event
    TRACES_MAX = 100000             # between two calls of `traced`


cdef struct Event:
    uint64_t pos
    uint32_t vhost, queue, connection, user, detail
    uint8_t kind, redelivered
    uint16_t positions


cdef Event* NOTED = NULL
cdef size_t ROOM = 0
cdef uint64_t MISSED = 0            # not noted: there was no room, or the log takes nothing
cdef bint HELD = False              # the log takes nothing
cdef dict NUMBERS = {}              # of the names of this block, from 1 on
cdef object LAST = None             # the cursor noted last; owned, so that no other can stand at its address
cdef uint32_t LAST_VHOST = 0, LAST_QUEUE = 0
cdef bint MUTED = False             # what is settled now was noted already
cdef uint32_t TO = 0                # the connection that is given whole batches
cdef object WAKE = None
cdef uint32_t LOGGED = 0            # bits of the kinds that the log gets
cdef uint32_t TRACED = 0            # bits of the kinds that are traced
cdef uint64_t TRACED_BELOW = 0      # messages are in the sample whose hash is at most this
cdef list TRACES = []
cdef size_t TRACES_MISSED = 0
cdef Target NOWHERE = Target(())

memset(&EVENTS, 0, sizeof(EVENTS))


def start(kinds, wake) -> None:
    global WAKE, MISSED, HELD
    _forget()
    MISSED = 0
    HELD = False
    WAKE = wake
    keep(kinds)


def keep(kinds) -> None:
    cdef uint32_t wanted = 0
    for kind in kinds:
        wanted |= <uint32_t>1 << <int>KINDS.index(kind)
    global LOGGED
    LOGGED = wanted | <uint32_t>1 << GAP if wanted else 0
    EVENTS.kinds = LOGGED | TRACED


def kept() -> tuple:
    return tuple([kind for number, kind in enumerate(KINDS) if number != GAP and LOGGED >> number & 1])


def stop() -> None:
    global WAKE, LOGGED
    trace(0.0)
    LOGGED = EVENTS.kinds = 0
    WAKE = None
    _forget()


def hold(bint held) -> None:
    global HELD
    HELD = held


def is_on() -> bool:
    return LOGGED != 0


def trace(double ratio) -> None:
    global TRACED, TRACED_BELOW, TRACES, TRACES_MISSED
    TRACED_BELOW = 0xFFFFFFFFFFFFFFFF if ratio >= 1.0 else <uint64_t>(ratio * 18446744073709551616.0)
    TRACED = 0
    if ratio > 0.0:
        for kind in (PUBLISH, DELIVER, ACK, REQUEUE, DEAD_LETTER, DROP):
            TRACED |= <uint32_t>1 << <int>kind
    TRACES = []
    TRACES_MISSED = 0
    EVENTS.kinds = LOGGED | TRACED


def traced() -> tuple:
    global TRACES, TRACES_MISSED
    found, missed = TRACES, TRACES_MISSED
    TRACES = []
    TRACES_MISSED = 0
    if EVENTS.n == 0:
        _forget()  # names that no block of the log will have
    return found, missed


cdef bint _is_sampled(uint32_t kind, uint64_t pos) noexcept:
    """Whether this event is traced: the same for all of a message (the finalizer of splitmix64)."""
    if not TRACED >> kind & 1:
        return False
    pos += <uint64_t>0x9E3779B97F4A7C15
    pos = (pos ^ pos >> 30) * <uint64_t>0xBF58476D1CE4E5B9
    pos = (pos ^ pos >> 27) * <uint64_t>0x94D049BB133111EB
    return (pos ^ pos >> 31) <= TRACED_BELOW


cdef int _trace(uint32_t kind, uint64_t pos, bint redelivered, str vhost, str queue, str connection, str user,
                str detail) except -1:
    global TRACES_MISSED
    cdef timespec now
    if len(TRACES) >= TRACES_MAX:
        TRACES_MISSED += 1
        return 0
    clock_gettime(CLOCK_REALTIME, &now)
    TRACES.append((now.tv_sec * <int64_t>1000000000 + now.tv_nsec, KINDS[kind], pos, redelivered, vhost, queue,
                   connection, user, detail))
    return 0


cdef str _name(uint32_t number):
    """The name with this number; of sampled messages only, so the search is no matter."""
    if number:
        for name, found in NUMBERS.items():
            if found == number:
                return name
    return ""


cdef void _forget() noexcept:
    global LAST
    EVENTS.n = 0
    NUMBERS.clear()
    LAST = None


cdef uint32_t _number(object name) except 0xFFFFFFFF:
    if not name:
        return 0
    number = NUMBERS.get(name)
    if number is None:
        number = NUMBERS[name] = len(NUMBERS) + 1
    return number


cdef Event* _place(uint32_t kind) except? NULL:
    """Room for one more; NULL: there is none."""
    global NOTED, ROOM, MISSED
    cdef Event* moved
    cdef Event* event
    if HELD or EVENTS.n >= EVENTS_MAX:
        MISSED += 1
        return NULL
    if EVENTS.n >= ROOM:
        moved = <Event*>realloc(NOTED, max(2 * ROOM, <size_t>1024) * sizeof(Event))
        if moved == NULL:
            raise MemoryError("events")
        NOTED = moved
        ROOM = max(2 * ROOM, <size_t>1024)
    event = &NOTED[EVENTS.n]
    memset(event, 0, sizeof(Event))
    event.kind = <uint8_t>kind
    EVENTS.n += 1
    if EVENTS.n == 1 and WAKE is not None:
        WAKE()
    return event


cdef int _of_queue(CursorState cursor) except -1:
    global LAST, LAST_VHOST, LAST_QUEUE
    queue = cursor.queue
    LAST_VHOST = 0 if queue is None else _number(queue.vhost)
    LAST_QUEUE = 0 if queue is None else _number(queue.name)
    LAST = cursor
    return 0


cdef int _note(uint32_t kind, CursorState cursor, uint64_t pos, bint redelivered, uint32_t connection,
               str detail) except -1:
    cdef Event* event
    if _is_sampled(kind, pos):
        queue = cursor.queue
        _trace(kind, pos, redelivered, "" if queue is None else queue.vhost, "" if queue is None else queue.name,
               _name(connection), "", detail or "")
    if not LOGGED >> kind & 1:
        return 0
    if LAST is not cursor:
        _of_queue(cursor)
    event = _place(kind)
    if event == NULL:
        return 0
    event.pos = pos
    event.vhost = LAST_VHOST
    event.queue = LAST_QUEUE
    event.connection = connection
    event.redelivered = redelivered
    if detail:
        event.detail = _number(detail)
    return 0


cdef void note_message(uint32_t kind, CursorState cursor, uint64_t pos, str detail) noexcept:
    if EVENTS.kinds >> kind & 1 and not MUTED:
        _note(kind, cursor, pos, False, TO if kind == DELIVER else 0, detail)


def note(str kind not None, *, vhost="", queue="", connection="", user="", detail="") -> None:
    cdef uint32_t number
    cdef Event* event
    if LOGGED == 0:
        return
    number = KINDS.index(kind)
    if not LOGGED >> number & 1:
        return
    event = _place(number)
    if event != NULL:
        event.vhost = _number(vhost)
        event.queue = _number(queue)
        event.connection = _number(connection)
        event.user = _number(user)
        event.detail = _number(detail)


def published(uint64_t first, uint64_t count, *, vhost="", connection="", user="", detail="") -> None:
    cdef uint32_t place, peer, who, how
    cdef Event* event
    cdef uint64_t pos
    if TRACED:
        for pos in range(first, first + count):
            if _is_sampled(PUBLISH, pos):
                _trace(PUBLISH, pos, False, vhost, "", connection, user, detail)
    if not LOGGED >> PUBLISH & 1:
        return
    place, peer, who, how = _number(vhost), _number(connection), _number(user), _number(detail)
    if EVENTS.n and count <= POSITIONS_MAX:
        event = &NOTED[EVENTS.n - 1]
        if (event.kind == PUBLISH and event.pos + event.positions == first and event.positions + count <= POSITIONS_MAX
                and (event.vhost, event.connection, event.user, event.detail) == (place, peer, who, how)):
            event.positions += <uint16_t>count
            return
    while count:
        event = _place(PUBLISH)
        if event == NULL:
            return
        event.pos = first
        event.vhost = place
        event.connection = peer
        event.user = who
        event.detail = how
        event.positions = <uint16_t>min(count, <uint64_t>POSITIONS_MAX)
        first += event.positions
        count -= event.positions


cdef str _peer(object consumer):
    asked = getattr(consumer, "peer", None)
    return "" if asked is None else asked()


def attached(str kind not None, queue not None, consumer) -> None:
    if LOGGED:
        note(kind, vhost=queue.vhost, queue=queue.name, connection=_peer(consumer))


def delivered(CursorState cursor not None, Py_ssize_t first, Py_ssize_t step, Py_ssize_t took, consumer) -> None:
    cdef Py_ssize_t i
    cdef uint32_t connection
    if not EVENTS.kinds >> DELIVER & 1:
        return
    connection = _number(_peer(consumer))
    for i in range(first, min(first + took * step, TAKEN.n), step):
        _note(DELIVER, cursor, (<Batch>TAKEN.items[i].batch).base_lsn + TAKEN.items[i].index,
              TAKEN.items[i].redelivered != 0, connection, None)


def deliver_to(consumer) -> None:
    global TO
    if EVENTS.kinds >> DELIVER & 1:
        TO = _number(_peer(consumer))


def settled_as(CursorState cursor not None, uint64_t seq, str kind not None, str detail not None) -> None:
    global MUTED
    cdef Entry* entry
    if EVENTS.kinds == 0:
        cursor.settle(seq)
        return
    entry = entry_of(&cursor._window, seq)
    if entry != NULL and entry.state == OUT:
        note_message(KINDS.index(kind), cursor, entry.pos, detail)
    MUTED = True
    try:
        cursor.settle(seq)
    finally:
        MUTED = False


cdef int append_events(Appender appender) except -1:
    global MISSED
    cdef bytes head, names, body
    cdef uint32_t header[4]
    cdef list parts
    cdef Event* event
    if appender.failure is not None:
        _forget()
        return 0
    if MISSED and not HELD:
        event = _place(GAP)
        if event != NULL:
            event.detail = _number(str(MISSED))
            MISSED = 0
    parts = []
    for name in NUMBERS:
        text = name.encode("utf-8", "surrogateescape")
        parts.append(len(text).to_bytes(4, "little"))
        parts.append(text)
    header[0] = VERSION
    header[1] = EVENTS.n
    header[2] = <uint32_t>len(NUMBERS)
    header[3] = 0
    head = PyBytes_FromStringAndSize(<char*>header, sizeof(header))
    body = b"".join([head, PyBytes_FromStringAndSize(<char*>NOTED, EVENTS.n * sizeof(Event)), *parts])
    _forget()
    appender.append(EVENTS_LP, NOWHERE, NULL, 0, NULL, 0, <const uint8_t*>PyBytes_AS_STRING(body), <uint32_t>len(body),
                    0, 0, ENC_EVENTS, 0, 0)
    return 0
