"""Routes and the table that finds them by key: one hash of the key bytes per message, Python per new key.

A `RouteTable` belongs to one (vhost, identity, encoding). Its keys are the key blocks of records, byte for byte:

    AMQP 0-9-1 (enc 1)   size u8 | exchange | size u8 | routing key
    MQTT 5     (enc 2)   topic

Routes stay right while the topology changes. Each exchange has a `Scope` of counters. A route remembers the
scopes of the exchanges it went through; a table's entry remembers the sum of the counters that can concern its key:

    wide            bound to or from an exchange, a pattern that begins with a wildcard, a deletion
    cell[exact]     a pattern without wildcards: a direct or default binding, a literal filter
    cell[1 .. 3]    a pattern with wildcards after 1, 2, or at least 3 literal words

Counters only rise, so equal sums mean that nothing changed. Cells are found by a hash of the words, with `/` taken
for `.` so that a slashed filter and a dotted key meet in the same cell; two different words in one cell only cost a
needless resolve. `Topology.changes` rises with any counter: while it stands still nothing is summed at all.

The table is open addressing (linear probing, at most half full) over copies of the keys, plus a memo of the last
answer: the next message of the same publisher usually has the same key. Keys that the same filters match may have the
same route: then a new key costs a match and no Python, until something changes. When half full it forgets the keys whose
routes have changed, before it grows; at its bounds those not used since the last time, at least half of them. The hash is seeded per process, so peers cannot choose collisions.

Owns: the key copies and the references to the routes. Knows nothing of exchanges or protocols beyond the
framing above.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from penstock.log_core.batch._appender cimport Target
from penstock.subscriptions.cursor._cursor cimport Cursor

import os
import time

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint64_t rt_mix(uint64_t a, uint64_t b) {
        __uint128_t r = (__uint128_t)a * b;
        return (uint64_t)r ^ (uint64_t)(r >> 64);
    }
    static inline uint64_t rt_r8(const uint8_t* p) { uint64_t v; memcpy(&v, p, 8); return v; }
    static inline uint64_t rt_r4(const uint8_t* p) { uint32_t v; memcpy(&v, p, 4); return v; }
    /* The folded-multiply hash of wyhash; reads exactly [p, p+n). */
    static inline uint64_t rt_hash(const uint8_t* p, size_t n, uint64_t seed) {
        const uint64_t k0 = 0xa0761d6478bd642fULL, k1 = 0xe7037ed1a0b428dbULL;
        uint64_t a, b, h = seed ^ k0;
        size_t left = n;
        while (left > 16) { h = rt_mix(rt_r8(p) ^ k1, rt_r8(p + 8) ^ h); p += 16; left -= 16; }
        if (left >= 8) { a = rt_r8(p); b = rt_r8(p + left - 8); }
        else if (left >= 4) { a = rt_r4(p); b = rt_r4(p + left - 4); }
        else if (left) { a = ((uint64_t)p[0] << 16) | ((uint64_t)p[left >> 1] << 8) | p[left - 1]; b = 0; }
        else { a = 0; b = 0; }
        return rt_mix(k1 ^ n, rt_mix(a ^ k1, b ^ h ^ seed));
    }
    """
    uint64_t rt_hash(const uint8_t* p, size_t n, uint64_t seed) noexcept nogil

cdef enum:
    ENC_AMQP091 = 1
    DEPTHS = 3
    OUTCOMES_MAX = 4096         # sets of filters whose route a table remembers

cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")
cdef uint64_t FNV_PRIME = 0x100000001B3ULL


