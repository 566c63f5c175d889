# cython: auto_pickle=False
"""A feed: the growing list of the positions of the records that matched one binding pattern.

Owns the entries in memory, cut into chunks at the borders of the WAL's segments. An entry is the
record's number in its segment (LSN - base LSN of the segment) as a u32 whose high bit marks an entry
that a restart forgets: that of a record that is not PERSISTENT, unless the feed `keeps` all it gets:

    chunk of the segment at `base`:   | entry u32 | entry u32 | ...      position = base + (entry & 0x7fffffff)

The entries of closed segments are also in that segment's .fdx file (index_files.py), so their chunks can
leave memory (`spill`) and come back (`restore_chunk`). Indexes count the entries ever pushed: they stay
valid while chunks are dropped at the front. After a restart they are counted anew; positions are what is
kept on disk.

Knows nothing of files, queues or patterns.
"""

cimport cython
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove


cdef inline void put(Feed feed, Chunk* chunk, uint32_t entry, size_t size) noexcept:
    """Put an entry behind the others of the last chunk, which has room for it."""
    chunk.entries[chunk.count] = entry
    chunk.count += 1
    chunk.nbytes += size
    chunk.last_record = entry & ENTRY_RECORD
    feed.end += 1
    if not entry & ENTRY_TRANSIENT:
        feed.persistent_end = feed.end


cdef inline bint is_dense(const Chunk* chunk) noexcept:
    """Whether it has every record of a range: which those are is known without its entries."""
    return chunk.last_record - chunk.first_record + 1 == chunk.count


