"""Batches to and from files. Words in _io.pyi."""

from libc.stdint cimport uint64_t

cdef uint64_t write_gathered(int fd, list batches, uint64_t offset, uint64_t skip) except? 0