cdef class Route:
    def __init__(self, Target target not None, tuple scopes not None, bint routed, bint durable, bint per_message,
                 object error=None, uint32_t lp=0, tuple guards not None=(), tuple recents not None=()):
        self.target = target
        self.scopes = scopes
        for scope in scopes:
            if not isinstance(scope, Scope):
                raise TypeError("scopes is a tuple of Scope")
        self.routed = routed
        self.durable = durable
        self.per_message = per_message
        self.error = error
        self.lp = lp
        for guard in guards:
            if not isinstance(guard, Cursor):
                raise TypeError("guards is a tuple of Cursor")
        self.guards = guards
        self.recents = recents
        self.special = per_message or len(guards) > 0

    cdef bint must_look(self, uint64_t size) except -1:
        """Whether Python must look at a message with a body of `size` bytes; if not, the guards expect it."""
        cdef Py_ssize_t i
        if self.per_message:
            return True
        for i in range(len(self.guards)):
            if not (<Cursor> self.guards[i]).has_room(size):
                return True
        for i in range(len(self.guards)):
            (<Cursor> self.guards[i]).expect(size)
        return False


cdef class Topology:
    def __cinit__(self):
        self.changes = 1

    def renew(self):
        self.epoch += 1
        self.changes += 1


cdef inline uint64_t step(uint64_t h, uint8_t c) noexcept nogil:
    return (h ^ (c"." if c == c"/" else c)) * FNV_PRIME


cdef inline uint64_t spread(uint64_t h, uint64_t depth) noexcept nogil:
    # FNV leaves its low bits weak: fold the high ones in, and keep the depths apart.
    h += depth * <uint64_t>0x9E3779B97F4A7C15ULL
    return h ^ (h >> 29) ^ (h >> 47)


cdef class Scope:
    def __cinit__(self, Topology topology not None, size_t cells=256):
        if cells == 0 or cells & (cells - 1):
            raise ValueError("cells is a power of two")
        self.topology = topology
        self.cells = <uint32_t*> calloc(cells, sizeof(uint32_t))
        if self.cells == NULL:
            raise MemoryError
        self.mask = cells - 1

    def __dealloc__(self):
        free(self.cells)

    def touch_all(self):
        self.wide += 1
        self.topology.changes += 1

    def touch_exact(self, bytes pattern not None):
        cdef const uint8_t* p = <const uint8_t*> PyBytes_AS_STRING(pattern)
        cdef Py_ssize_t i
        cdef uint64_t h = SEED
        for i in range(PyBytes_GET_SIZE(pattern)):
            h = step(h, p[i])
        self.cells[spread(h, 0) & self.mask] += 1
        self.topology.changes += 1

    def touch_below(self, bytes prefix not None):
        cdef const uint8_t* p = <const uint8_t*> PyBytes_AS_STRING(prefix)
        cdef Py_ssize_t n = PyBytes_GET_SIZE(prefix), i
        cdef uint64_t h = SEED, depth = 1
        if n == 0:
            # Also the prefix of one empty word: rare enough to concern every key.
            self.touch_all()
            return
        for i in range(n):
            if p[i] == c"." or p[i] == c"/":
                if depth == DEPTHS:
                    break
                depth += 1
            h = step(h, p[i])
        self.cells[spread(h, depth) & self.mask] += 1
        self.topology.changes += 1

    cdef uint64_t version(self, const uint8_t* key, Py_ssize_t n) noexcept:
        """The sum of the counters that can concern `key`."""
        cdef uint64_t h = SEED, depth = 1, total = self.wide
        cdef Py_ssize_t i
        for i in range(n):
            if depth <= DEPTHS and (key[i] == c"." or key[i] == c"/"):
                total += self.cells[spread(h, depth) & self.mask]
                depth += 1
            h = step(h, key[i])
        if depth <= DEPTHS:
            total += self.cells[spread(h, depth) & self.mask]
        return total + self.cells[spread(h, 0) & self.mask]


