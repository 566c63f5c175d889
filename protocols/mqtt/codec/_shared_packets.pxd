"""Runs of packets that sessions share. Words in _runs.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef struct Run:
    void* batch                 # owned reference
    uint64_t feed, first
    uint32_t count, index       # index of the first record in its batch
    int version, qos
    bint retain_as_published
    void* ids                   # owned reference to bytes
    uint8_t* data               # NULL: seen once, not kept
    Py_ssize_t size, largest    # all bytes (-1: not the same for all); the largest packet
    uint64_t payloads           # bytes of these


cdef Run* find_run(int version, int qos, bint retain_as_published, bytes ids) noexcept
cdef void note_run(int version, int qos, bint retain_as_published, bytes ids) noexcept
cdef void keep_run(Run* run, const uint8_t* data) noexcept
