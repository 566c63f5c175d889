# cython: auto_pickle=False
"""The end of the file that is being written: one write per turn, and what readers must know of it.

For a message that comes alone this is all that happens between its delivery and its confirm, and the receiver may
be waiting for the core that it runs on. So the ordinary write touches a handful of fields and no table.
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE

from penstock.log_core.batch._batch cimport KIND_RECORDS, Batch
from penstock.log_core.files._io cimport write_gathered

from penstock.log_core.files._io import write_batches as write_directly
from penstock.log_core.files.files import is_full
from penstock.log_core.segments.segment import MARK_BYTES, OWN

cdef uint64_t MARK_EACH = MARK_BYTES
cdef object NOBODYS = OWN


cdef class ActiveFile:
    def __init__(self, write_batches not None):
        self.write_batches = None if write_batches is write_directly else write_batches
        self.fd = -1
        self.pending = []

    def take(self, segment not None, int fd, uint64_t roll_at):
        self.segment = segment
        self.fd = fd
        self.roll_at = roll_at
        self.end = segment.end
        self.max_ts = segment.max_ts
        self.mark_at = 0

    cdef bint wants_roll(self) noexcept:
        return self.end >= self.roll_at and PyList_GET_SIZE(self.pending) == 0

    cdef list write(self, list batches):
        """Write the batches of a turn, and those still pending; all that are written now.

        Empty when the disk is full: call again later, with the next ones. Raises OSError for every other failure;
        what is in the file is then unknown.
        """
        cdef Batch batch
        cdef uint64_t size = 0, done = self.pending_done
        if PyList_GET_SIZE(self.pending):
            self.pending.extend(batches)
            batches = self.pending
        for batch in batches:
            size += batch.nbytes
        try:
            while done < size:
                if self.write_batches is None:
                    done += write_gathered(self.fd, batches, self.end + done, done)
                else:
                    done += <uint64_t>self.write_batches(self.fd, batches, self.end + done, done)
        except OSError as error:
            if not is_full(error):
                raise
            self.pending = batches
            self.pending_done = done
            return []
        if self.pending_done or PyList_GET_SIZE(self.pending):
            self.pending_done = 0
            self.pending = []
        self.note(batches, size)
        return batches

    cdef int note(self, list batches, uint64_t size) except -1:
        cdef Py_ssize_t n = PyList_GET_SIZE(batches)
        cdef Batch batch = <Batch>PyList_GET_ITEM(batches, 0)
        cdef uint64_t at = self.end
        cdef dict held = self.segment.held
        self.note_written(batch.base_lsn, at, batch.base_ts)
        for batch in batches:
            if size > MARK_EACH and at != self.end:
                self.note_written(batch.base_lsn, at, batch.base_ts)
            at += batch.nbytes
            if held is not None:
                partition = batch.lp if batch.kind == KIND_RECORDS else NOBODYS
                held[partition] = held.get(partition, 0) + batch.nbytes
        self.end = at
        batch = <Batch>PyList_GET_ITEM(batches, n - 1)
        self.segment.end = at
        self.segment.next_lsn = batch.base_lsn + batch.count
        return 0

    cdef int note_written(self, uint64_t lsn, uint64_t offset, int64_t time_ms) except -1:
        if offset >= self.mark_at:
            self.segment.note_written(lsn, offset, time_ms)
            self.max_ts = self.segment.max_ts
            self.mark_at = offset + MARK_EACH
        elif time_ms > self.max_ts:
            self.segment.max_ts = self.max_ts = time_ms
        return 0
