"""Which consumer holds which keys of a key-shared subscription. The words are in _keys.pyx."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._rules cimport KeyHolders

cdef enum:
    SLOTS = 65536

cdef uint32_t slot_of(const uint8_t* key, Py_ssize_t n) noexcept nogil


cdef class KeyShares(KeyHolders):
    cdef uint16_t* owner                # of each slot: a consumer's number; 0: nobody
    cdef uint16_t* point                # of each slot: whose point it is; 0: it is none
    cdef uint32_t points                # that there are
    cdef uint16_t* holder               # who has unsettled messages of it
    cdef uint32_t* held                 # how many
    cdef dict parked                    # slot -> seqs, ascending: taken, and given to nobody yet
    cdef readonly Py_ssize_t parked_count
    cdef readonly Py_ssize_t held_count
    cdef object wake

    cdef void _fill(self, uint32_t point, uint16_t number) noexcept nogil
    cdef Py_ssize_t left_of(self, uint16_t number, list takers, dict left) except -1
    cdef bint is_first(self, uint32_t slot, uint64_t seq) except -1
