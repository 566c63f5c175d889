"""Digests of names. Words in _row_keys.pyi."""

from libc.stdint cimport uint8_t

cdef int digest_into(const uint8_t* data, Py_ssize_t size, uint8_t* digest, Py_ssize_t digest_size) except -1
cpdef bytes digest_of(bytes parts)
cpdef bytes row_part(bytes name)
