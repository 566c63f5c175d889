# cython: auto_pickle=False
"""One turn of the event loop: write, hand out, confirm, flush.

Owns the order of a turn and the list of queues with something to do. Front ends append records and
change output buffers during reads, then call `schedule`; the turn runs once after all reads that were ready
together (`Gathering`; or behind a lone small read, see `begin_read`):

    1 log.flush()            one write of everything appended since the last turn; confirms of class written
    2 hand out               what the queues at a feed which got entries can take at once; others are woken
    3 pump                   ready queues, a bounded number of messages each, for about 5 ms
    4 connection.flush()     each dirty connection once

Steps 2 and 3 are left out past the time of `serve_until`.

A lone read's turn hands out and sends before it writes: at that rate latency is all that matters. Writes that
nobody waits for are left to a turn some milliseconds later, which writes for several; so does a turn of reads
that brought little.

A turn that leaves work (a queue with more to give) schedules the next one through the loop, so sockets
are read in between. Knows no protocol, no queue's inside, no file.
"""

import logging

from cpython.dict cimport PyDict_Size
from cpython.list cimport PyList_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport uint32_t

from penstock.log_core.feeds._feed cimport Feed
from penstock.log_core.wal._unwritten cimport Unwritten
from penstock.log_core.wal._waiters cimport Awaiting
from penstock.log_core.wal._writer cimport Writer
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._events cimport EVENTS, append_events
from penstock.subscriptions.cursor._take_result import release
from penstock.subscriptions.tick._fast_path cimport Served, deliver_directly

logger = logging.getLogger("penstock.subscriptions")

QUICK_EACH_S = 0.0004
WRITE_WITHIN_S = 0.005
cdef double EACH_S = QUICK_EACH_S
cdef double LATER_S = WRITE_WITHIN_S
cdef double PUMP_S = 0.005          # in which a turn begins with new queues; those that are left come first in the next one
cdef enum:
    LATER_BYTES = 65536             # with more than that to write, nothing is left to a later turn
    CHECK_EACH = 8                  # queues between two looks at the clock


cdef class Gathering:
    def __cinit__(self):
        self.turns = []

    cdef int begin(self, bint alone) except -1:
        self.on = True
        self.alone = alone
        return 0

    cdef int end(self) except -1:
        cdef TickBase turns
        cdef list waiting = self.turns
        self.on = False
        if waiting:
            self.turns = []
            for turns in waiting:
                turns.run_behind_reads()
        return 0


cdef class Sink(Awaiting):
    cdef Py_ssize_t _output_capacity(self) except -1:
        return self.output_capacity()

    cdef int send_out(self) except -1:
        self.flush()
        return 0

    cdef int has_output(self) except -1:
        return self.send_out()

    cdef int served(self) except -1:
        self.answer()
        return 0

    cdef bint awaits(self) except -1:
        return True

    def answer(self):
        pass

    def writable_again(self):
        pass


