# The result of a take, for the kernels that fill it and the encoders that read it.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint16_t

from penstock.log_core.batch._batch cimport RecordHeader
from penstock.log_core.feeds._feed cimport Feed

cdef enum:
    MAX_TAKE = 1024             # items one take may give
    COUNTED = 2                 # of Item.redelivered: and its consumer is told how often
    MATCH_SET = 0x80000000      # bit of `match`: an interned set of tags, not one tag


cdef struct Item:
    uint64_t seq                # names the delivery; never reused within its cursor
    PyObject* batch             # borrowed Batch: alive until the next take of ANY cursor, or the tick's end
    uint32_t index              # of the record in batch.headers
    uint32_t match              # a tag, or MATCH_SET | id (see Cursor.match_tags)
    uint16_t count              # deliveries before this one that failed
    uint16_t released           # deliveries before it that were given back and did not fail
    int redelivered             # 0, 1 or COUNTED


cdef struct Taken:
    Item* items                 # [0, n)
    Py_ssize_t n
    uint64_t cold               # take stopped at this position, which is not in memory; 0: it did not
    PyObject* cold_feed         # take stopped because this feed's entry `cold_index` is not resident; NULL: it did not
    uint64_t cold_index
    bint unwritten              # take stopped at a record of the batch that is still open
    bint held                   # take stopped at a record that is written and not visible: its feed tells when it is
    bint more                   # take stopped because it looked at, or reported, as many records as it may
    bint plain                  # no item is redelivered
    uint32_t run_count          # > 0: the items are entries [run_first, run_first + run_count) of feed run_feed
    uint64_t run_feed, run_first


cdef struct Reading:            # the batch that was read last; _taken keeps it and its log alive
    PyObject* log
    PyObject* batch
    RecordHeader* headers
    uint64_t base
    uint64_t count
    int64_t base_ts
    bint lost                   # it stands for records that cannot be read any more


cdef Taken TAKEN
cdef Reading READ

cdef void begin_take() noexcept
cdef void stop_at_entry(Feed feed, uint64_t index) noexcept
cdef bint read_batch(object log, uint64_t pos) except -1


cdef inline bint find_record(object log, uint64_t pos) except -1:
    """Make READ the batch that holds `pos`; False when it is not in memory."""
    if READ.log == <PyObject*>log and pos - READ.base < READ.count:
        return True
    return read_batch(log, pos)


cdef inline RecordHeader* header_of(uint64_t pos) noexcept:
    """Of a position that `find_record` found."""
    return READ.headers + (pos - READ.base)


cdef class KeptResult:          # may be restored behind a take of one item
    cdef Taken taken
    cdef Item first
    cdef Reading reading
    cdef list held
    cdef object log
    cdef Feed feed

    cdef void restore(self) noexcept


cdef class TakeResult:
    pass
