"""Rows of tables. Words in _rows.pyi."""

from libc.stdint cimport uint64_t


cdef class RowLog:
    cdef uint64_t append_row(self, bytes key, bytes value, bint tombstone) except 0


cdef class Table:
    cdef bytes head                     # in front of each key in a record
    cdef readonly dict rows
    cdef public long long weight

    cdef long long let_go(self, place, TableRows owner) except -1


cdef class TableRows:
    cdef readonly RowLog _appender
    cdef readonly dict _tables
    cdef public object _spill
    cdef bint spills
    cdef public long long _spill_from

    cdef Table named(self, str name)
    cpdef unsigned long long put(self, str table, bytes key, bytes value) except? 0
    cdef int set(self, Table table, bytes key, bytes value) except -1
    cpdef unsigned long long delete(self, str table, bytes key) except? 0xFFFFFFFFFFFFFFFF
    cpdef bytes get(self, str table, bytes key)
