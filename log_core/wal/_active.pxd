"""The end of the file that is being written. Words in _active.pyi."""

from libc.stdint cimport int64_t, uint64_t


cdef class ActiveFile:
    cdef object write_batches               # Files.write_batches; None: it is that of _io
    cdef readonly object segment            # what readers know of the file
    cdef readonly int fd
    cdef readonly list pending
    cdef uint64_t pending_done              # how much of `pending` is written
    cdef readonly uint64_t end              # segment.end
    cdef public uint64_t roll_at
    cdef uint64_t mark_at                   # a batch that begins at or behind it gets a mark in the sparse index
    cdef int64_t max_ts                     # segment.max_ts

    cdef bint wants_roll(self) noexcept
    cdef list write(self, list batches)
    cdef int note(self, list batches, uint64_t size) except -1
    cdef int note_written(self, uint64_t lsn, uint64_t offset, int64_t time_ms) except -1
