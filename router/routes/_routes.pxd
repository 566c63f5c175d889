from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.log_core.batch._appender cimport Target


cdef class Route:
    cdef object __weakref__
    cdef readonly Target target
    cdef readonly tuple scopes
    cdef readonly object error
    cdef readonly uint32_t lp
    cdef readonly bint routed
    cdef readonly bint durable
    cdef readonly bint per_message
    cdef readonly bint special
    cdef readonly tuple guards
    cdef readonly tuple recents
    cdef bint must_look(self, uint64_t size) except -1


cdef class Topology:
    cdef readonly uint64_t changes
    cdef readonly uint64_t epoch


cdef class Scope:
    cdef readonly Topology topology
    cdef uint64_t wide
    cdef uint32_t* cells
    cdef uint64_t mask
    cdef uint64_t version(self, const uint8_t* key, Py_ssize_t n) noexcept


cdef struct Entry:
    uint64_t hash
    uint8_t* key
    uint32_t size
    uint32_t used
    void* route
    uint64_t checked
    uint64_t version


cdef class RouteTable:
    cdef readonly Topology topology
    cdef object resolver
    cdef object matcher             # None, or it gives `match` anew after changes
    cdef object match               # what the route of a key depends on; None: on more
    cdef dict outcomes              # routes by what was matched
    cdef uint64_t outcomes_of       # `topology.changes` when they were found
    cdef readonly int enc
    cdef readonly Py_ssize_t limit
    cdef readonly Py_ssize_t bytes_limit
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t key_bytes
    cdef readonly uint64_t misses
    cdef Entry* entries
    cdef uint64_t mask
    cdef uint64_t epoch
    cdef const uint8_t* memo_key
    cdef Py_ssize_t memo_size
    cdef uint64_t memo_changes
    cdef void* memo_route
    cdef Route lookup(self, const uint8_t* key, Py_ssize_t n)
    cdef Route find(self, const uint8_t* key, Py_ssize_t n)
    cdef Route resolve(self, bytes key)
    cdef Entry* slot(self, uint64_t hash, const uint8_t* key, Py_ssize_t n) noexcept
    cdef uint64_t version_of(self, Route route, const uint8_t* key, Py_ssize_t n) noexcept
    cdef void forget(self) noexcept
    cdef int sweep(self) except -1
    cdef int make_room(self) except -1
    cdef void drop(self, Entry* entry) noexcept
    cdef int place(self, uint64_t capacity) except -1
