"""The result of the last take of the process: its items, the batches they point into, and why it stopped.

There is one such result, for a take is encoded before the next one begins; so an idle cursor owns none of it.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.string cimport memset

from penstock.log_core.batch._batch cimport KIND_LOST, Batch
from penstock.log_core.feeds._feed cimport Feed
from penstock.log_core.reading._tail cimport Cache

cdef Item ITEMS[MAX_TAKE]
cdef list HELD = []             # the batches that ITEMS points into; the last one is READ's
cdef object READ_LOG = None     # owned, so that no other log can stand at its address
cdef Feed COLD = None           # owned, as long as TAKEN.cold_feed is read

memset(&TAKEN, 0, sizeof(TAKEN))
memset(&READ, 0, sizeof(READ))
TAKEN.items = ITEMS


def release() -> None:
    global READ_LOG, COLD
    HELD.clear()
    READ_LOG = COLD = None
    TAKEN.cold_feed = NULL
    memset(&READ, 0, sizeof(READ))


cdef void begin_take() noexcept:
    """Keep only the batch read last, which the next take probably reads too."""
    if len(HELD) > 1:
        del HELD[: len(HELD) - 1]
    TAKEN.n = 0
    TAKEN.cold = 0
    TAKEN.cold_feed = NULL
    TAKEN.unwritten = TAKEN.held = TAKEN.more = False
    TAKEN.plain = True
    TAKEN.run_count = 0


cdef void stop_at_entry(Feed feed, uint64_t index) noexcept:
    """The take stops here: the entry is not resident."""
    global COLD
    COLD = feed
    TAKEN.cold_feed = <PyObject*>feed
    TAKEN.cold_index = index


cdef bint read_batch(object log, uint64_t pos) except -1:
    """Part of `find_record`: ask the log's cache."""
    global READ_LOG
    cdef Cache cache = log.cache
    cdef Batch batch = cache.find(pos)
    if batch is None:
        return False
    HELD.append(batch)
    READ_LOG = log
    READ.log = <PyObject*>log
    READ.batch = <PyObject*>batch
    READ.headers = batch.headers
    READ.lost = batch.kind == KIND_LOST
    READ.base = batch.base_lsn
    READ.count = batch.count
    READ.base_ts = batch.base_ts
    return True


cdef class KeptResult:
    """The last take's result, while another take is made in the middle of its use."""

    def __cinit__(self):
        self.taken = TAKEN
        self.first = ITEMS[0]
        self.reading = READ
        self.held = HELD.copy()
        self.log = READ_LOG
        self.feed = COLD

    cdef void restore(self) noexcept:
        global TAKEN, READ, READ_LOG, COLD
        TAKEN = self.taken
        ITEMS[0] = self.first
        READ = self.reading
        HELD[:] = self.held
        READ_LOG = self.log
        COLD = self.feed


cdef class TakeResult:
    """The result of the last take for Python, by the cursor that took."""

    @property
    def taken_count(self):
        return TAKEN.n

    @property
    def cold(self):
        return TAKEN.cold

    @property
    def cold_feed(self):
        return <Feed>TAKEN.cold_feed if TAKEN.cold_feed != NULL else None

    @property
    def cold_index(self):
        return TAKEN.cold_index

    @property
    def unwritten(self):
        return TAKEN.unwritten

    @property
    def held(self):
        return TAKEN.held

    @property
    def more(self):
        return TAKEN.more

    def run_key(self):
        if TAKEN.run_count == 0:
            return None
        return (TAKEN.run_feed, TAKEN.run_first, TAKEN.run_count)

    def records(self):
        cdef Py_ssize_t i
        return [
            (
                TAKEN.items[i].seq,
                (<Batch>TAKEN.items[i].batch).base_lsn + TAKEN.items[i].index,
                TAKEN.items[i].match,
                TAKEN.items[i].count,
                bool(TAKEN.items[i].redelivered),
            )
            for i in range(TAKEN.n)
        ]

    def record(self, Py_ssize_t i):
        if not 0 <= i < TAKEN.n:
            raise IndexError(i)
        return <Batch>TAKEN.items[i].batch, TAKEN.items[i].index