cdef class TickBase:
    def __init__(self, log not None, call_soon not None, call_later not None, clock not None):
        self.log = log
        self.writer = log if isinstance(log, Writer) else None
        self.unwritten = log.unwritten
        self.unwritten.on_shown = self.schedule
        self.call_soon = call_soon
        self.call_later = call_later
        self.clock = clock
        self.quick_at = -EACH_S
        self.serves_until = INFINITY
        self.queues = []
        self.sinks = []
        self.relieved = []

    @property
    def held(self):
        return self.is_over()

    def serve_until(self, double at):
        self.serves_until = at
        if self.holding and not self.is_over():
            self.holding = False
            self.schedule()

    cdef bint is_over(self) except -1:
        return self.serves_until != INFINITY and <double>self.clock() > self.serves_until

    cpdef schedule(self):
        if not self.scheduled:
            self.scheduled = True
            if self.gathering is not None and self.gathering.on:
                self.gathering.turns.append(self)
            else:
                self.call_soon(self.run)

    cpdef bint begin_read(self, double now) except -1:
        if self.scheduled or self.running:
            return False
        if self.gathering is not None and self.gathering.on:
            if not self.gathering.alone:
                return False
        elif now - self.quick_at < EACH_S:
            return False
        self.read_at = now
        self.scheduled = True
        return True

    cdef int end_read(self) except -1:
        if self.unwritten.anything():
            self.schedule()
        return 0

    cdef bint has_work(self) except -1:
        return PyList_GET_SIZE(self.queues) > 0 or PyList_GET_SIZE(self.sinks) > 0 or self.unwritten.anything()

    cpdef ready(self, queue):
        self.queues.append(queue)
        if not self.scheduled and not self.running:
            self.schedule()

    cpdef dirty_connection(self, Sink sink):
        if not sink.listed:
            sink.listed = True
            self.sinks.append(sink)
            if not self.scheduled and not self.running:
                self.schedule()

    cdef int relieve(self, Sink sink) except -1:
        """Tell it in the next turn that it has room again: waking a queue in the middle of this one would pump it."""
        self.relieved.append(sink)
        if not self.scheduled and not self.running:
            self.schedule()
        return 0

    cdef int run_behind_reads(self) except -1:
        """The turn of reads that came together: as `run`, but what is little and not waited for is written later."""
        if not self.may_write_later():
            self.run()
            return 0
        self.begin()
        try:
            self.unwritten.publish()
            self.hand_out(False)
            self.wake_relieved()
            self.pump()
            release()
            self.flush()
            if self.log.awaited:
                self.log.flush()
                self.flush()
            else:
                self.write_later()
            if self.handed is not None:
                self.note_settled()
        finally:
            self.end()
        return 0

    cdef bint may_write_later(self) except -1:
        cdef Writer writer = self.writer
        return (
            writer is not None and not self.unwritten.holds_back and EVENTS.n == 0 and writer.before_flush is None and writer.failed is None
            and writer.waiting_written.count == 0 and not writer.awaits_sync()
            and writer.appender.appended_bytes + writer.appender.blob_size - writer.written_bytes < LATER_BYTES
        )

    cdef int hand_out(self, bint at_once) except -1:
        """Serve the queues at the feeds which got entries, or wake them; `at_once`: send what they get, too."""
        cdef list feeds
        if self.holding:
            return 0        # the feeds stay in the list
        feeds = self.unwritten.take_dirty()
        if self.writer is not None and self.writer.confirms_settled:
            self.handed = feeds
            self.handed_first = self.handed_lsn + 1
            self.handed_lsn = self.writer.appender.next_lsn - 1
            self.only_messages = self.writer.appender.state_lsn < self.handed_first
        if feeds:
            deliver_directly(feeds, at_once, self.clock, PUMP_S)
        return 0

    cdef int note_settled(self) except -1:
        """Tell the log if all that was handed out so far has been settled by all queues that got it.

        Such a queue waits at its feeds, and has nothing ready or out. A feed that a stream reads, or nobody,
        has no queue, and needs the disk. One record that is not settled makes all behind it wait for a sync.
        """
        cdef list feeds = self.handed
        cdef Feed feed
        cdef Cursor cursor
        self.handed = None
        self.settled_lsn = max(self.settled_lsn, self.writer.kept_lsn)
        if not self.only_messages or self.settled_lsn + 1 < self.handed_first:
            return 0
        for feed in feeds:
            if feed.users == 0 or <uint32_t>PyDict_Size(feed.waiters) != feed.users:
                return 0
            for queue in feed.waiters:
                if not isinstance(queue, Served):
                    return 0
                cursor = queue.cursor
                if cursor.outstanding or cursor.ready_count():
                    return 0
        self.settled_lsn = max(self.settled_lsn, self.handed_lsn)
        self.writer.settled(self.settled_lsn)
        return 0

    def run(self):
        self.begin()
        try:
            if EVENTS.n:
                append_events(self.unwritten.appender)
            if self.writer is not None and self.writer.confirms_settled:
                self.writer.sync_later = True
            self.log.flush()
            self.hand_out(False)
            self.wake_relieved()
            self.pump()
            release()
            self.flush()
            if self.handed is not None:
                self.note_settled()
                self.flush()
        finally:
            self.end()

    cpdef run_alone(self, Sink reader):
        if not self.has_work():
            try:
                reader.served()
            except BaseException:
                self.scheduled = False      # or no turn would ever come again
                raise
            if not self.has_work():
                # Acknowledgements, as a rule: the next read may have the turn.
                self.scheduled = False
                return
        self.quick_at = self.read_at
        self.begin()
        try:
            self.unwritten.publish()
            try:
                self.hand_out(True)
                self.pump()
                release()
                self.flush()
            finally:
                if reader.awaits() or self.log.awaited:
                    self.log.flush()
                else:
                    self.write_later()
            if self.handed is not None:
                self.note_settled()
            reader.served()         # what waited for the write only can be said at once
            self.flush()
        finally:
            self.end()

    def write_soon(self):
        self.write_later()

    cdef int write_later(self) except -1:
        if not self.writes_later:
            self.writes_later = True
            self.call_later(LATER_S, self._write)
        return 0

    def _write(self):
        self.writes_later = False
        self.schedule()

    cdef int begin(self) except -1:
        self.scheduled = False
        self.running = True
        self.turns += 1
        self.holding = self.is_over()
        return 0

    cdef int end(self) except -1:
        self.running = False
        if self.writer is not None and self.writer.sync_later:
            self.writer.sync_later = False
            if self.writer.awaits_sync():
                self.writer.sync()
        if (self.queues and not self.holding) or self.sinks or self.relieved:
            self.schedule()
        return 0

    cdef int wake_relieved(self) except -1:
        cdef list sinks = self.relieved
        if not sinks:
            return 0
        self.relieved = []
        for sink in sinks:
            try:
                sink.writable_again()
            except Exception:
                logger.exception("a connection with room again failed", extra={"connection": repr(sink)})
        return 0

    cdef int pump(self) except -1:
        cdef list queues = self.queues
        cdef Py_ssize_t i
        if not queues or self.holding:
            return 0
        self.queues = []
        ends = self.clock() + PUMP_S
        for i in range(len(queues)):
            queue = queues[i]
            try:
                if not (isinstance(queue, Served) and (<Served>queue).fast_path is not None
                        and (<Served>queue).fast_path.pump()):
                    queue.pump()
            except Exception:
                logger.exception("a queue failed in its turn", extra={"queue": repr(queue)})
            if i % CHECK_EACH == CHECK_EACH - 1 and self.clock() > ends:
                self.queues[:0] = queues[i + 1:]    # first in the next turn
                break
        return 0

    cdef int flush(self) except -1:
        cdef list sinks = self.sinks
        cdef Sink sink
        if not sinks:
            return 0
        self.sinks = []
        # Consumers come first: connections with answers are listed before, and wait for less.
        for sink in reversed(sinks):
            sink.listed = False
            try:
                sink.send_out()
            except Exception:
                logger.exception("a connection failed to flush", extra={"connection": repr(sink)})
        return 0
