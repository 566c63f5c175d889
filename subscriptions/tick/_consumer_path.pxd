"""A consumer that a fast path serves. The words are in _consumer_path.pyx."""

from penstock.subscriptions.cursor._cursor cimport Cursor


cdef class DirectConsumer:
    cdef public object queue
    cdef public object way              # makes its fast path from (consumer, queue); None: it has none
    cdef public bint attached

    cpdef Py_ssize_t credit(self) except -1
    cpdef Py_ssize_t deliver(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step) except -1
    cdef int send_out(self) except -1   # have what was encoded sent, as far as it has a connection of its own
