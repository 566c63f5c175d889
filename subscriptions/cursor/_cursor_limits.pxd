# A cursor's bounds. The words are in _cursor.pyi.

from libc.stdint cimport uint64_t

from penstock.subscriptions.cursor._cursor_state cimport CursorState


cdef class CursorLimits(CursorState):
    cpdef int expect(self, uint64_t size) except -1
    cdef bint has_room(self, uint64_t size) except -1

    cdef void _size_all(self) noexcept
    cdef bint _is_excess(self, uint64_t size)
    cdef Py_ssize_t _part(self, uint64_t before, Py_ssize_t most) noexcept
    cdef int _skip(self, uint64_t pos) except -1
