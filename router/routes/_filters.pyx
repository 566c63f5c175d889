# cython: auto_pickle=False
"""The trie of MQTT topic filters: 48 bytes for a level that only one filter has, and what its payload is.

Nodes stand in one array, number 0 the root; a node knows its parent and the word between them. There are no
lists of children: an edge is found in one hash table of node numbers, by parent and word.

    node    parent u32 | hash u32 | children u32 | payload u32 | size u32 | word: 8 bytes, or where they are
    edges   node numbers, open addressing with linear probing, a power of two, at most two thirds full

Nodes that are free form a list through `parent`. Payloads are in a Python list, so that the collector sees
them; number 0 is none. A match walks the topic's levels with the set of nodes that its levels so far lead to;
each is a different prefix, so a node is met at most once.

Source: linear probing with backward shift deletion, Knuth, The Art of Computer Programming 6.4, algorithm R.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy

import os

from penstock.router.errors import InvalidPattern
from penstock.router.routes.topics import WORDS_MAX

cdef enum:
    INLINE = 8
    EDGES_MIN = 16

cdef struct Node:
    uint32_t parent
    uint32_t hash
    uint32_t children
    uint32_t payload            # index in SlashedTrie._payloads; 0 = no filter ends here
    uint32_t size               # of the word
    uint8_t word[INLINE]        # the word, or a pointer to it when it is longer

cdef struct Level:
    const uint8_t* start
    Py_ssize_t size


# Clients choose the words: without a seed they could choose many that collide.
cdef uint32_t SEED = <uint32_t>int.from_bytes(os.urandom(4), "little")


cdef inline uint32_t _hash(uint32_t parent, const uint8_t* word, Py_ssize_t size) noexcept nogil:
    # FNV-1a over the parent and the word, with a last mix so that the low bits depend on all.
    cdef uint32_t h = ((SEED ^ parent) + 2166136261u) * 16777619u
    cdef Py_ssize_t i
    for i in range(size):
        h = (h ^ word[i]) * 16777619u
    h ^= h >> 15
    h *= 2246822519u
    return h ^ h >> 13


cdef inline const uint8_t* _word(Node* node) noexcept nogil:
    if node.size <= INLINE:
        return <const uint8_t*>node.word
    return (<const uint8_t**>node.word)[0]


cdef class SlashedTrie:
    cdef Node* _nodes
    cdef uint32_t _used, _room, _free
    cdef uint32_t* _edges
    cdef uint32_t _mask, _edge_count
    cdef uint32_t _count
    cdef list _payloads, _spare

    def __cinit__(self):
        self._room = 8
        self._nodes = <Node*>malloc(self._room * sizeof(Node))
        self._edges = <uint32_t*>malloc(EDGES_MIN * sizeof(uint32_t))
        if self._nodes == NULL or self._edges == NULL:
            raise MemoryError
        self._mask = EDGES_MIN - 1
        for i in range(EDGES_MIN):
            self._edges[i] = 0
        self._used = 1
        self._nodes[0].payload = self._nodes[0].children = self._nodes[0].size = 0
        self._payloads = [None]
        self._spare = []

    def __dealloc__(self):
        cdef uint32_t i
        if self._nodes != NULL:
            for i in range(self._used):
                if self._nodes[i].size > INLINE:
                    free(<void*>_word(&self._nodes[i]))
        free(self._nodes)
        free(self._edges)

    @classmethod
    def __class_getitem__(cls, _):
        return cls

    def __len__(self):
        return self._count

    @property
    def nodes(self):
        return self._edge_count

    def __sizeof__(self):
        size = type(self).__basicsize__ + self._room * sizeof(Node) + (self._mask + 1) * sizeof(uint32_t)
        return size + self._payloads.__sizeof__() + self._spare.__sizeof__()

    def add(self, bytes pattern not None, make):
        cdef uint32_t node
        _check(pattern)
        node = self._find(pattern)
        if node == 0 or self._nodes[node].payload == 0:
            payload = make()            # before anything is changed: it may raise
            self._set(pattern, payload)
            return payload
        return self._payloads[self._nodes[node].payload]

    def setdefault(self, bytes pattern not None, payload):
        cdef uint32_t node
        _check(pattern)
        node = self._find(pattern)
        if node == 0 or self._nodes[node].payload == 0:
            self._set(pattern, payload)
            return payload
        return self._payloads[self._nodes[node].payload]

    def put(self, bytes pattern not None, payload):
        _check(pattern)
        self._set(pattern, payload)

    def get(self, bytes pattern not None):
        cdef uint32_t node = self._find(pattern)
        return None if node == 0 else self._payloads[self._nodes[node].payload]

    def remove(self, bytes pattern not None):
        cdef uint32_t node = self._find(pattern), index, parent
        if node == 0 or self._nodes[node].payload == 0:
            return None
        index = self._nodes[node].payload
        payload = self._payloads[index]
        self._payloads[index] = None
        self._spare.append(index)
        self._nodes[node].payload = 0
        self._count -= 1
        while node and self._nodes[node].children == 0 and self._nodes[node].payload == 0:
            parent = self._nodes[node].parent
            self._take_out(node)
            self._nodes[parent].children -= 1
            node = parent
        return payload

    def match(self, bytes topic not None):
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(topic)
        cdef const uint8_t* end = at + PyBytes_GET_SIZE(topic)
        cdef const uint8_t* stop
        cdef uint32_t few[64]
        cdef uint32_t* now = few
        cdef uint32_t* then = few + 32
        cdef uint32_t* large = NULL
        cdef uint32_t* grown
        cdef Py_ssize_t states = 1, room = 32, after, i
        cdef uint32_t child
        # mqtt5:4.7.2-1 "The Server MUST NOT match Topic Filters starting with a wildcard character (# or +)
        # with Topic Names beginning with a $ character".
        cdef bint wild = at == end or at[0] != 36, special
        cdef list found = []
        now[0] = 0
        try:
            while True:
                stop = <const uint8_t*>memchr(at, 47, end - at) if at < end else NULL
                if stop == NULL:
                    stop = end
                special = stop - at == 1 and (at[0] == 43 or at[0] == 35)
                if 2 * states > room:
                    # Each state leads to two at most.
                    room = 4 * states
                    grown = <uint32_t*>malloc(2 * room * sizeof(uint32_t))
                    if grown == NULL:
                        raise MemoryError
                    memcpy(grown, now, states * sizeof(uint32_t))
                    free(large)
                    large = now = grown
                    then = grown + room
                after = 0
                for i in range(states):
                    if self._nodes[now[i]].children == 0:
                        continue
                    if not special:
                        child = self._child(now[i], at, stop - at)
                        if child:
                            then[after] = child
                            after += 1
                    if wild:
                        child = self._child(now[i], b"+", 1)
                        if child:
                            then[after] = child
                            after += 1
                        child = self._child(now[i], b"#", 1)
                        if child and self._nodes[child].payload:
                            found.append(self._payloads[self._nodes[child].payload])
                now, then = then, now
                states = after
                wild = True
                if states == 0 or stop == end:
                    break
                at = stop + 1
            for i in range(states):
                if self._nodes[now[i]].payload:
                    found.append(self._payloads[self._nodes[now[i]].payload])
                if self._nodes[now[i]].children:
                    child = self._child(now[i], b"#", 1)
                    if child and self._nodes[child].payload:
                        found.append(self._payloads[self._nodes[child].payload])
        finally:
            free(large)
        return found

    cdef uint32_t _find(self, bytes pattern) except? 0xFFFFFFFF:
        """The node of a filter, 0 when there is none: no filter is empty of levels, so none is the root."""
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(pattern)
        cdef const uint8_t* end = at + PyBytes_GET_SIZE(pattern)
        cdef const uint8_t* stop
        cdef uint32_t node = 0
        while True:
            stop = <const uint8_t*>memchr(at, 47, end - at) if at < end else NULL
            if stop == NULL:
                stop = end
            node = self._child(node, at, stop - at)
            if node == 0 or stop == end:
                return node
            at = stop + 1

    cdef int _set(self, bytes pattern, payload) except -1:
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(pattern)
        cdef const uint8_t* end = at + PyBytes_GET_SIZE(pattern)
        cdef const uint8_t* stop
        cdef uint32_t node = 0, child
        while True:
            stop = <const uint8_t*>memchr(at, 47, end - at) if at < end else NULL
            if stop == NULL:
                stop = end
            child = self._child(node, at, stop - at)
            node = child if child else self._new(node, at, stop - at)
            if stop == end:
                break
            at = stop + 1
        if self._nodes[node].payload:
            self._payloads[self._nodes[node].payload] = payload
            return 0
        if self._spare:
            self._nodes[node].payload = self._spare.pop()
            self._payloads[self._nodes[node].payload] = payload
        else:
            self._nodes[node].payload = <uint32_t>len(self._payloads)
            self._payloads.append(payload)
        self._count += 1
        return 0

    cdef uint32_t _child(self, uint32_t parent, const uint8_t* word, Py_ssize_t size) noexcept:
        cdef uint32_t h = _hash(parent, word, size)
        cdef uint32_t at = h & self._mask
        cdef Node* node
        while self._edges[at]:
            node = &self._nodes[self._edges[at]]
            if (node.hash == h and node.parent == parent and node.size == <uint32_t>size
                    and memcmp(_word(node), word, size) == 0):
                return self._edges[at]
            at = at + 1 & self._mask
        return 0

    cdef uint32_t _new(self, uint32_t parent, const uint8_t* word, Py_ssize_t size) except 0:
        cdef uint32_t number = self._free, room
        cdef uint8_t* copy = NULL
        cdef Node* node
        cdef Node* nodes
        if 3 * (self._edge_count + 1) > 2 * (self._mask + 1):
            self._widen()
        if size > INLINE:
            copy = <uint8_t*>malloc(size)
            if copy == NULL:
                raise MemoryError
            memcpy(copy, word, size)
        if number:
            self._free = self._nodes[number].parent
        else:
            if self._used == self._room:
                room = self._room + self._room // 2
                nodes = <Node*>realloc(self._nodes, room * sizeof(Node))
                if nodes == NULL:
                    free(copy)
                    raise MemoryError
                self._nodes = nodes
                self._room = room
            number = self._used
            self._used += 1
        node = &self._nodes[number]
        node.parent = parent
        node.hash = _hash(parent, word, size)
        node.children = node.payload = 0
        node.size = <uint32_t>size
        if copy != NULL:
            (<uint8_t**>node.word)[0] = copy
        else:
            memcpy(node.word, word, size)
        self._nodes[parent].children += 1
        self._link(number)
        return number

    cdef void _link(self, uint32_t number) noexcept:
        cdef uint32_t at = self._nodes[number].hash & self._mask
        while self._edges[at]:
            at = at + 1 & self._mask
        self._edges[at] = number
        self._edge_count += 1

    cdef int _widen(self) except -1:
        cdef uint32_t room = 2 * (self._mask + 1), before = self._mask + 1, i
        cdef uint32_t* old = self._edges
        cdef uint32_t* edges = <uint32_t*>malloc(room * sizeof(uint32_t))
        if edges == NULL:
            raise MemoryError
        for i in range(room):
            edges[i] = 0
        self._edges = edges
        self._mask = room - 1
        self._edge_count = 0
        for i in range(before):
            if old[i]:
                self._link(old[i])
        free(old)
        return 0

    cdef void _take_out(self, uint32_t number) noexcept:
        """Free a node, and close the gap that its edge leaves in the run of probes."""
        cdef Node* node = &self._nodes[number]
        cdef uint32_t gap = node.hash & self._mask, at, home
        while self._edges[gap] != number:
            gap = gap + 1 & self._mask
        at = gap
        while True:
            at = at + 1 & self._mask
            if self._edges[at] == 0:
                break
            home = self._nodes[self._edges[at]].hash & self._mask
            # It may move into the gap unless its own place lies behind the gap.
            if (at - home & self._mask) >= (at - gap & self._mask):
                self._edges[gap] = self._edges[at]
                gap = at
        self._edges[gap] = 0
        self._edge_count -= 1
        if node.size > INLINE:
            free(<void*>_word(node))
        node.size = 0
        node.parent = self._free
        self._free = number


cdef int _check(bytes pattern) except -1:
    cdef Py_ssize_t levels = pattern.count(b"/") + 1
    if levels > WORDS_MAX:
        raise InvalidPattern(levels, WORDS_MAX)
    return 0