@cython.final
cdef class Feed:
    def __cinit__(self, uint32_t id, object store=None, bint keeps=False):
        self.id = id
        self.mask = ENTRY_RECORD if keeps else ENTRY_RECORD | ENTRY_TRANSIENT
        self.store = store
        self.waiters = {}
        self.chunks = NULL
        self.last = NULL

    def __dealloc__(self):
        cdef uint32_t k
        for k in range(self.chunk_count):
            free(self.chunks[k].entries)
        free(self.chunks)

    cdef int push(self, uint64_t base, uint32_t entry, size_t size) except -1:
        cdef Chunk* chunk = self.last
        entry &= self.mask
        if chunk != NULL and chunk.base == base and chunk.count < chunk.capacity:
            put(self, chunk, entry, size)
            return 0
        return self.push_slowly(base, entry, size)

    cdef int push_slowly(self, uint64_t base, uint32_t entry, size_t size) except -1:
        cdef Chunk* chunk = self.last
        cdef uint32_t capacity
        cdef uint32_t* entries
        cdef int made = 0
        if chunk == NULL or chunk.base != base:
            self.add_stored(base, 0, entry & ENTRY_RECORD, entry & ENTRY_RECORD)
            chunk = self.last
            made = 1
        if chunk.count == chunk.capacity:
            if chunk.count != 0 and chunk.entries == NULL:
                raise AssertionError(f"feed {self.id}: a push onto a chunk that is not in memory")
            capacity = 4 if chunk.capacity == 0 else chunk.capacity * 2
            entries = <uint32_t*>realloc(chunk.entries, <size_t>capacity * sizeof(uint32_t))
            if entries == NULL:
                raise MemoryError()
            chunk.entries = entries
            chunk.capacity = capacity
        put(self, chunk, entry, size)
        return made

    cdef int add_stored(self, uint64_t base, uint32_t count, uint32_t first_record, uint32_t last_record) except -1:
        cdef uint32_t capacity
        cdef Chunk* chunks
        if self.last != NULL and self.last.base >= base:
            raise AssertionError(f"feed {self.id}: chunks out of order")
        if self.chunk_count == self.chunk_capacity:
            capacity = 1 if self.chunk_capacity == 0 else self.chunk_capacity * 2
            chunks = <Chunk*>realloc(self.chunks, capacity * sizeof(Chunk))
            if chunks == NULL:
                raise MemoryError()
            self.chunks = chunks
            self.chunk_capacity = capacity
        self.last = &self.chunks[self.chunk_count]
        self.chunk_count += 1
        self.last.base = base
        self.last.first = self.end
        self.last.entries = NULL
        self.last.nbytes = 0
        self.last.count = count
        self.last.capacity = 0
        self.last.first_record = first_record
        self.last.last_record = last_record
        self.end += count
        if count:
            self.persistent_end = self.end      # only persistent records come back after a restart
        return 0

    cdef Chunk* chunk_of(self, uint64_t index) noexcept:
        cdef uint32_t low, high, middle
        if index < self.start or index >= self.end:
            return NULL
        if index >= self.last.first:
            return self.last
        low = 0
        high = self.chunk_count - 1
        while low < high:                    # the last chunk with first <= index
            middle = (low + high + 1) // 2
            if self.chunks[middle].first <= index:
                low = middle
            else:
                high = middle - 1
        return &self.chunks[low]

    cdef uint64_t position(self, uint64_t index) noexcept:
        cdef Chunk* chunk = self.chunk_of(index)
        if chunk == NULL or chunk.entries == NULL:
            return 0
        return chunk.base + (chunk.entries[index - chunk.first] & ENTRY_RECORD)

    cdef uint64_t position_known(self, uint64_t index) noexcept:
        cdef Chunk* chunk = self.chunk_of(index)
        if chunk != NULL and is_dense(chunk):
            return chunk.base + chunk.first_record + (index - chunk.first)
        return self.position(index)

    cdef bint is_transient(self, uint64_t index) noexcept:
        cdef Chunk* chunk = self.chunk_of(index)
        if chunk == NULL or chunk.entries == NULL:
            return False
        return chunk.entries[index - chunk.first] & ENTRY_TRANSIENT != 0

    cdef Py_ssize_t copy(self, uint64_t index, Py_ssize_t n, uint64_t* out) noexcept:
        cdef Py_ssize_t done = 0
        cdef Chunk* chunk
        cdef uint64_t at, stop, base
        while done < n:
            chunk = self.chunk_of(index)
            if chunk == NULL or chunk.entries == NULL:
                break
            at = index - chunk.first
            stop = chunk.count
            if stop - at > <uint64_t>(n - done):
                stop = at + <uint64_t>(n - done)
            base = chunk.base
            index += stop - at
            while at < stop:
                out[done] = base + (chunk.entries[at] & ENTRY_RECORD)
                done += 1
                at += 1
        return done

    cdef Chunk* chunk_from(self, uint64_t position) noexcept:
        cdef uint32_t low = 0, high = self.chunk_count, middle
        while low < high:
            middle = (low + high) // 2
            if self.chunks[middle].base + self.chunks[middle].last_record < position:
                low = middle + 1
            else:
                high = middle
        return NULL if low == self.chunk_count else &self.chunks[low]

    cpdef uint64_t index_of(self, uint64_t position) except? 0xffffffffffffffff:
        cdef uint32_t low, high, middle, record
        cdef Chunk* chunk = self.chunk_from(position)
        if chunk == NULL:
            return self.end
        if position <= chunk.base + chunk.first_record:
            return chunk.first
        if is_dense(chunk):
            return chunk.first + (position - chunk.base - chunk.first_record)
        if chunk.entries == NULL:
            self.restore_chunk(chunk.base, self.store.load_chunk(self, chunk.base))
        record = <uint32_t>(position - chunk.base)
        middle = 0
        high = chunk.count
        low = 0
        while low < high:                    # the first entry with record number >= record
            middle = (low + high) // 2
            if (chunk.entries[middle] & ENTRY_RECORD) < record:
                low = middle + 1
            else:
                high = middle
        return chunk.first + low

    cpdef size_t drop_before(self, uint64_t base):
        cdef uint32_t n = 0
        cdef size_t freed = 0
        while n < self.chunk_count and self.chunks[n].base < base:
            if self.chunks[n].entries != NULL:
                freed += <size_t>self.chunks[n].capacity * sizeof(uint32_t)
                free(self.chunks[n].entries)
            n += 1
        if n:
            self.chunk_count -= n
            memmove(self.chunks, self.chunks + n, self.chunk_count * sizeof(Chunk))
            if self.chunk_count:
                self.last = &self.chunks[self.chunk_count - 1]
                self.start = self.chunks[0].first
            else:
                self.last = NULL
                self.start = self.end
        return freed

    cdef Chunk* chunk_at(self, uint64_t base) noexcept:
        cdef uint32_t low = 0, high = self.chunk_count, middle
        while low < high:
            middle = (low + high) // 2
            if self.chunks[middle].base < base:
                low = middle + 1
            else:
                high = middle
        if low < self.chunk_count and self.chunks[low].base == base:
            return &self.chunks[low]
        return NULL

    cpdef size_t spill(self, uint64_t base):
        cdef Chunk* chunk = self.chunk_at(base)
        cdef size_t freed
        if chunk == NULL or chunk.entries == NULL:
            return 0
        freed = <size_t>chunk.capacity * sizeof(uint32_t)
        free(chunk.entries)
        chunk.entries = NULL
        chunk.capacity = 0
        return freed

    cpdef size_t restore_chunk(self, uint64_t base, const uint8_t[::1] entries):
        cdef Chunk* chunk = self.chunk_at(base)
        cdef size_t size
        if chunk == NULL or chunk.entries != NULL:
            return 0                         # dropped or restored in the meantime
        size = <size_t>chunk.count * sizeof(uint32_t)
        if <size_t>entries.shape[0] != size:
            raise ValueError(f"feed {self.id}: {entries.shape[0]} bytes for {chunk.count} entries")
        chunk.entries = <uint32_t*>malloc(size)
        if chunk.entries == NULL:
            raise MemoryError()
        memcpy(chunk.entries, &entries[0], size)
        chunk.capacity = chunk.count
        return size

    # The part that Python (tests, queues off the hot path, the writer of index files) sees.

    @property
    def keeps(self):
        return self.mask == ENTRY_RECORD

    def append(self, uint64_t base, uint32_t entry, size_t size=0):
        return bool(self.push(base, entry, size))

    def append_stored(self, uint64_t base, uint32_t count, uint32_t first_record, uint32_t last_record):
        self.add_stored(base, count, first_record, last_record)

    def positions(self, uint64_t index, Py_ssize_t n):
        cdef list found = []
        cdef uint64_t position
        while n > 0:
            position = self.position(index)
            if position == 0:
                break
            found.append(position)
            index += 1
            n -= 1
        return found

    def missing(self, uint64_t position):
        cdef Chunk* chunk = self.chunk_from(position)
        if chunk == NULL or position <= chunk.base + chunk.first_record or is_dense(chunk) or chunk.entries != NULL:
            return None
        return chunk.first

    def is_resident(self, uint64_t index):
        cdef Chunk* chunk = self.chunk_of(index)
        return chunk != NULL and chunk.entries != NULL

    def base_of(self, uint64_t index):
        cdef Chunk* chunk = self.chunk_of(index)
        return 0 if chunk == NULL else chunk.base

    @property
    def last_position(self):
        return 0 if self.last == NULL else self.last.base + self.last.last_record

    def count_at(self, uint64_t base):
        cdef Chunk* chunk = self.chunk_at(base)
        return 0 if chunk == NULL else chunk.count

    def entries_at(self, uint64_t base):
        cdef Chunk* chunk = self.chunk_at(base)
        if chunk == NULL or chunk.entries == NULL:
            return None
        return (<const uint8_t*>chunk.entries)[:<size_t>chunk.count * sizeof(uint32_t)]

    def __bool__(self):
        return True                          # an empty feed is a feed

    def __len__(self):
        return self.end - self.start

    def __repr__(self):
        return f"<Feed {self.id} [{self.start}, {self.end})>"


def drop_all_before(list feeds not None, uint64_t base):
    cdef Feed feed
    cdef size_t freed = 0
    for feed in feeds:
        freed += feed.drop_before(base)
    return freed
