# cython: auto_pickle=False
"""The end of a turn: what was appended goes into the file with one call, and who waits for that is told.

Ordinarily nothing else is due, and then nothing here is Python. Rare work (a sync for bulk, the next file, a
checkpoint, a full disk) is passed to the log by the methods at the end, which `Log` overrides.
"""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport UINT64_MAX
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from penstock.log_core.threads._pace cimport Pace
from penstock.log_core.threads.callbacks import tell_all


cdef inline uint64_t now_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1_000_000_000 + <uint64_t>now.tv_nsec


cdef class Writer:
    def __init__(self, Unwritten unwritten not None, Appender appender not None, uint64_t max_unsynced_bytes,
                 bint syncs, bint confirms_settled=False):
        self.unwritten = unwritten
        self.appender = appender
        self.max_unsynced_bytes = max_unsynced_bytes
        self.syncs = syncs
        # No consumer settles a message that is held back until it is synced.
        self.confirms_settled = confirms_settled and syncs and not unwritten.holds_back
        self.closing = ()
        self.held = []
        self.waiting_written = Waiters()
        self.waiting_synced = Waiters()
        self.waiting_kept = Waiters() if self.confirms_settled else self.waiting_synced

    def begin(self, ActiveFile active not None, uint64_t last_lsn):
        self.active = active
        self.written_lsn = self.synced_lsn = self.kept_lsn = self.noted_lsn = self.appender.synced_lsn = last_lsn
        self.unwritten.shown_lsn = last_lsn
        self.visible_lsn = last_lsn if self.unwritten.holds_back else UINT64_MAX

    @property
    def awaited(self):
        return self.waiting_written.count > 0 or self.awaits_sync() or self.unwritten.holds_back

    @property
    def backlog_bytes(self):
        return self.appender.appended_bytes - self.synced_bytes

    def flush(self):
        cdef list batches
        cdef uint64_t before = self.written_bytes
        if self.before_flush is not None:
            self.before_flush()
        batches = self.unwritten.take()
        if self.failed is not None:
            self.waiting_written.fail()
            self.waiting_synced.fail()
            self.waiting_kept.fail()
            return
        if PyList_GET_SIZE(batches) or PyList_GET_SIZE(self.active.pending):
            self.write(batches)
        if self.waiting_written.count:
            self.waiting_written.reached(self.written_lsn)
        if self.awaits_sync():
            self.waiting_synced.reached(self.synced_lsn)
            self.waiting_kept.reached(self.kept_lsn)
            if self.awaits_sync() and not self.sync_later:
                self.sync()
                return
        if self.unwritten.holds_back and self.written_bytes > before:
            self.sync()         # consumers wait for it

    def when_synced(self, uint64_t lsn, callback not None):
        self.waiting_synced.add(lsn, callback)
        if self.failed is not None or lsn <= self.synced_lsn:
            self.tell_soon()
        elif lsn <= self.written_lsn:
            self.sync()

    def pace(self):
        cdef Pace pace = Pace()
        pace.moves(self.appender, &self.appender.next_lsn)
        pace.watch(self.waiting_written, &self.waiting_written.count)
        pace.watch(self.waiting_synced, &self.waiting_synced.count)
        pace.watch(self.waiting_kept, &self.waiting_kept.count)
        return pace

    cdef int settled(self, uint64_t lsn) except -1:
        """All up to `lsn` that is not synced has been settled by all its queues: tell who waits for that."""
        lsn = min(lsn, self.written_lsn)
        if lsn > self.kept_lsn and self.failed is None:
            self.kept_lsn = lsn
            self.waiting_kept.reached(lsn)
        return 0

    cdef bint awaits_sync(self) noexcept:
        return self.waiting_synced.count > 0 or self.waiting_kept.count > 0

    cdef int await_written(self, uint64_t lsn, Awaiting who) except -1:
        """Have `who` told by the `flush` that writes `lsn`, which is not written yet."""
        self.waiting_written.put(lsn, who)
        return 0

    cdef int await_synced(self, uint64_t lsn, Awaiting who) except -1:
        """The same when it is durable; `lsn` is not durable yet."""
        self.waiting_synced.put(lsn, who)
        if lsn <= self.written_lsn and self.failed is None and not self.sync_later:
            self.sync()
        return 0

    cdef int await_kept(self, uint64_t lsn, Awaiting who) except -1:
        """The same when it is kept: for confirms of messages."""
        self.waiting_kept.put(lsn, who)
        if lsn <= self.written_lsn and self.failed is None and not self.sync_later:
            self.sync()
        return 0

    def sync(self):
        if self.syncs and self.synced_bytes < self.written_bytes:
            self.committer.want((*self.closing, self.active.fd), self.written_lsn, self.written_bytes)

    def rung(self):
        self.synced(*self.committer.answer_bell(), None)

    def synced(self, uint64_t lsn, uint64_t mark, error):
        if self.failed is not None:
            return
        if error is not None:
            self.sync_failed(error)
            return
        self.synced_bytes = max(self.synced_bytes, mark)
        if lsn > self.synced_lsn:
            self.synced_lsn = self.appender.synced_lsn = lsn
            self.kept_lsn = max(self.kept_lsn, lsn)
            if self.unwritten.holds_back:
                self.visible_lsn = lsn
                self.unwritten.show(lsn)
        if self.closing:
            self.release_closed(lsn)
        self.waiting_synced.reached(lsn)
        self.waiting_kept.reached(self.kept_lsn)
        if self.wants_sync(self.waiting_synced) or self.wants_sync(self.waiting_kept):
            self.sync()
        if self.held and self.unsynced() <= self.max_unsynced_bytes // 4:
            held, self.held = self.held, []
            tell_all(held)
        if self.late and self.appender.appended_bytes - self.synced_bytes <= self.max_unsynced_bytes // 2:
            self.late = False
            self.behind(False)

    cdef uint64_t unsynced(self) noexcept:
        return self.appender.appended_bytes + self.appender.blob_size - self.synced_bytes

    cdef bint is_busy(self) noexcept:
        """So much waits for the disk that those who write much should wait, before all others have to."""
        return self.syncs and self.failed is None and self.unsynced() > self.max_unsynced_bytes // 2

    cdef int when_less_busy(self, callback) except -1:
        """Have `callback()` called when the disk has caught up: at half of that. It is busy now."""
        self.held.append(callback)
        return 0

    cdef bint wants_sync(self, Waiters waiting) noexcept:
        """Whether somebody waits for what is written."""
        return waiting.count > 0 and waiting.at(0).lsn <= self.written_lsn

    cdef int write(self, list batches) except -1:
        cdef uint64_t backlog
        cdef uint64_t began = now_ns()
        try:
            batches = self.active.write(batches)
        except OSError as error:
            self.write_failed(error)
            return 0
        finally:
            self.write_ns += now_ns() - began
        if self.full != (PyList_GET_SIZE(batches) == 0):
            self.full = not self.full
            self.found_room(not self.full)
        if self.full:
            return 0
        self.noted_lsn = self.appender.synced_lsn
        self.unwritten.written(batches)
        self.written_lsn = self.appender.next_lsn - 1
        self.written_bytes = self.appender.appended_bytes
        if not self.syncs:
            self.synced_lsn = self.kept_lsn = self.appender.synced_lsn = self.written_lsn
            self.synced_bytes = self.written_bytes
        else:
            backlog = self.written_bytes - self.synced_bytes
            if backlog > self.max_unsynced_bytes // 8:
                self.sync()
                if backlog > self.max_unsynced_bytes and not self.late:
                    self.late = True
                    self.behind(True)
        if self.active.wants_roll():
            self.file_full()
        if self.written_bytes >= self.checkpoint_at:
            self.checkpoint_due()
        return 0
