"""A consumer that a fast path serves. The words are in _consumer_path.pyx."""

from penstock.subscriptions.cursor._cursor cimport Cursor


cdef class DirectConsumer:
    cdef public object queue
    cdef public object way              # makes its fast path from (consumer, queue); None: it has none
    cdef public bint attached

    # `credit` and `deliver` in C. A cpdef method would look for an override in Python at each call.
    cdef Py_ssize_t room(self) except -1
    cdef Py_ssize_t put(self, Cursor cursor, Py_ssize_t first, Py_ssize_t step) except -1
    cdef int send_out(self) except -1   # have what was encoded sent, as far as it has a connection of its own
