# A cursor's state record. The words are in _state.pyx.

from libc.stdint cimport uint64_t

from penstock.subscriptions.cursor._memberships cimport Members
from penstock.subscriptions.cursor._ranges cimport Runs
from penstock.subscriptions.cursor._window cimport Window

cdef bytes encode_state(Window* window, Members* members, Runs* runs, uint64_t frontier, uint64_t unclean_until,
                        Py_ssize_t runs_max, bint final, dict notes)
cdef void decode_runs(StateReader reader, uint64_t mark, Runs** runs) except *
cdef dict decode_notes(StateReader reader, uint64_t mark)


cdef class StateReader:
    cdef bytes data
    cdef Py_ssize_t at

    cdef uint64_t get(self) except? 0xFFFFFFFFFFFFFFFE
