# The rules of a cursor beyond plain queueing. The words are in _rules.pyi.

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport RecordHeader
from penstock.subscriptions.cursor._window cimport Entry

cdef enum:
    NO_LIMIT = 0x10000          # more deliveries than a place counts


cdef class KeyHolders:                      # who has unsettled messages of which key
    cdef void let_go(self, uint32_t slot) noexcept


@cython.final
cdef class CursorRules:
    cdef public object on_expired
    cdef public object on_refused
    cdef public object on_excess
    cdef public int64_t ttl_ms
    cdef public int64_t length_max
    cdef readonly int64_t bytes_max
    cdef public uint32_t delivery_limit
    cdef public bint tells_count
    cdef public bint refuses_bytes
    cdef readonly uint8_t priority_max
    cdef uint64_t bytes                     # of the bodies of what is READY
    cdef uint64_t ahead                     # of those that are expected and were not gathered yet
    cdef list dropped                       # seqs that this take found expired, for on_expired
    cdef bint caps                          # what is over the limits is out, in `excess`: `Cursor.cap`
    cdef int64_t cap                        # of what is READY; -1: none
    cdef list excess
    cdef KeyHolders key_holders             # None: nobody asks who holds which key


cdef void let_go(CursorRules rules, Entry* entry) noexcept
cdef int64_t expiry_of(RecordHeader* header, int64_t base_ts, CursorRules rules) noexcept
