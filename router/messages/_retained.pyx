# cython: auto_pickle=False, nonecheck=True
"""Retained messages, as each publish keeps one: a client may publish very many. `retained` has the rest, and words.

A level of topics has no dict of children while it is the last one of a topic, as most are, and the key of its
row is the same object as the table's.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memchr, memcpy

from penstock.log_core.state._rows cimport TableRows
from penstock.router._row_keys cimport digest_of, row_part

cdef enum:
    VERSION = 1
    HEAD = 36

cdef packed struct Head:            # little-endian, as all of the log's formats
    uint8_t version, enc
    uint16_t flags
    uint8_t priority
    uint8_t[3] reserved
    int64_t stored_ms, expires_ms
    uint32_t vhost, topic, props

cdef str TABLE = "retained"
cdef dict LEAF = {}                 # the children of all levels that have none


cdef class Level:
    def __cinit__(self):
        self.children = LEAF
        self.row = b""

    def remove(self, bytes word not None):
        del self.children[word]
        if not self.children:
            self.children = LEAF


cdef Level below(Level level, bytes word):
    """A new level below, with this word. No method of C: each level would have a pointer to a table of them."""
    cdef Level found = Level.__new__(Level)
    if level.children is LEAF:
        level.children = {}
    level.children[word] = found
    return found


cdef class RetainedLevels:
    def __init__(self, bytes vhost not None, tables not None):
        self._wire = vhost
        self.row_head = row_part(vhost)
        self._tables = tables
        self._root = Level()

    cpdef unsigned long long keep(self, bytes topic, int enc, bytes props, bytes body, int flags, int priority,
                                  int64_t stored_ms, int64_t expires_ms) except? 0:
        cdef Py_ssize_t vhost_size = PyBytes_GET_SIZE(self._wire), topic_size = len(topic), props_size = len(props)
        cdef Py_ssize_t body_size = len(body)
        cdef Head head
        cdef bytes value, row
        cdef char* at
        if not topic_size:
            raise ValueError("a topic has at least one character")
        if not body_size:
            return self.delete(topic)
        head.version = VERSION
        head.enc = <uint8_t>enc
        head.flags = <uint16_t>flags
        head.priority = <uint8_t>priority
        head.reserved[0] = head.reserved[1] = head.reserved[2] = 0
        head.stored_ms = stored_ms
        head.expires_ms = expires_ms
        head.vhost = <uint32_t>vhost_size
        head.topic = <uint32_t>topic_size
        head.props = <uint32_t>props_size
        value = PyBytes_FromStringAndSize(NULL, HEAD + vhost_size + topic_size + props_size + body_size)
        at = PyBytes_AS_STRING(value)
        memcpy(at, &head, HEAD)
        at += HEAD
        memcpy(at, PyBytes_AS_STRING(self._wire), vhost_size)
        at += vhost_size
        memcpy(at, PyBytes_AS_STRING(topic), topic_size)
        at += topic_size
        memcpy(at, PyBytes_AS_STRING(props), props_size)
        memcpy(at + props_size, PyBytes_AS_STRING(body), body_size)
        row = self.put_in(topic, b"")
        if isinstance(self._tables, TableRows):
            return (<TableRows>self._tables).put(TABLE, row, value)
        return self._tables.put(TABLE, row, value)

    cdef bytes put_in(self, bytes topic, bytes row):
        cdef const char* at = PyBytes_AS_STRING(topic)
        cdef const char* end = at + PyBytes_GET_SIZE(topic)
        cdef const char* stop
        cdef Level level = self._root
        cdef bytes word
        while True:
            stop = <const char*>memchr(at, c"/", end - at)
            if stop == NULL:
                stop = end
            word = PyBytes_FromStringAndSize(at, stop - at)
            found = level.children.get(word)
            level = below(level, word) if found is None else <Level>found
            if stop == end:
                break
            at = stop + 1
        level.set = self._begun
        if PyBytes_GET_SIZE(level.row) == 0:
            level.row = row if PyBytes_GET_SIZE(row) else digest_of(self.row_head + row_part(topic))
            self._count += 1
        return level.row

    def _insert(self, bytes topic not None, bytes row not None=b""):
        return self.put_in(topic, row)
