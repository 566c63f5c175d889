"""The consuming side of the native protocol. The words are in _consumer.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from penstock.log_core.reading._resident cimport Place
from penstock.log_core.segments._segment_file cimport Stretch
from penstock.protocols.native.codec._in_flight cimport Held
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.subscriptions.tick._stored_batches cimport BatchConsumer
from penstock.subscriptions.cursor._cursor cimport Cursor


cdef enum Fate:                 # of a delivery
    DONE
    REJECTED
    GIVEN_BACK


cdef class Outgoing:                # what the consumers of one connection share
    cdef readonly OutBuffer out
    cdef public str packs               # how deliveries are compressed; "": they are not
    cdef public bint stores             # batches may go out as they are stored
    cdef readonly uint64_t delivered, acknowledged
    cdef readonly Py_ssize_t pulls      # that wait
    cdef uint64_t pulled                # that ever began

    cdef int pack_from(self, Py_ssize_t began) except -1


cdef class Pull:
    cdef readonly uint32_t request
    cdef readonly int64_t messages, size        # how much more it takes at most
    cdef readonly int64_t messages_min, size_min  # how much more it needs to be complete
    cdef readonly uint32_t got
    cdef readonly bint over
    cdef public double due                      # when its time is up; they are sorted by that, then as they came
    cdef uint64_t number


cdef class Consumer(BatchConsumer):
    cdef Outgoing outgoing
    cdef readonly uint32_t id
    cdef public object queue
    cdef readonly int priority
    cdef readonly bint auto             # what is delivered is settled at once
    cdef public bint attached
    cdef public bint paused             # it is given nothing
    cdef readonly int64_t messages, size        # credit: may be below 0
    cdef readonly int64_t window, size_window   # the most that it ever was
    cdef list waiting                   # Pulls from `first_pull` on, the oldest first, with some that are over
    cdef Py_ssize_t first_pull
    cdef readonly Py_ssize_t pulls      # that wait
    cdef readonly bint starving         # asked, and had no credit
    cdef readonly int64_t unacked_max
    cdef Cursor cursor                  # what its tags belong to
    cdef Held held
    cdef bint extended                  # some that are out count from later than they were delivered
    cdef readonly uint64_t delivered, acknowledged
    cdef readonly object host           # the session it belongs to
    cdef object output_capacity
    cdef int small                      # batches handed on last that were small: see is_worth
    cdef Place place                    # where it reads what is stored; None: it did not yet
    cdef public object watch            # called once, when something is out; None: nobody waits for that
    cdef readonly str name
    cdef readonly list ranges           # of slots that it wants

    cdef Pull oldest_pull(self)
    cpdef Py_ssize_t credit(self) except -1
    cpdef Py_ssize_t deliver(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step) except -1
    cdef Py_ssize_t encode_run(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step, Py_ssize_t most,
                               int64_t size_most, uint32_t request, int64_t* used) except -1
    cdef Py_ssize_t deliver_run(self, Cursor cursor, Py_ssize_t most, int64_t size_most) except -1
    cdef Py_ssize_t put_stored(self, Cursor cursor, uint8_t* p, size_t size, Stretch stretch, uint64_t first,
                               uint32_t count, uint64_t blobs) except -1
    cdef int delivers(self) except -1
    cdef Py_ssize_t end(self, uint64_t first, uint64_t last, Fate fate, int32_t delay_ms) except -1
