"""For the scanner and the deliverer: a session's packet ids in both directions. Words in _ids.pyi."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from penstock.subscriptions.cursor._cursor cimport Cursor

cdef enum:                      # Flight.state
    FREE = 0
    WAIT_ACK = 1                # QoS 1 sent, PUBACK is next
    WAIT_REC = 2                # QoS 2 sent, PUBREC is next
    WAIT_COMP = 3               # PUBREL (to be) sent, PUBCOMP is next

cdef enum:
    OWN_QUEUE = 0               # Flight.source: index in Inflight.cursors
    RETAINED = 0xFFFF           # Flight.source: seq is a token of the session's retained deliveries
    PACKET_IDS = 65535

cdef struct Flight:
    uint64_t lsn                # position of the record; 0 = not one of the log
    uint64_t seq                # names the delivery to its cursor; 0 = not known since a restart
    uint16_t source
    uint8_t state
    uint8_t sent                # on this connection


cdef class Inflight:
    cdef Flight* ring           # entry of counter c = ring[c & mask]; packet id = c % PACKET_IDS + 1
    cdef uint64_t mask, head, tail
    cdef readonly Py_ssize_t held, sent, unsent
    cdef public Py_ssize_t window
    cdef uint64_t resume_at
    cdef readonly uint64_t resume_last
    cdef public list cursors
    cdef public list done_tokens
    cdef readonly bint changed, exact_changed, exact_done
    cdef public bint will_be_saved  # somebody knows that it changed, and puts the row in time
    cdef bint starved           # somebody wanted an id, and the window had none
    cdef readonly bint freed    # that can be had now, or a retained message is done: `take_freed` is to be called

    cdef inline bint needs_saving(self) noexcept:
        """Whether somebody has to be told that it changed."""
        return self.exact_changed or (self.changed and not self.will_be_saved)

    cdef Flight* find(self, uint32_t packet_id) noexcept
    cdef int grow(self) except -1
    cpdef Py_ssize_t send_quota(self)
    cdef uint32_t assign(self, uint64_t lsn, uint64_t seq, uint16_t source, int qos) except? 0
    cdef void free_entry(self, Flight* flight) noexcept
    cdef void settle(self, Flight* flight)
    cdef int on_puback(self, uint32_t packet_id)
    cdef int on_pubrec(self, uint32_t packet_id, uint32_t reason)
    cdef int on_pubcomp(self, uint32_t packet_id)
    cdef bint abandon(self, Flight* flight)
    cdef bint uses(self, Py_ssize_t source) noexcept
    cdef Flight* resumed(self, uint64_t lsn, uint32_t* packet_id) noexcept


cdef class Received:
    cdef uint8_t* bits
    cdef readonly Py_ssize_t count
    cdef public bint changed

    cdef bint has(self, uint32_t packet_id) noexcept
    cdef int add(self, uint32_t packet_id) except -1
    cdef bint drop(self, uint32_t packet_id) noexcept
