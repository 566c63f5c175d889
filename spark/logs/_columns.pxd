"""For `_events`, which fills columns of another table out of the same batches. The words are in _columns.pyi."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport BatchHeader, RecordHeader
from penstock.log_core.batch._blocks cimport Walker
from penstock.spark.logs._properties cimport ALL_COLUMNS


cdef struct Bytes:
    uint8_t* data
    size_t size
    size_t room
    size_t last                      # the room it had before it was released


cdef struct Spare:
    uint8_t* data
    size_t room


cdef struct Column:
    bint wanted
    uint32_t nulls
    Bytes valid, values, ends        # ends: int32 offsets of text, a 0 first


cdef struct Key:
    uint64_t hash
    uint8_t* block                   # the encoding, then the key block
    uint32_t size
    bint wanted


cdef class Rows:
    cdef tuple names                 # of the table's columns
    cdef Column[ALL_COLUMNS] columns
    cdef readonly uint32_t count
    cdef readonly uint64_t nbytes    # of payloads and properties, about
    cdef public uint64_t next_lsn    # behind the last batch that was taken
    cdef readonly list gaps          # [from, to): LSNs that were expected and not there
    cdef uint32_t header_count
    cdef int64_t payload_max         # -1: no limit
    cdef uint32_t encodings          # bits of the wanted ones; 0: all
    cdef object decide               # or None: every key is wanted
    cdef dict vhosts                 # by log partition; b"" or absent: unknown
    cdef object wanted_vhosts        # a set of bytes, or None
    cdef Key* keys
    cdef size_t mask, known
    cdef bint wants_properties
    cdef const uint32_t* lists       # the feed lists of the batch being taken
    cdef Walker walker               # for the batches in blocks

    cdef void forget(self) noexcept
    cdef Key* find(self, uint8_t enc, const uint8_t* block, uint32_t size, uint64_t hashed) noexcept nogil
    cdef int grow_keys(self) except -1
    cdef bint is_wanted(self, uint8_t enc, const uint8_t* block, uint32_t size) except -1
    cdef int enter_block(self, const BatchHeader* block, uint64_t first, uint64_t last) except -2
    cdef int enter(self, const BatchHeader* header, uint64_t first, uint64_t last) except -1
    cdef int take_batch(self, const BatchHeader* header, uint64_t first, uint64_t last) except -1
    cdef int take_record(self, const BatchHeader* header, const RecordHeader* record, uint64_t lsn,
                         const uint8_t* p, const uint8_t* vhost, size_t vhost_size) except -1
    cdef int put_header(self, const uint8_t* name, size_t name_size, const char* type_, size_t type_size,
                        const uint8_t* value, size_t size) except -1
    cdef int take_table(self, const uint8_t* p, size_t n) except -1
    cdef int take_pairs(self, const uint8_t* p, size_t n) except -1
    cdef tuple release_column(self, int k)


cdef int put_bit(Bytes* bits, uint32_t row, bint value) except -1
cdef int put_valid(Column* column, uint32_t row, bint valid) except -1
cdef int put_long(Column* column, int64_t value) except -1
cdef int put_int(Column* column, int32_t value) except -1
cdef int put_bytes(Column* column, const uint8_t* p, size_t n) except -1
cdef int put_text(Column* column, const uint8_t* p, size_t n) except -1
