# cython: auto_pickle=False
"""The batches in memory: the newest ones exactly as written, and those read back from disk.

The tail is a ring of the latest batches, bounded in bytes; consumers that keep up live on it. Results
of cold reads lie beside it as runs of about 1 MiB, least recently used out first, so that old reads
never push out the tail. A batch that somebody still holds stays alive after it left the cache.

Knows nothing of files: a position that is not found here is read by Log.load.
"""

cimport cython
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from penstock.log_core.batch._batch cimport KIND_DELAYED, KIND_RECORDS, Batch

BATCH_OVERHEAD = OVERHEAD

cdef enum:
    OVERHEAD = 160                   # of a batch in memory: its object, its place in the list, its base LSN


@cython.final
cdef class Run:
    def __cinit__(self):
        self.batches = []
        self.memo = -1

    def __dealloc__(self):
        free(self.bases)

    cdef int add(self, Batch batch) except -1:
        cdef Py_ssize_t n = PyList_GET_SIZE(self.batches)
        cdef Py_ssize_t capacity
        cdef uint64_t* bases
        if n and self.bases[n - 1] >= batch.base_lsn:
            raise ValueError(f"{batch!r} does not follow LSN {self.bases[n - 1]}")
        if n == self.capacity:
            capacity = 16 if n == 0 else 2 * n
            bases = <uint64_t*>realloc(self.bases, capacity * sizeof(uint64_t))
            if bases == NULL:
                raise MemoryError()
            self.bases = bases
            self.capacity = capacity
        self.bases[n] = batch.base_lsn
        self.batches.append(batch)
        self.nbytes += batch.nbytes + OVERHEAD
        return 0

    cdef Batch find(self, uint64_t lsn):
        cdef Py_ssize_t low = self.first, high = PyList_GET_SIZE(self.batches), middle, memo = self.memo
        cdef Batch batch
        if low >= high or lsn < self.bases[low]:
            return None
        # Readers go forward: the batch of the last find, or the one after it, is nearly always right.
        if memo >= low and self.bases[memo] <= lsn and (memo + 1 == high or lsn < self.bases[memo + 1]):
            low = memo
        elif memo >= low and memo + 1 < high and self.bases[memo + 1] <= lsn and (
                memo + 2 == high or lsn < self.bases[memo + 2]):
            low = memo + 1
        else:
            high -= 1
            while low < high:                # the last batch with base <= lsn
                middle = (low + high + 1) // 2
                if self.bases[middle] <= lsn:
                    low = middle
                else:
                    high = middle - 1
        self.memo = low
        batch = <Batch>PyList_GET_ITEM(self.batches, low)
        if lsn - batch.base_lsn >= batch.count:
            return None
        return batch

    cdef size_t drop_first(self):
        # The bytes of the batch that went. The lists move down when half of them is free.
        cdef Py_ssize_t first = self.first, n
        cdef size_t nbytes = (<Batch>PyList_GET_ITEM(self.batches, first)).nbytes + OVERHEAD
        self.batches[first] = None
        self.first = first + 1
        self.nbytes -= nbytes
        n = PyList_GET_SIZE(self.batches)
        if self.first >= 1024 and self.first * 2 >= n:
            del self.batches[:self.first]
            memmove(self.bases, self.bases + self.first, (n - self.first) * sizeof(uint64_t))
            self.memo -= self.first
            self.first = 0
        return nbytes


@cython.final
cdef class Cache:
    def __cinit__(self, size_t tail_limit, size_t read_limit):
        self.tail_limit = tail_limit
        self.read_limit = read_limit
        self.tail = Run()
        self.unseen = Run()
        self.runs = []

    cdef Batch find(self, uint64_t lsn):
        cdef Batch batch = self.tail.find(lsn)
        cdef Py_ssize_t k, n
        cdef Run run
        if batch is not None:
            self.tail_hits += 1
        else:
            n = PyList_GET_SIZE(self.runs)
            for k in range(n - 1, -1, -1):
                run = <Run>PyList_GET_ITEM(self.runs, k)
                batch = run.find(lsn)
                if batch is not None:
                    if k != n - 1:
                        del self.runs[k]
                        self.runs.append(run)
                    self.read_hits += 1
                    break
            else:
                self.misses += 1
        return batch

    cpdef add(self, Batch batch):
        self.tail.add(batch)
        while self.tail.nbytes > self.tail_limit and PyList_GET_SIZE(self.tail.batches) - self.tail.first > 1:
            self.tail.drop_first()

    cpdef add_written(self, list batches):
        cdef Batch batch
        for batch in batches:
            if batch.kind == KIND_RECORDS or batch.kind == KIND_DELAYED:
                self.add(batch)

    cpdef add_unseen(self, list batches):
        cdef Batch batch
        for batch in batches:
            if batch.kind == KIND_RECORDS or batch.kind == KIND_DELAYED:
                self.unseen.add(batch)

    cpdef show(self, uint64_t lsn):
        cdef Run unseen = self.unseen
        cdef Batch batch
        while PyList_GET_SIZE(unseen.batches) > unseen.first:
            batch = <Batch>PyList_GET_ITEM(unseen.batches, unseen.first)
            if batch.base_lsn + batch.count - 1 > lsn:
                break
            self.add(batch)
            unseen.drop_first()

    cpdef add_run(self, list batches):
        cdef Run run = Run()
        cdef Batch batch
        for batch in batches:
            run.add(batch)
        self.runs.append(run)
        self.read_bytes += run.nbytes
        while self.read_bytes > self.read_limit and PyList_GET_SIZE(self.runs) > 1:
            self.read_bytes -= (<Run>self.runs[0]).nbytes
            del self.runs[0]

    # For Python off the hot path and tests.

    def get(self, uint64_t lsn):
        cdef Batch batch = self.unseen.find(lsn)
        return self.find(lsn) if batch is None else batch

    @property
    def tail_bytes(self):
        return self.tail.nbytes

    @property
    def tail_start(self):
        return self.tail.bases[self.tail.first] if PyList_GET_SIZE(self.tail.batches) > self.tail.first else 0
