"""Batches to and from files. Words in _io.pyi."""

from libc.stdint cimport uint8_t, uint64_t

cdef uint64_t write_gathered(int fd, list batches, uint64_t offset, uint64_t skip) except? 0
# The bytes read, fewer than `size` only at the end of the file; -1 and errno.
cdef ssize_t pread_all(int fd, uint8_t* buffer, size_t size, uint64_t offset) noexcept nogil
