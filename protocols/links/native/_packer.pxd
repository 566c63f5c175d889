"""See _packer.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from penstock.protocols.native.codec._records cimport Chunk


cdef class Packer:
    cdef uint32_t _handle           # of the producer
    cdef Py_ssize_t _frame_max
    cdef uint64_t _known            # positions up to it are at the target
    cdef uint64_t _last             # position that came
    cdef uint64_t _used             # messages and bytes of credit
    cdef uint64_t _used_bytes
    cdef readonly Py_ssize_t left_out
    cdef readonly list frames
    cdef readonly list batches
    cdef readonly list others
    cdef readonly uint64_t tag
    cdef int _pack(self, Chunk chunk) except -1
    cdef bytes _frame(self, Chunk chunk, Py_ssize_t count, Py_ssize_t size)
