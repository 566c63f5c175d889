"""The rules of a cursor beyond plain queueing: age, size, order, and who hears of what leaves it.

Most cursors have none of this.
"""

from libc.stdint cimport int64_t, uint32_t

from penstock.log_core.batch._batch cimport RecordHeader
from penstock.subscriptions.cursor._window cimport Entry

cdef enum:
    TTL_NEVER = 0xFFFFFFFF
    EVERLASTING = -2            # ttl_ms of a reader that looks at no record's own time


cdef class CursorRules:
    def __cinit__(self):
        self.ttl_ms = self.length_max = self.bytes_max = -1
        self.delivery_limit = NO_LIMIT


cdef class KeyHolders:
    cdef void let_go(self, uint32_t slot) noexcept:
        pass


cdef void let_go(CursorRules rules, Entry* entry) noexcept:
    """The place is not out any more: whoever holds its key has one message less of it."""
    cdef uint32_t slot = entry.slot - 1
    entry.slot = 0
    if rules is not None and rules.key_holders is not None:
        rules.key_holders.let_go(slot)


cdef int64_t expiry_of(RecordHeader* header, int64_t base_ts, CursorRules rules) noexcept:
    """When the record's time is over, in ms since the epoch; -1: never.

    A record says 1 ms for a time of 0, which would be none: both are over at once.
    """
    cdef int64_t ttl = -1
    if header.ttl != 0 and header.ttl != TTL_NEVER:
        ttl = 0 if header.ttl == 1 else header.ttl
    if rules is not None:
        if rules.ttl_ms == EVERLASTING:
            return -1
        if rules.ttl_ms >= 0 and (ttl < 0 or rules.ttl_ms < ttl):
            ttl = rules.ttl_ms
    return -1 if ttl < 0 else base_ts + <int64_t>header.ts + ttl
