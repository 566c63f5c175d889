"""Batches taken whole. The words are in _batches.pyx."""

from libc.stdint cimport uint64_t

from penstock.log_core._batch cimport Batch
from penstock.subscriptions._cursor cimport Cursor


cdef class BatchOutlet:
    cpdef Py_ssize_t deliver_batch(self, Cursor cursor) except -1


# The next batch, when all of it is the cursor's next `most` or fewer; None: take as always. Nothing changes.
cdef Batch next_batch(Cursor cursor, Py_ssize_t most)
# Take it: settled at once, or out under the seqs from the one that is returned on.
cdef uint64_t take_batch(Cursor cursor, Batch batch, bint settled) except 0
