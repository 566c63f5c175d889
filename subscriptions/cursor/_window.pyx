"""The window of a cursor: a ring of everything taken from the first position that is not done on, in log order.

`seq` numbers its places and names a delivery; seq 0 is never used. States of a place:

    OUT     taken, neither settled nor given back           take -> OUT
    READY   to be given again, before anything newer        requeue and release (counted), put_back (not counted)
    DONE    settled, expired, purged or skipped             settle, purge

The mark moves over DONE places at the head. READY places stand in a heap of seqs, so that they go out in log
order, the highest priority first. A DONE place stands for every position after the place before it up to its
own: positions between two places are either done or not of this queue, because places are taken in log order
and a membership never starts below the frontier. That makes a purge one place, and done ranges in a state
record ranges of positions.

Places that stay undone while thousands after them are done are set aside, so that one consumer that never
acknowledges does not make the ring grow with the traffic. Everything between them is done.

A window knows no feeds, records or consumers. Its parts are allocated when they are first needed: ring, heap
and the places set aside.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport uint64_t

cdef enum:
    RING_MIN = 16               # places of a first ring: 256 B
    ROOM_MIN = 16               # places of a first heap, and of the first set aside

RING_KEPT = 1024


def set_ring_kept(places: int) -> int:
    global RING_KEPT
    before, RING_KEPT = RING_KEPT, places
    return before


cdef int make_room(Window* window, uint64_t undone) except -1:
    """Have room for one more place in the ring; `undone` places of the ring and of what is aside are not done."""
    cdef uint64_t room, old = window.mask, seq
    cdef Entry* ring
    if window.aside != NULL:
        undone -= window.aside.n - window.aside.first - window.aside.done
    if old >= <uint64_t>RING_KEPT - 1 and undone < (window.tail - window.head) // 4:
        _set_aside(window)
        if not is_full(window):
            return 0
        old = window.mask
    room = RING_MIN if window.ring == NULL else 2 * (window.mask + 1)
    ring = <Entry*>PyMem_Malloc(room * sizeof(Entry))
    if ring == NULL:
        raise MemoryError
    for seq in range(window.head, window.tail):
        ring[seq & (room - 1)] = window.ring[seq & old]
    PyMem_Free(window.ring)
    window.ring = ring
    window.mask = room - 1
    return 0


cdef int push_done(Window* window, uint64_t pos, uint64_t undone) except -1:
    """The next position is done without having been given to anybody; `undone` as of `make_room`."""
    cdef Entry* entry
    if window.head == window.tail:
        window.done_to = pos
        return 0
    entry = &window.ring[(window.tail - 1) & window.mask]
    if entry.state == DONE:
        entry.pos = pos
        return 0
    if window.tail - window.head > window.mask:
        make_room(window, undone)
        if window.head == window.tail:      # all that was left of the ring was done
            window.done_to = pos
            return 0
    entry = &window.ring[window.tail & window.mask]
    entry.pos = pos
    entry.match = 0
    entry.size = 0
    entry.count = 0
    entry.released = 0
    entry.level = 0
    entry.slot = 0
    entry.state = DONE
    window.touched = window.tail
    window.tail += 1
    return 0


cdef uint64_t undone_of(Window* window) noexcept nogil:
    """The lowest position that was taken and is not done; 0: none."""
    if window.aside != NULL:
        return window.aside.places[window.aside.first].entry.pos
    if window.head < window.tail:
        return window.ring[window.head & window.mask].pos
    return 0


# The READY items

cdef int push_ready(Window* window, uint64_t seq, Entry* entry) except -1:
    """Onto the heap; the caller sets the state."""
    cdef uint64_t key = <uint64_t>entry.level << SEQ_BITS | seq
    cdef Heap* heap = window.ready
    cdef Py_ssize_t i, parent, room
    cdef void* p
    if heap == NULL:
        heap = <Heap*>PyMem_Calloc(1, sizeof(Heap))
        if heap == NULL:
            raise MemoryError
        window.ready = heap
    if heap.n == heap.room:
        room = max(<Py_ssize_t>ROOM_MIN, 2 * heap.room)
        p = PyMem_Realloc(heap.keys, room * sizeof(uint64_t))
        if p == NULL:
            raise MemoryError
        heap.keys = <uint64_t*>p
        heap.room = room
    i = heap.n
    heap.n += 1
    while i:
        parent = (i - 1) // 2
        if heap.keys[parent] <= key:
            break
        heap.keys[i] = heap.keys[parent]
        i = parent
    heap.keys[i] = key
    return 0


cdef void _sink(uint64_t* keys, Py_ssize_t i, Py_ssize_t n, uint64_t key) noexcept nogil:
    """Put `key` into a heap of `n` keys, whose place `i` is free, there or below."""
    cdef Py_ssize_t child
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[i] = keys[child]
        i = child
    keys[i] = key


cdef void pop_ready(Window* window) noexcept nogil:
    """Take the first one off the heap."""
    cdef Py_ssize_t n = window.ready.n - 1
    window.ready.n = n
    _sink(window.ready.keys, 0, n, window.ready.keys[n])


cdef Py_ssize_t part_ready(Window* window, uint64_t before, Py_ssize_t most) noexcept nogil:
    """Take up to `most` places with positions below `before` off the heap; how many: their keys follow it."""
    cdef uint64_t* keys
    cdef uint64_t key
    cdef Py_ssize_t i = 0, n = ready_in(window), parted = 0
    if n == 0:
        return 0
    keys = window.ready.keys
    while i < n and parted < most:
        if entry_of(window, ready_at(window, i)).pos >= before:
            i += 1
            continue
        n -= 1
        parted += 1
        key = keys[i]
        keys[i] = keys[n]
        keys[n] = key
    window.ready.n = n
    for i in range(n // 2 - 1 if parted else -1, -1, -1):
        _sink(keys, i, n, keys[i])
    return parted


cdef void done_parted(Window* window, Py_ssize_t parted) noexcept:
    """The part that `part_ready` just took off is done."""
    cdef Py_ssize_t i
    cdef uint64_t seq
    for i in range(ready_in(window), ready_in(window) + parted):
        seq = ready_at(window, i)
        entry_of(window, seq).state = DONE
        if seq < window.head:
            window.aside.done += 1
        window.touched = max(window.touched, seq)
    trim_aside(window)
    if window.head < window.tail:
        advance(window)


# The items that are set aside

cdef int _set_aside(Window* window) except -1:
    """Move what is not done from the older half of the ring aside."""
    cdef uint64_t seq, half = window.head + (window.tail - window.head) // 2
    cdef Aside* aside
    cdef Py_ssize_t room
    cdef void* p
    for seq in range(window.head, half):
        if window.ring[seq & window.mask].state == DONE:
            continue
        aside = window.aside
        room = 0 if aside == NULL else aside.room
        if aside == NULL or aside.n == room:
            room = max(<Py_ssize_t>ROOM_MIN, 2 * room)
            p = PyMem_Realloc(NULL if aside == NULL else aside.places, room * sizeof(Straggler))
            if p == NULL:
                raise MemoryError
            if aside == NULL:
                aside = <Aside*>PyMem_Calloc(1, sizeof(Aside))
                if aside == NULL:
                    PyMem_Free(p)
                    raise MemoryError
                window.aside = aside
            aside.places = <Straggler*>p
            aside.room = room
        aside.places[aside.n].seq = seq
        aside.places[aside.n].entry = window.ring[seq & window.mask]
        aside.n += 1
        # One by one, so that a failure between two leaves each place in one of them.
        window.head = seq + 1
    window.done_to = window.ring[(half - 1) & window.mask].pos
    window.head = half
    advance(window)
    return 0


cdef Entry* find_aside(Window* window, uint64_t seq) noexcept nogil:
    """Part of `entry_of`."""
    cdef Aside* aside = window.aside
    cdef Py_ssize_t low = aside.first, high = aside.n, middle
    while low < high:
        middle = (low + high) // 2
        if aside.places[middle].seq < seq:
            low = middle + 1
        else:
            high = middle
    if low < aside.n and aside.places[low].seq == seq:
        return &aside.places[low].entry
    return NULL


cdef void settle_aside(Window* window) noexcept:
    """One more that is aside is done."""
    window.aside.done += 1
    trim_aside(window)


cdef void trim_aside(Window* window) noexcept:
    """Drop what is done from the front, and from everywhere when that is more than half."""
    cdef Aside* aside = window.aside
    cdef Py_ssize_t i, n = 0
    if aside == NULL:
        return
    while aside.first < aside.n and aside.places[aside.first].entry.state == DONE:
        aside.first += 1
        aside.done -= 1
    if aside.first == aside.n:
        _free_aside(window)
    elif aside.first + 2 * aside.done > aside.n:
        for i in range(aside.first, aside.n):
            if aside.places[i].entry.state != DONE:
                aside.places[n] = aside.places[i]
                n += 1
        aside.n = n
        aside.first = aside.done = 0


# Memory

cdef void _free_aside(Window* window) noexcept:
    if window.aside != NULL:
        PyMem_Free(window.aside.places)
        PyMem_Free(window.aside)
        window.aside = NULL


cdef void free_ring(Window* window) noexcept:
    PyMem_Free(window.ring)
    window.ring = NULL
    window.mask = 0


cdef void idle_window(Window* window) noexcept:
    """Give back the memory that only a queue in use needs."""
    if window.head == window.tail:
        free_ring(window)
    if window.ready != NULL and window.ready.n == 0:
        PyMem_Free(window.ready.keys)
        PyMem_Free(window.ready)
        window.ready = NULL


cdef void free_window(Window* window) noexcept:
    """Its owner ends."""
    PyMem_Free(window.ring)
    window.ring = NULL
    if window.ready != NULL:
        PyMem_Free(window.ready.keys)
        PyMem_Free(window.ready)
        window.ready = NULL
    _free_aside(window)
