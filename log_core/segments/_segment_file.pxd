"""Segments' files that are open. The words are in _segment_file.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef enum:
    STRETCH_MOST = 2097152                  # bytes that are sent at once


cdef class SegmentFile:
    cdef readonly int fd                    # -1: closed
    cdef readonly uint64_t number, base_lsn, next_lsn, end
    cdef readonly uint32_t epoch
    cdef object marks, submit
    cdef uint8_t* pages                     # a mapping that is never touched, NULL: there is none yet
    cdef bint used                          # since the last `Resident.forget`
    cdef bint followed                      # the next segment was asked for
    cdef public bint whole                  # no damage is known of
    cdef bint ended                         # to be closed with the last stretch of it
    cdef uint32_t stretches

    cdef bint is_open(self) noexcept
    # Bytes of the file that the page cache has from there on, into p; 0 for every trouble, which is `Reader`'s.
    cdef Py_ssize_t read(self, uint8_t* p, size_t size, uint64_t offset) noexcept
    # Whether the page cache has all of the bytes [offset, offset + size), size > 0.
    cdef bint has_pages(self, uint64_t offset, size_t size) noexcept
    cdef bint maps_pages(self, uint64_t offset, size_t size) noexcept


cdef class Stretch:                         # bytes of a segment that go out as they are
    cdef SegmentFile file
    cdef readonly uint64_t offset
    cdef readonly size_t size               # of what is left
    cdef readonly Py_ssize_t at             # before this byte of the output that it belongs to
    cdef public bint loads                  # a thread reads it: it is not to be sent before
    cdef bint there                         # the page cache has just been asked for it, and has it

    # Have a socket take some of it: bytes; 0: the file has become shorter; -1 and errno. EAGAIN with `cold` set: the
    # page cache does not have it any more.
    cdef ssize_t send(self, int socket, bint* cold) noexcept


cdef Stretch stretch_of(SegmentFile file, uint64_t offset, size_t size, bint there)
