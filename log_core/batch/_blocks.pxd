cimport cython
from libc.stdint cimport uint8_t, uint64_t

from penstock.log_core.batch._batch cimport BatchHeader, Found

cdef enum:
    BLOCK_BYTES = 262144              # a block is made of about so many bytes of batches


@cython.final
cdef class Walker:                    # goes over batches back to back, those inside blocks included
    cdef const uint8_t* data
    cdef size_t size
    cdef size_t at                    # behind the batch or block that was entered last
    cdef size_t place                 # where that begins
    cdef const BatchHeader* block     # the block it is in, or NULL
    cdef Found found                  # `reason`: why `next` found none; NULL: at the end
    cdef bytes raw                    # what the block holds
    cdef const uint8_t* raw_data
    cdef size_t raw_at
    cdef void start(self, const uint8_t* data, size_t size, size_t at) noexcept nogil
    cdef const BatchHeader* next(self) noexcept nogil
    cdef const BatchHeader* next_inside(self) noexcept nogil
    cdef bint inside(self) noexcept nogil
    cdef int enter(self, const BatchHeader* block) noexcept


# Appends the batches in a valid block that reach `from_lsn`. ValueError: it does not decode to what it says.
cdef int take_contents(const BatchHeader* block, list batches, uint64_t from_lsn) except -1