cdef class RouteTable:
    def __cinit__(self, Topology topology not None, int enc, object resolve not None,
                  Py_ssize_t limit=200_000, Py_ssize_t bytes_limit=32 << 20, object matcher=None):
        if limit < 2 or bytes_limit < 0:
            raise ValueError("limit is at least 2, bytes_limit at least 0")
        self.topology = topology
        self.enc = enc
        self.resolver = resolve
        self.matcher = matcher
        self.outcomes = {}
        self.limit = limit
        self.bytes_limit = bytes_limit
        self.mask = 63
        self.entries = <Entry*> calloc(self.mask + 1, sizeof(Entry))
        if self.entries == NULL:
            raise MemoryError
        self.memo_size = -1
        self.epoch = topology.epoch

    def __dealloc__(self):
        if self.entries != NULL:
            self.forget()
            free(self.entries)

    cdef Route lookup(self, const uint8_t* key, Py_ssize_t n):
        """The route of the key block [key, key + n). The bytes are not kept."""
        if (n == self.memo_size and self.memo_changes == self.topology.changes
                and memcmp(key, self.memo_key, n) == 0):
            return <Route> self.memo_route
        return self.find(key, n)

    cdef Route find(self, const uint8_t* key, Py_ssize_t n):
        cdef uint64_t hash, version, changes
        cdef Entry* entry
        cdef Route route
        cdef uint8_t* copy
        if n < 0 or n > 0xFFFF:
            raise ValueError("a key block has at most 65,535 bytes")
        if self.epoch != self.topology.epoch:
            self.forget()
            self.epoch = self.topology.epoch
        hash = rt_hash(key, <size_t> n, SEED)
        entry = self.slot(hash, key, n)
        if entry.key != NULL:
            route = <Route> entry.route
            if entry.checked != self.topology.changes:
                version = self.version_of(route, key, n)
                if version == entry.version:
                    entry.checked = self.topology.changes
        if entry.key == NULL or entry.checked != self.topology.changes:
            # The resolver may itself change the topology (the first message to a queue makes its feed), or,
            # through a scanner's callback, this table: nothing found before it is used after it.
            self.memo_size = -1
            self.misses += 1
            route = self.resolve(PyBytes_FromStringAndSize(<const char*> key, n))
            if route is None:
                raise TypeError("the resolver answered no route")
            if n + 64 > self.bytes_limit:
                return route
            if self.count >= self.limit or self.key_bytes + n > self.bytes_limit:
                self.sweep()
            entry = self.slot(hash, key, n)
            if entry.key == NULL:
                if 2 * <uint64_t> self.count > self.mask:
                    self.make_room()
                    entry = self.slot(hash, key, n)
                copy = <uint8_t*> malloc(n if n else 1)
                if copy == NULL:
                    raise MemoryError
                memcpy(copy, key, n)
                entry.hash = hash
                entry.key = copy
                entry.size = <uint32_t> n
                self.count += 1
                self.key_bytes += n
            else:
                Py_DECREF(<object> entry.route)
            Py_INCREF(route)
            entry.route = <void*> route
            entry.version = self.version_of(route, key, n)
            entry.checked = self.topology.changes
        entry.used = 1
        self.memo_key = entry.key
        self.memo_size = n
        self.memo_changes = entry.checked
        self.memo_route = entry.route
        return route

    cdef Route resolve(self, bytes key):
        """The route of a new key: as of another one that the same filters match, if nothing else decides."""
        cdef Route route
        cdef uint64_t changes = self.topology.changes
        if self.matcher is None:
            return self.resolver(key)
        if self.outcomes_of != changes:
            self.outcomes_of = changes
            self.outcomes.clear()
            self.match = self.matcher()
        if self.match is None:
            return self.resolver(key)
        matched = tuple(self.match(key))
        route = self.outcomes.get(matched)
        if route is None:
            route = self.resolver(key)
            # One scope: it passed no other exchange, where the key might decide anew.
            if (route is not None and route.error is None and not route.per_message and len(route.scopes) == 1
                    and changes == self.topology.changes):
                if len(self.outcomes) >= OUTCOMES_MAX:
                    self.outcomes.clear()
                self.outcomes[matched] = route
        return route

    cdef Entry* slot(self, uint64_t hash, const uint8_t* key, Py_ssize_t n) noexcept:
        """The entry of the key, or the free one where it belongs. The table is never full."""
        cdef uint64_t i = hash & self.mask
        cdef Entry* entry
        while True:
            entry = &self.entries[i]
            if entry.key == NULL:
                return entry
            if entry.hash == hash and entry.size == n and memcmp(entry.key, key, n) == 0:
                return entry
            i = (i + 1) & self.mask

    cdef uint64_t version_of(self, Route route, const uint8_t* key, Py_ssize_t n) noexcept:
        cdef uint64_t total = 0
        cdef Py_ssize_t i, skip = 0
        if self.enc == ENC_AMQP091:
            if n > 0 and 2 + <Py_ssize_t> key[0] <= n:
                skip = 2 + key[0]
            else:
                skip = n
        for i in range(len(route.scopes)):
            total += (<Scope> route.scopes[i]).version(key + skip, n - skip)
        return total

    cdef void forget(self) noexcept:
        cdef uint64_t i
        for i in range(self.mask + 1):
            if self.entries[i].key != NULL:
                free(self.entries[i].key)
                self.entries[i].key = NULL
                Py_DECREF(<object> self.entries[i].route)
                self.entries[i].route = NULL
        self.count = 0
        self.key_bytes = 0
        self.memo_size = -1

    cdef int sweep(self) except -1:
        """Forget the keys not used since the last sweep; of those used, every other one when too many are."""
        cdef Py_ssize_t used = 0, index = 0
        cdef uint64_t i
        cdef Entry* entry
        cdef bint thin
        for i in range(self.mask + 1):
            used += self.entries[i].key != NULL and self.entries[i].used
        thin = 2 * used > self.count
        for i in range(self.mask + 1):
            entry = &self.entries[i]
            if entry.key == NULL:
                continue
            index += 1
            if not entry.used or (thin and index & 1):
                self.drop(entry)
            entry.used = 0
        self.memo_size = -1
        # Linear probing knows no holes: everything is put again where it belongs.
        self.place(self.mask + 1)
        if self.key_bytes > self.bytes_limit // 2:
            # A few long keys fill the bytes: halving the number was not enough.
            self.forget()
        return 0

    cdef int make_room(self) except -1:
        """Half full: forget the keys whose routes have changed since (queues that are gone); grow if few have."""
        cdef uint64_t i
        cdef Entry* entry
        for i in range(self.mask + 1):
            entry = &self.entries[i]
            if (entry.key != NULL
                    and entry.version != self.version_of(<Route> entry.route, entry.key, entry.size)):
                self.drop(entry)
        self.memo_size = -1
        self.place(self.mask + 1 if 4 * <uint64_t> self.count <= self.mask else 2 * (self.mask + 1))
        return 0

    cdef void drop(self, Entry* entry) noexcept:
        """Leaves a hole: `place` follows."""
        free(entry.key)
        self.key_bytes -= entry.size
        entry.key = NULL
        Py_DECREF(<object> entry.route)
        entry.route = NULL
        self.count -= 1

    cdef int place(self, uint64_t capacity) except -1:
        cdef Entry* old = self.entries
        cdef uint64_t i, j, size = self.mask + 1
        cdef Entry* fresh = <Entry*> calloc(capacity, sizeof(Entry))
        if fresh == NULL:
            raise MemoryError
        for i in range(size):
            if old[i].key != NULL:
                j = old[i].hash & (capacity - 1)
                while fresh[j].key != NULL:
                    j = (j + 1) & (capacity - 1)
                fresh[j] = old[i]
        self.entries = fresh
        self.mask = capacity - 1
        free(old)
        return 0

    def route(self, bytes key not None):
        return self.lookup(<const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))

    def clear(self):
        self.forget()


def measure(RouteTable table not None, list keys not None, Py_ssize_t rounds):
    cdef Py_ssize_t i, j, count = len(keys)
    cdef bytes key
    for key in keys:
        table.route(key)
    started = time.perf_counter()
    for i in range(rounds):
        for j in range(count):
            key = <bytes> keys[j]
            table.lookup(<const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    return time.perf_counter() - started
