# What the encoders of the front ends cimport: `Item` and `Cursor`. The words are in _cursor.pyi.

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from penstock.log_core._batch cimport RecordHeader
from penstock.log_core._feed cimport Feed
from penstock.log_core._tail cimport Cache

cdef enum:
    MAX_TAKE = 1024             # items one take may give
    MATCH_SET = 0x80000000      # bit of `match`: an interned set of tags, not one tag


cdef struct Item:
    uint64_t seq                # names the delivery; never reused within its cursor
    PyObject* batch             # borrowed Batch: alive until the next take of ANY cursor, or the tick's end
    uint32_t index              # of the record in batch.headers
    uint32_t match              # a tag, or MATCH_SET | id (see Cursor.match_tags)
    uint16_t count              # deliveries before this one that were not acknowledged
    bint redelivered


cdef struct Entry:              # one place of the window
    uint64_t pos
    uint32_t match
    uint16_t count
    uint8_t state
    uint8_t reserved


cdef struct Straggler:          # a place that was set aside
    uint64_t seq
    Entry entry


cdef struct Run:                # what a restored cursor knows of positions [first, last] above its mark
    uint64_t first
    uint64_t last
    uint16_t count
    bint done


cdef struct Member:
    PyObject* feed              # borrowed from Cursor._feeds
    uint64_t next               # index of the next entry to take
    uint64_t to                 # index where the membership ends; UINT64_MAX while it is open
    uint64_t counted            # entries below this index are in Cursor._distinct
    uint64_t from_pos           # positions below never belonged to it
    uint64_t to_pos             # positions from here on do not; UINT64_MAX while it is open
    uint32_t tag
    bint closed


@cython.final
cdef class Cursor:
    cdef Item* items
    cdef readonly Py_ssize_t taken
    cdef readonly uint64_t cold             # take stopped at this position, which is not in memory; 0: it did not
    cdef readonly Feed cold_feed            # take stopped because this feed's entry `cold_index` is not resident
    cdef readonly uint64_t cold_index
    cdef readonly bint unwritten            # take stopped at a record of the batch that is still open
    cdef readonly bint more                 # take stopped because it reported as many expired records as it may
    cdef readonly uint64_t run_feed, run_first
    cdef readonly uint32_t run_count        # > 0: the items are entries [run_first, run_first + run_count) of feed run_feed

    cdef readonly uint64_t frontier         # the highest position looked at
    cdef readonly Py_ssize_t outstanding    # taken and neither settled nor given back
    cdef readonly uint64_t expired          # records dropped because their time was over
    cdef readonly uint64_t lost             # records that could not be read any more
    cdef readonly uint64_t settled
    cdef readonly uint64_t requeued
    cdef readonly bint dirty                # state() changed since it was last persisted
    cdef public bint scheduled              # its queue is on the tick's ready list
    cdef public object queue                # its queue: has wake()
    cdef public Py_ssize_t wake_below       # > 0: the queue is woken once fewer are out
    cdef public object on_dirty             # None (never persisted), or called with `queue` when dirty becomes True
    cdef public object on_expired           # None, or called with the list of the expired positions of a take
    cdef public object on_refused           # None, or called with (seq, reason) of what is to leave the queue
    cdef public uint64_t skip_transient_until, unclean_until
    cdef public int64_t ttl_ms              # the queue's own limit of age; -1: none
    cdef public uint32_t delivery_limit     # requeued at most so often; NO_LIMIT: any number of times

    cdef object _log
    cdef Cache _cache
    cdef tuple _feeds                       # one per membership; a tuple, for most queues have one
    cdef Member* _members
    cdef Py_ssize_t _nmembers, _cmembers, _nclosed
    cdef Entry* _ring                       # entry of seq = _ring[seq & _mask]
    cdef uint64_t _mask, _head, _tail       # [_head, _tail) = seqs in the window; capacity _mask + 1 (0: no ring)
    cdef uint64_t _touched                  # the highest seq that is done or was delivered before: none after it makes a run
    cdef uint64_t _done_to                  # every position up to here is done, but for what was set aside
    cdef Straggler* _aside                  # [_aside_first, _naside), ascending seqs below _head
    cdef Py_ssize_t _aside_first, _naside, _caside, _aside_done
    cdef uint64_t* _heap                    # seqs that are READY, a binary min-heap
    cdef Py_ssize_t _nheap, _cheap
    cdef Run* _runs
    cdef Py_ssize_t _nruns, _run
    cdef uint64_t _distinct, _counted_pos
    cdef list _sets
    cdef dict _set_ids
    cdef list _dropped                      # expired positions of this take, for on_expired

    cpdef Py_ssize_t take(self, Py_ssize_t n) except -1
    cpdef void settle(self, uint64_t seq) noexcept
    cpdef void settle_taken(self, Py_ssize_t first=*, Py_ssize_t step=*) noexcept
    cpdef int reject(self, uint64_t seq) except -1
    cpdef bint requeue(self, uint64_t seq) except -1
    cpdef Py_ssize_t requeue_all(self) except -1
    cpdef Py_ssize_t put_back(self, Py_ssize_t first, Py_ssize_t step=*, Py_ssize_t took=*) except -1
    cpdef tuple match_tags(self, uint32_t match)
    cpdef uint64_t ready_count(self) except? 0xFFFFFFFFFFFFFFFF

    cdef Entry* _entry(self, uint64_t seq) noexcept
    cdef int _grow(self) except -1
    cdef int _push_done(self, uint64_t pos) except -1
    cdef void _settle(self, uint64_t seq, Entry* entry) noexcept
    cdef void _free_ring(self) noexcept
    cdef uint64_t _floor(self) noexcept
    cdef int _add(self, Feed feed, uint32_t tag, uint64_t from_pos, uint64_t to_pos, uint64_t index,
                  uint64_t to) except -1
    cdef int _remove(self, Py_ssize_t i) except -1
    cdef void _recount(self) noexcept
    cdef void _uncount(self, uint64_t pos) noexcept
    cdef Py_ssize_t _heads(self, bint counting) except -2
    cdef Py_ssize_t _next_head(self, Py_ssize_t heads, bint counting) except -2
    cdef void _advance(self) noexcept
    cdef uint64_t _undone(self) noexcept
    cdef int _set_aside(self) except -1
    cdef void _wake_queue(self) noexcept
    cdef void _trim_aside(self) noexcept
    cdef void _soil(self) noexcept
    cdef int _ready(self, uint64_t seq) except -1
    cdef void _unready(self) noexcept
    cdef bint _find(self, uint64_t pos) except -1
    cdef void _missing(self, uint64_t pos)
    cdef int _stale(self, uint64_t pos, int64_t* now) except -1
    cdef int64_t _expiry(self, RecordHeader* header, int64_t base_ts) noexcept
    cdef int _give(self, uint64_t seq, Entry* entry) except -1
    cdef int _admit(self, uint64_t pos, uint32_t match, bint unwanted, int64_t* now) except -1
    cdef int _skip(self, uint64_t pos) except -1
    cdef Run* _run_of(self, uint64_t pos) noexcept
    cdef int _take_ready(self, Py_ssize_t n, int64_t* now) except -1
    cdef int _take_one(self, Member* member, Py_ssize_t n, int64_t* now) except -1
    cdef int _pass_transient(self, Feed feed, Member* member, uint64_t end) except -1
    cdef int _take_merged(self, Py_ssize_t n, int64_t* now) except -1
    cdef uint32_t _intern(self, uint32_t* tags, Py_ssize_t n) except? 0xFFFFFFFF
    cdef bint _load_uncounted(self) except -1
    cdef int _count_merged(self) except -1
