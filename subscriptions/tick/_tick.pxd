"""The turns of one worker. Words in _tick.pyi."""

from penstock.log_core.wal._unwritten cimport Unwritten
from penstock.log_core.wal._waiters cimport Awaiting
from penstock.log_core.wal._writer cimport Writer


cdef class Gathering:                       # reads that come together; their turns follow behind the last one
    cdef bint on                            # reads are being handled
    cdef bint alone                         # there is one only
    cdef list turns                         # to run behind them
    cdef int begin(self, bint alone) except -1
    cdef int end(self) except -1


cdef class Sink(Awaiting):
    cdef bint listed                        # has its place among those that are flushed
    cdef Py_ssize_t _output_capacity(self) except -1
    cdef int send_out(self) except -1
    cdef int has_output(self) except -1     # `send_out` is called in this turn
    cdef int served(self) except -1
    cdef bint awaits(self) except -1        # whether `served` needs what was read to be written


cdef class TickBase:
    cdef object log, call_soon, call_later, clock
    cdef readonly Writer writer             # the log, if it is the real one
    cdef Unwritten unwritten
    cdef public Gathering gathering         # of the loop's sockets; None: each read is one by itself
    cdef bint scheduled, running, writes_later
    cdef double quick_at, read_at           # of the last lone read that was one; of the one that is being read
    cdef list queues, sinks                 # ready; with output
    cdef list handed                        # feeds whose new entries this turn hands out, if the writer asks; or None
    cdef unsigned long long handed_lsn      # all up to here was handed out, in this turn or before
    cdef unsigned long long handed_first    # the first of this turn
    cdef unsigned long long settled_lsn     # all up to here was settled by its queues, or synced
    cdef bint only_messages                 # that was all
    cdef list relieved                      # of the sinks that were full those that are not any more
    cdef readonly unsigned long long turns
    cdef double serves_until                # on `clock`: nothing is handed out afterwards
    cdef bint holding                       # that was over when the turn began
    cdef bint is_over(self) except -1

    cpdef schedule(self)
    cpdef ready(self, queue)
    cdef int end_read(self) except -1
    cdef bint has_work(self) except -1
    cpdef bint begin_read(self, double now) except -1
    cpdef run_alone(self, Sink reader)
    cpdef dirty_connection(self, Sink sink)
    cdef int relieve(self, Sink sink) except -1
    cdef int run_behind_reads(self) except -1
    cdef bint may_write_later(self) except -1
    cdef int hand_out(self, bint at_once) except -1
    cdef int note_settled(self) except -1
    cdef int wake_relieved(self) except -1
    cdef int write_later(self) except -1
    cdef int begin(self) except -1
    cdef int end(self) except -1
    cdef int pump(self) except -1
    cdef int flush(self) except -1
