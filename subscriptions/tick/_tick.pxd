"""The turns of one worker. Words in _turns.pyi."""

from penstock.log_core.wal._unwritten cimport Unwritten


cdef class Sink:
    cdef bint listed                        # has its place among those that are flushed
    cdef Py_ssize_t room_left(self) except -1
    cdef int send_out(self) except -1
    cdef int served(self) except -1
    cdef bint awaits(self) except -1        # whether `served` needs what was read to be written


cdef class TickBase:
    cdef object log, call_soon, call_later, clock
    cdef Unwritten unwritten
    cdef bint scheduled, running, writes_later
    cdef double quick_at, read_at           # of the last lone read that was one; of the one that is being read
    cdef list queues, sinks                 # ready; with output
    cdef list relieved                      # of the sinks that were full those that are not any more
    cdef readonly unsigned long long turns

    cpdef schedule(self)
    cdef int end_read(self) except -1
    cdef bint has_work(self) except -1
    cpdef bint begin_read(self, double now) except -1
    cpdef run_alone(self, Sink reader)
    cpdef dirty_connection(self, Sink sink)
    cdef int relieve(self, Sink sink) except -1
    cdef int wake_relieved(self) except -1
    cdef int write_later(self) except -1
    cdef int begin(self) except -1
    cdef int end(self) except -1
    cdef int pump(self) except -1
    cdef int flush(self) except -1
