# `Cursor` for other kernels. The words are in _cursor.pyi; the result of a take is in _take_result.pxd.

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.log_core.feeds._feed cimport Feed
from penstock.subscriptions.cursor._cursor_limits cimport CursorLimits
from penstock.subscriptions.cursor._memberships cimport Member
from penstock.subscriptions.cursor._window cimport Entry


@cython.final
cdef class Cursor(CursorLimits):
    cpdef Py_ssize_t take(self, Py_ssize_t n) except -1
    cpdef void settle(self, uint64_t seq) noexcept
    cpdef void settle_run(self, uint64_t seq, uint64_t count) noexcept
    cpdef void settle_taken(self, Py_ssize_t first=*, Py_ssize_t step=*) noexcept
    cpdef int reject(self, uint64_t seq) except -1
    cpdef bint requeue(self, uint64_t seq) except -1
    cpdef bint release(self, uint64_t seq) except -1
    cpdef bint unsend(self, uint64_t seq) except -1
    cpdef void unhold(self, uint64_t seq) noexcept
    cpdef Py_ssize_t requeue_all(self) except -1
    cpdef Py_ssize_t put_back(self, Py_ssize_t first, Py_ssize_t step=*, Py_ssize_t took=*) except -1
    cpdef tuple match_tags(self, uint32_t match)

    cdef int _take_ready(self, Py_ssize_t n, int64_t* now) except -1
    cdef int _gather(self, int64_t* now) except -1
    cdef int _take_one(self, Member* member, Py_ssize_t n, int64_t* now) except -1
    cdef int _pass_transient(self, Feed feed, Member* member, uint64_t end) except -1
    cdef int _take_merged(self, Py_ssize_t n, int64_t* now) except -1
    cdef uint32_t _match_of(self, Py_ssize_t heads) except? 0xFFFFFFFF
    cdef int _admit(self, uint64_t pos, uint32_t match, bint unwanted, int64_t* now) except -1
    cdef void _loose(self, Entry* entry) noexcept
    cdef void _give(self, uint64_t seq, Entry* entry) noexcept
    cdef void _missing(self, uint64_t pos)
    cdef int _stale(self, uint64_t pos, uint32_t count, int64_t* now) except -1
    cdef int _report(self) except -1
    cdef int _drop(self, uint64_t seq, str why) except -1
    cdef void _settle(self, uint64_t seq, Entry* entry) noexcept
    cdef void _wake_queue(self) noexcept
    cdef int _again(self, uint64_t seq, Entry* entry) except -1
    cdef int _ready(self, uint64_t seq, Entry* entry) except -1
    cdef void _unready(self) noexcept
