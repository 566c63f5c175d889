# cython: auto_pickle=False, nonecheck=True
"""The rows of tables: each durable change goes through here once, and a start repeats them all.

So it is compiled: a client may publish very many retained messages, and a log may hold very many queues.
`Tables` has the rest: snapshots, the scratch file of large tables, views of all rows.
"""

from sys import intern

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

cdef enum:
    SPILL_LEAST = 48                # a value of so many bytes costs no more than its locator


cdef class RowLog:
    cdef uint64_t append_row(self, bytes key, bytes value, bint tombstone) except 0:
        raise NotImplementedError


cdef class Table:
    def __init__(self, str name not None):
        cdef bytes encoded = name.encode()
        self.head = bytes((len(encoded),)) + encoded
        self.rows = {}

    cdef long long let_go(self, place, TableRows owner) except -1:
        """A value is replaced or deleted: the bytes of memory it had."""
        if isinstance(place, int):
            owner._spill.drop(place)
            return 0
        return PyBytes_GET_SIZE(<bytes>place)


cpdef tuple split_key(bytes block):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(block), name
    cdef const char* start = PyBytes_AS_STRING(block)
    if size == 0 or size < 1 + <unsigned char>start[0]:
        raise ValueError("a state key shorter than its table name")
    name = <unsigned char>start[0]
    # There are few tables: each row has the same object for the name of its own.
    return intern(start[1:1 + name].decode("utf-8")), PyBytes_FromStringAndSize(start + 1 + name, size - 1 - name)


cdef class TableRows:
    def __init__(self, RowLog appender not None, *, bint spills, long long spill_from):
        self._appender = appender
        self._tables = {}
        self._spill = None
        self.spills = spills
        self._spill_from = spill_from

    cdef Table named(self, str name):
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = Table(name)
        return <Table>found

    cpdef unsigned long long put(self, str table, bytes key, bytes value) except? 0:
        cdef Table rows = self.named(table)
        cdef unsigned long long lsn = self._appender.append_row(rows.head + key, value, False)
        # A copy of its own size: what some encoders (orjson) return keeps a buffer of 4 KiB behind it.
        self.set(rows, key, PyBytes_FromStringAndSize(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)))
        return lsn

    cdef int set(self, Table table, bytes key, bytes value) except -1:
        cdef dict rows = table.rows
        before = rows.get(key)
        if before is not None:
            table.weight -= table.let_go(before, self)
        place = value
        if table.weight > self._spill_from and PyBytes_GET_SIZE(value) > SPILL_LEAST and self.spills:
            place = self._spilled(value)
        rows[key] = place
        if not isinstance(place, int):
            table.weight += PyBytes_GET_SIZE(value)
        return 0

    cpdef unsigned long long delete(self, str table, bytes key) except? 0xFFFFFFFFFFFFFFFF:
        cdef unsigned long long lsn
        found = self._tables.get(table)
        if found is None or key not in (<Table>found).rows:
            return 0
        lsn = self._appender.append_row((<Table>found).head + key, b"", True)
        (<Table>found).weight -= (<Table>found).let_go((<Table>found).rows.pop(key), self)
        return lsn

    cpdef bytes get(self, str table, bytes key):
        found = self._tables.get(table)
        place = None if found is None else (<Table>found).rows.get(key)
        if isinstance(place, int):
            return self._spill.get(place)
        return place

    def apply(self, bytes block not None, bytes value):
        cdef tuple names = split_key(block)
        cdef Table table
        if value is not None:
            self.set(self.named(names[0]), names[1], value)
            return names
        found = self._tables.get(names[0])
        if found is not None:
            table = <Table>found
            place = table.rows.pop(names[1], None)
            if place is not None:
                table.weight -= table.let_go(place, self)
        return names
