"""Batches taken whole. The words are in _batches.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport Batch
from penstock.log_core.reading._resident cimport Place, Run
from penstock.log_core.segments._segment_file cimport Stretch
from penstock.subscriptions.cursor._cursor cimport Cursor


cdef class BatchConsumer:
    cpdef Py_ssize_t deliver_batch(self, Cursor cursor) except -1


cdef struct Next:               # what a cursor would take next
    PyObject* feed              # borrowed
    uint64_t index, limit       # entries [index, limit) of it at most
    uint64_t first              # position of the first one
    bint timeless               # whatever their time to live
    uint64_t rest               # of a batch of which it is not the first one, and all the others are next; else 0
    int small                   # batches handed on before it that were small (is_worth): kept by who asks


# The next batch, when all of it is the cursor's next `most` or fewer; None: take as always. Nothing changes.
cdef Batch next_batch(Cursor cursor, Py_ssize_t most, Next* next)
# Whether what is next follows, in files, what the place was used for last: it goes out of the page cache with less
# work than out of memory, which it is copied from twice.
cdef bint goes_on(Cursor cursor, Place place)
# The size of the next batch, when it is not in memory, or goes on, and is in the page cache and the like; 0: it is not.
# Nothing changes.
cdef size_t next_run(Cursor cursor, Place place, Py_ssize_t most, Next* next) except? 0
# Behind next_run: read that batch and whole ones that follow, as fit into `capacity` bytes; bytes, or 0.
cdef size_t read_run(Cursor cursor, Place place, Next* next, uint8_t* into, size_t capacity, Run* run) except? 0
# The same, but where they lie; None: they are to be read.
cdef Stretch find_run(Cursor cursor, Place place, Next* next, size_t capacity, Run* run)
# Take that many, from position `first` on: settled at once, or out under the seqs from the one that is returned on.
cdef uint64_t take_whole(Cursor cursor, uint64_t first, uint32_t count, bint settled) except 0
