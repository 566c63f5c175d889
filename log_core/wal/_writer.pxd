"""The end of a turn in the log. Words in _writer.pyi."""

from libc.stdint cimport uint64_t

from penstock.log_core.wal._active cimport ActiveFile
from penstock.log_core.batch._appender cimport Appender
from penstock.log_core.wal._unwritten cimport Unwritten
from penstock.log_core.wal._waiters cimport Awaiting, Waiters


cdef class Writer:
    cdef readonly Appender appender
    cdef readonly Unwritten unwritten
    cdef ActiveFile active                  # None until the log has started
    cdef readonly Waiters waiting_written, waiting_synced
    cdef readonly Waiters waiting_kept      # for `kept_lsn`; unless `confirms_settled` it is `waiting_synced`
    cdef public object failed
    cdef public object before_flush
    cdef public uint64_t written_lsn, synced_lsn
    cdef readonly uint64_t visible_lsn      # nobody may see a record above it: synced, or no limit
    cdef readonly uint64_t kept_lsn         # all up to here is synced, or settled by all its queues
    cdef public uint64_t checkpoint_at      # in appended bytes
    cdef readonly uint64_t written_bytes
    cdef public uint64_t synced_bytes
    cdef readonly uint64_t noted_lsn
    cdef uint64_t max_unsynced_bytes
    cdef readonly bint syncs
    cdef readonly bint confirms_settled     # what all its queues have settled need not be synced
    cdef bint sync_later                    # `flush` leaves the sync to `settled`
    cdef readonly uint64_t write_ns         # spent in writes, of those that failed too
    cdef bint full                          # the last write found no room
    cdef bint late                          # more than `max_unsynced_bytes` waited for the disk
    cdef public object committer            # None until the log has started
    cdef public tuple closing               # descriptors of files that are full and not durable yet

    cdef readonly list held                 # called when the disk is less busy

    cdef int await_written(self, uint64_t lsn, Awaiting who) except -1
    cdef int await_synced(self, uint64_t lsn, Awaiting who) except -1
    cdef int write(self, list batches) except -1
    cdef int await_kept(self, uint64_t lsn, Awaiting who) except -1
    cdef bint awaits_sync(self) noexcept
    cdef uint64_t unsynced(self) noexcept
    cdef bint is_busy(self) noexcept
    cdef int when_less_busy(self, callback) except -1
    cdef bint wants_sync(self, Waiters waiting) noexcept
    cdef int settled(self, uint64_t lsn) except -1
