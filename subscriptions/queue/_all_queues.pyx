# cython: auto_pickle=False
"""Questions to the cursors of very many queues, some 100 ns each. The words are in _all_queues.pyi.

A queue that moved does not say so: a publish would have to tell each queue that it reaches.
"""

from libc.stdint cimport UINT64_MAX, uint64_t

from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.tick._fast_path cimport Served


def moved(list queues not None, Py_ssize_t start, Py_ssize_t end):
    cdef list new = [], known = []
    cdef Py_ssize_t i
    cdef Served queue
    cdef Cursor cursor
    cdef bint is_known
    for i in range(start, min(end, len(queues))):
        queue = queues[i]
        cursor = queue.cursor
        is_known = cursor.is_counted()
        if cursor.has_moved(queue.delivered + queue.unasked):
            (known if is_known else new).append(queue)
    return new, known


def lowest(list queues not None, Py_ssize_t start, Py_ssize_t end):
    cdef uint64_t low = UINT64_MAX
    cdef Py_ssize_t i
    cdef Cursor cursor
    for i in range(start, min(end, len(queues))):
        cursor = queues[i].cursor
        low = min(low, cursor.low())
    return low
