"""The events of messages and connections, noted for the table of events. The words are in _events.pyi."""

from libc.stdint cimport uint32_t, uint64_t

from penstock.log_core.batch._appender cimport Appender
from penstock.subscriptions.cursor._cursor_state cimport CursorState

cdef enum:                      # kinds, as they are stored; bit of `Events.kinds`
    CONNECT = 0
    DISCONNECT = 1
    SUBSCRIBE = 2
    UNSUBSCRIBE = 3
    DELIVER = 4
    ACK = 5
    REQUEUE = 6
    DEAD_LETTER = 7
    DROP = 8
    GAP = 9
    PUBLISH = 10


cdef struct Events:
    uint32_t kinds              # bits of what is noted; 0: it is off, and nothing else here is looked at
    uint32_t n                  # noted and not appended


cdef Events EVENTS

# Note something of a message: `pos` of the queue of `cursor`.
cdef void note_message(uint32_t kind, CursorState cursor, uint64_t pos, str detail) noexcept

# Append what was noted as one record.
cdef int append_events(Appender appender) except -1
