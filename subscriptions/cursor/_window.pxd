# The window of a cursor: what was taken and is not finished. The words are in _window.pyx.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    OUT = 1
    READY = 2
    DONE = 3
    RELEASED_MAX = 63
    SEQ_BITS = 56               # of a place in the heap; above them its level
    LOOSE = 0xFFFFFF            # instead of a slot: it is out, and no consumer has it


cdef extern from *:
    """
    typedef struct {
        uint64_t pos;
        uint32_t match, size;
        uint16_t count;
        uint8_t state, level;
        uint32_t slot : 24, released : 8;
    } Entry;
    """
    ctypedef struct Entry:      # one place of the window, 24 bytes
        uint64_t pos
        uint32_t match
        uint32_t size           # of the body, in bytes, with a byte limit
        uint16_t count          # deliveries that failed
        uint8_t state           # read most, so it has a byte of its own
        uint8_t level           # 0: the highest priority of its queue
        uint32_t slot           # 24 bits: 1 + the slot of its key while somebody holds that (`_keys`); 0: nobody is to be told; LOOSE
        uint8_t released        # 8 bits: deliveries that were given back and did not fail, at most RELEASED_MAX


cdef struct Straggler:          # a place that was set aside
    uint64_t seq
    Entry entry


cdef struct Aside:
    Straggler* places           # [first, n), ascending seqs below the window's head
    Py_ssize_t first, n, room
    Py_ssize_t done             # of these


cdef struct Heap:
    uint64_t* keys              # level << SEQ_BITS | seq of what is READY, a binary min-heap
    Py_ssize_t n, room


cdef struct Window:             # all zero but head and tail: nothing was taken yet
    Entry* ring                 # entry of seq = ring[seq & mask]; NULL: there is none
    uint64_t mask
    uint64_t head, tail         # [head, tail) = seqs in the ring; its capacity is mask + 1
    uint64_t touched            # the highest seq that is done or was delivered before: none after it makes a run
    uint64_t done_to            # every position up to here is done, but for what was set aside
    Heap* ready                 # NULL: nothing ever was
    Aside* aside                # NULL: nothing is


cdef Py_ssize_t RING_KEPT       # a larger ring is freed when the window empties, and sets stragglers aside

cdef Entry* find_aside(Window* window, uint64_t seq) noexcept nogil
cdef int make_room(Window* window, uint64_t undone) except -1
cdef int push_done(Window* window, uint64_t pos, uint64_t undone) except -1
cdef int push_ready(Window* window, uint64_t seq, Entry* entry) except -1
cdef void pop_ready(Window* window) noexcept nogil
cdef Py_ssize_t part_ready(Window* window, uint64_t before, Py_ssize_t most) noexcept nogil
cdef void done_parted(Window* window, Py_ssize_t parted) noexcept
cdef void settle_aside(Window* window) noexcept
cdef void trim_aside(Window* window) noexcept
cdef void free_ring(Window* window) noexcept
cdef void idle_window(Window* window) noexcept
cdef void free_window(Window* window) noexcept
cdef uint64_t undone_of(Window* window) noexcept nogil


cdef inline Entry* entry_of(Window* window, uint64_t seq) noexcept nogil:
    """The place `seq`; NULL: it is done and gone, or there never was one."""
    if seq - window.head < window.tail - window.head:
        return &window.ring[seq & window.mask]
    return find_aside(window, seq) if window.aside != NULL else NULL


cdef inline bint is_full(Window* window) noexcept nogil:
    """Whether `make_room` is due before the next place."""
    return window.ring == NULL or window.tail - window.head > window.mask


cdef inline void advance(Window* window) noexcept:
    """Move the mark over what is done at the head."""
    cdef uint64_t head = window.head, tail = window.tail, mask = window.mask
    cdef Entry* ring = window.ring
    while head < tail and ring[head & mask].state == DONE:
        window.done_to = ring[head & mask].pos
        head += 1
    window.head = head
    if head == tail and mask >= <uint64_t>RING_KEPT:
        free_ring(window)


cdef inline Py_ssize_t ready_in(Window* window) noexcept nogil:
    """Places that are READY."""
    return window.ready.n if window.ready != NULL else 0


cdef inline uint64_t first_ready(Window* window) noexcept nogil:
    """The seq that goes out first; there must be one."""
    return window.ready.keys[0] & ((<uint64_t>1 << SEQ_BITS) - 1)


cdef inline uint64_t ready_at(Window* window, Py_ssize_t i) noexcept nogil:
    """The seq of one that is READY, in no order, 0 <= i < ready_in."""
    return window.ready.keys[i] & ((<uint64_t>1 << SEQ_BITS) - 1)
