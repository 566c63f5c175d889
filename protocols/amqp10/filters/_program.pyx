# cython: auto_pickle=False
"""Evaluates the trees of filters on an encoded message. `terms` has the trees, `values` the rules of comparisons.

A program is nodes in an array, which name their parts by index. A message is looked at once: where its sections are. A
condition is true, false or unknown (the value NOTHING). All that is not ordinary ends the evaluation with UNSURE: values
that are no scalars, unsigned integers above 2^63, integers beside reals above 2^53, sections with odd descriptors. Python
looks at such a message then. So all that is said here is what the function would say:
tests/property/test_amqp10_programs.py compares the two.

The evaluation is as deep as the tree, which the parser bounds.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from penstock.protocols.amqp10.codec._simple cimport (
    Compound, Simple, extent, is_false, is_symbol, is_text, is_true, number, read_compound, read_simple,
)
from penstock.protocols.amqp10.filters.terms import SIGNS
from penstock.protocols.properties._tables cimport load16, load32, load64

cdef enum:
    UNSURE = -1
    OK = 0
    NODES_MAX = 4096
    LIKE_MAX = 65536                # characters, thus bytes at least: a longer text is Python's
    EXACT = 53                      # bits of an integer that a double has
    # kinds of values
    NOTHING = 0
    BOOLEAN = 1
    INTEGER = 2
    REAL = 3
    TEXT = 4
    BYTES = 5
    # sections
    SECTIONS = 5
    HEADER = 0x70
    BODY = 0x75
    # kinds of nodes
    CONSTANT = 0
    LISTED = 1
    MAPPED = 2
    PERSISTENT = 3
    COMPARED = 4
    NULL_ = 5
    ALL = 6
    ANY = 7
    NOT = 8
    BETWEEN = 9
    IN = 10
    LIKE = 11
    SAME = 12
    BEGINS = 13
    ENDS = 14
    THERE = 15
    # signs
    EQUAL = 0
    UNEQUAL = 1
    UNEQUAL_TOO = 2
    LESS = 3
    LESS_EQUAL = 4
    GREATER = 5
    GREATER_EQUAL = 6

assert SIGNS == ("=", "<>", "!=", "<", "<=", ">", ">=")

cdef dict KINDS = {
    "constant": CONSTANT, "listed": LISTED, "mapped": MAPPED, "persistent": PERSISTENT, "compared": COMPARED, "null": NULL_,
    "all": ALL, "any": ANY, "not": NOT, "between": BETWEEN, "in": IN, "like": LIKE, "same": SAME, "begins": BEGINS,
    "ends": ENDS, "there": THERE,
}

cdef class Program:
    def __cinit__(self):
        self.kept = []

    def __init__(self, list trees not None):
        cdef int size = nodes_of(("all", trees))
        if size > NODES_MAX:
            raise ValueError("too large for a program")
        self.nodes = <Node*>calloc(size, sizeof(Node))
        self.parts = <int*>calloc(size, sizeof(int))
        if self.nodes == NULL or self.parts == NULL:
            raise MemoryError
        self.root = self.add(("all", trees))

    def __dealloc__(self):
        free(self.nodes)
        free(self.parts)

    cdef int add(self, tree) except -1:
        cdef int at = self.node_count
        self.node_count += 1
        self.fill(at, tree)
        return at

    cdef int take_parts(self, int at, list trees) except -1:
        """The parts of a node stand side by side."""
        cdef int first = self.part_count, i, count = <int>len(trees)
        self.part_count += count
        self.nodes[at].first = first
        self.nodes[at].count = count
        for i in range(count):
            self.parts[first + i] = self.add(trees[i])
        return 0

    cdef int fill(self, int at, tree) except -1:
        cdef Node* node = &self.nodes[at]
        cdef int kind = KINDS[tree[0]]
        node.kind = kind
        if kind == CONSTANT:
            self.keep(&node.constant, tree[1])
        elif kind == LISTED:
            node.arg = tree[1]
            node.index = tree[2]
            self.keep(&node.constant, tree[3])
        elif kind == MAPPED:
            node.arg = tree[1]
            self.keep(&node.constant, tree[2])
        elif kind == COMPARED:
            node.arg = SIGNS.index(tree[1])
            self.take_parts(at, [tree[2], tree[3]])
        elif kind == NULL_:
            node.arg = tree[2]
            self.take_parts(at, [tree[1]])
        elif kind == ALL or kind == ANY:
            self.take_parts(at, tree[1])
        elif kind == NOT or kind == THERE:
            self.take_parts(at, [tree[1]])
        elif kind == BETWEEN:
            self.take_parts(at, [tree[1], tree[2], tree[3]])
        elif kind == IN:
            self.take_parts(at, [tree[1], *tree[2]])
        elif kind == LIKE:
            self.keep(&node.constant, pattern_of(tree[2]))
            self.take_parts(at, [tree[1]])
        elif kind == SAME or kind == BEGINS or kind == ENDS:
            self.keep(&node.constant, tree[2])
            self.take_parts(at, [tree[1]])
        return 0

    cdef int keep(self, Found* out, value) except -1:
        """A constant; bytes that it points into are kept."""
        cdef bytes raw
        if value is None:
            out.kind = NOTHING
        elif isinstance(value, bool):
            out.kind = BOOLEAN
            out.number = value
        elif isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                raise ValueError("an integer beyond 64 bits")
            out.kind = INTEGER
            out.number = value
        elif isinstance(value, float):
            out.kind = REAL
            out.real = value
        elif type(value) is str or type(value) is bytes:
            try:
                raw = value.encode() if type(value) is str else value
            except UnicodeEncodeError:
                raise ValueError("a text that UTF-8 has no words for") from None
            self.kept.append(raw)
            out.kind = TEXT if type(value) is str else BYTES
            out.p = <const uint8_t*>PyBytes_AS_STRING(raw)
            out.size = PyBytes_GET_SIZE(raw)
        else:
            raise ValueError("a value that is not for a program")
        return 0

    def look(self, bytes payload not None):
        cdef int found = self.passes(<const uint8_t*>PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        return None if found < 0 else found == 1

    cdef int passes(self, const uint8_t* p, Py_ssize_t n) noexcept:
        cdef Looked looked
        cdef Found found
        if look_for(p, n, &looked) == UNSURE or self.value(self.root, &looked, &found) == UNSURE:
            return -1
        return found.kind == BOOLEAN and found.number

    cdef int value(self, int at, const Looked* looked, Found* out) noexcept:
        """OK, and the value of a node; or UNSURE."""
        cdef const Node* node = &self.nodes[at]
        cdef const int* parts = self.parts + node.first
        cdef int kind = node.kind, i, known
        cdef Found one, other
        cdef bint decisive
        if kind == CONSTANT:
            out[0] = node.constant
            return OK
        if kind == LISTED:
            if listed(looked, node.arg, node.index, out) == UNSURE:
                return UNSURE
            if out.kind == NOTHING:
                out[0] = node.constant
            return OK
        if kind == MAPPED:
            return OK if mapped(looked, node, out) >= 0 else UNSURE
        if kind == PERSISTENT:
            if listed(looked, HEADER, 0, &one) == UNSURE:
                return UNSURE
            if one.kind != BOOLEAN and one.kind != NOTHING:
                return UNSURE
            persistence(one.kind == BOOLEAN and one.number, out)
            return OK
        if kind == ALL or kind == ANY:
            decisive = kind == ANY
            known = True
            for i in range(node.count):
                if self.value(parts[i], looked, &one) == UNSURE:
                    return UNSURE
                if one.kind != BOOLEAN:
                    known = False
                elif one.number == decisive:
                    return truth(out, decisive)
            return truth(out, not decisive) if known else unknown(out)
        if kind == THERE:
            node = &self.nodes[parts[0]]
            i = mapped(looked, node, &one)
            return UNSURE if i == UNSURE else truth(out, i == 1)
        if kind == IN:
            return self.in_(node, looked, out)
        # All others begin with one value.
        if self.value(parts[0], looked, &one) == UNSURE:
            return UNSURE
        if kind == NULL_:
            return truth(out, (one.kind == NOTHING) != node.arg)
        if kind == NOT:
            return truth(out, not one.number) if one.kind == BOOLEAN else unknown(out)
        if kind == LIKE:
            return like(&one, &node.constant, out)
        if kind == SAME:
            if one.kind == NOTHING or (one.kind == TEXT) != (node.constant.kind == TEXT) or \
                    (one.kind == BYTES) != (node.constant.kind == BYTES):
                return truth(out, False)
            return compare(EQUAL, &one, &node.constant, out)
        if kind == BEGINS:
            return truth(out, one.kind == TEXT and one.size >= node.constant.size
                         and memcmp(one.p, node.constant.p, node.constant.size) == 0)
        if kind == ENDS:
            return truth(out, one.kind == TEXT and one.size >= node.constant.size
                         and memcmp(one.p + one.size - node.constant.size, node.constant.p, node.constant.size) == 0)
        if self.value(parts[1], looked, &other) == UNSURE:
            return UNSURE
        if kind == COMPARED:
            return compare(node.arg, &one, &other, out)
        return self.between(node, looked, &one, &other, out)

    cdef int between(self, const Node* node, const Looked* looked, const Found* one, const Found* low, Found* out) noexcept:
        cdef Found high, above, below
        if self.value(self.parts[node.first + 2], looked, &high) == UNSURE:
            return UNSURE
        above.number = below.number = 0
        if compare(GREATER_EQUAL, one, low, &above) == UNSURE or compare(LESS_EQUAL, one, &high, &below) == UNSURE:
            return UNSURE
        if (above.kind == BOOLEAN and not above.number) or (below.kind == BOOLEAN and not below.number):
            return truth(out, False)
        return truth(out, True) if above.kind == BOOLEAN and below.kind == BOOLEAN else unknown(out)

    cdef int in_(self, const Node* node, const Looked* looked, Found* out) noexcept:
        cdef const int* parts = self.parts + node.first
        cdef Found one, other, same
        cdef bint known = True, found = False
        cdef int i
        if self.value(parts[0], looked, &one) == UNSURE:
            return UNSURE
        for i in range(1, node.count):
            if self.value(parts[i], looked, &other) == UNSURE or compare(EQUAL, &one, &other, &same) == UNSURE:
                return UNSURE
            if same.kind != BOOLEAN:
                known = False
            elif same.number:
                found = True
        return truth(out, found) if found or known else unknown(out)


def nodes_of(tree):
    """How many nodes a tree has."""
    return 1 + sum(
        nodes_of(one) for part in tree[1:] for one in (part if isinstance(part, list) else [part])
        if isinstance(one, tuple)
    )


def pattern_of(parts):
    """A pattern as bytes: each character behind its length, 0 for any one, 255 between two parts."""
    pattern = bytearray()
    for i, part in enumerate(parts):
        if i:
            pattern.append(255)
        for one in part:
            try:
                raw = b"" if one is None else one.encode()
            except UnicodeEncodeError:
                raise ValueError("a text that UTF-8 has no words for") from None
            pattern.append(len(raw))
            pattern += raw
    return bytes(pattern)


cdef inline int truth(Found* out, bint value) noexcept:
    out.kind = BOOLEAN
    out.number = value
    return OK


cdef inline int unknown(Found* out) noexcept:
    out.kind = NOTHING
    return OK


cdef void persistence(bint durable, Found* out) noexcept:
    out.kind = TEXT
    out.p = <const uint8_t*>(b"PERSISTENT" if durable else b"NON_PERSISTENT")
    out.size = 10 if durable else 14


# Where values are

cdef int look_for(const uint8_t* p, Py_ssize_t n, Looked* out) noexcept:
    """Where the sections in front of the body are; of several alike, the first."""
    cdef Py_ssize_t at = 0, size
    cdef Section* section
    cdef int i
    for i in range(SECTIONS):
        out.sections[i].p = NULL
    while at < n:
        if n - at < 4 or p[at] != 0 or p[at + 1] != 0x53 or p[at + 2] < HEADER:
            return UNSURE
        if p[at + 2] >= BODY:
            return OK
        size = extent(p + at + 3, n - at - 3)
        if size < 0:
            return UNSURE
        section = &out.sections[p[at + 2] - HEADER]
        if section.p == NULL:
            section.p = p + at + 3
            section.size = size
        at += 3 + size
    return OK


cdef const Section* section_of(const Looked* looked, int code) noexcept:
    return &looked.sections[code - HEADER]


cdef int listed(const Looked* looked, int code, int index, Found* out) noexcept:
    """The field at an index of a section that is a list."""
    cdef const Section* section = section_of(looked, code)
    cdef Compound fields
    cdef Simple value
    cdef const uint8_t* p
    cdef Py_ssize_t size
    cdef int i
    out.kind = NOTHING
    if section.p == NULL:
        return OK
    if read_compound(section.p, section.size, False, &fields) < 0:
        return UNSURE
    if <uint32_t>index >= fields.count:
        return OK
    p = fields.p
    for i in range(index + 1):
        size = read_simple(p, fields.end - p, &value)
        if size < 0:
            return UNSURE
        p += size
    return scalar(&value, out)


cdef int mapped(const Looked* looked, const Node* node, Found* out) noexcept:
    """An entry of a section that is a map: 1 if it is there, 0 if not, or UNSURE."""
    cdef const Section* section = section_of(looked, node.arg)
    cdef Compound entries
    cdef Simple value
    cdef const uint8_t* p
    cdef Py_ssize_t size
    cdef uint32_t i
    cdef bint wanted
    out.kind = NOTHING
    if section.p == NULL:
        return 0
    if read_compound(section.p, section.size, True, &entries) < 0:
        return UNSURE
    p = entries.p
    for i in range(0, entries.count, 2):
        size = read_simple(p, entries.end - p, &value)
        if size < 0:
            return UNSURE
        wanted = (
            (is_text(&value) or is_symbol(&value)) and value.size == node.constant.size
            and memcmp(value.p, node.constant.p, value.size) == 0
        )
        p += size
        if wanted:
            size = read_simple(p, entries.end - p, &value)
            return 1 if size >= 0 and scalar(&value, out) == OK else UNSURE
        size = extent(p, entries.end - p)
        if size < 0:
            return UNSURE
        p += size
    return 0


cdef int scalar(const Simple* value, Found* out) noexcept:
    """A value as filters see it."""
    cdef uint8_t code = value.code
    cdef uint32_t bits
    cdef uint64_t bits64
    cdef float single
    out.kind = INTEGER
    if code == 0x40:
        out.kind = NOTHING
    elif is_true(value) or is_false(value):
        out.kind = BOOLEAN
        out.number = is_true(value)
    elif code == 0x43 or code == 0x44:
        out.number = 0
    elif code == 0x50 or code == 0x52 or code == 0x53 or code == 0x60 or code == 0x70:
        out.number = <int64_t>number(value)
    elif code == 0x80:
        bits64 = load64(value.p)
        if bits64 >> 63:
            return UNSURE
        out.number = <int64_t>bits64
    elif code == 0x51 or code == 0x54 or code == 0x55:
        out.number = <int8_t>value.p[0]
    elif code == 0x61:
        out.number = <int16_t>load16(value.p)
    elif code == 0x71:
        out.number = <int32_t>load32(value.p)
    elif code == 0x81 or code == 0x83:
        out.number = <int64_t>load64(value.p)
    elif code == 0x72:
        bits = load32(value.p)
        memcpy(&single, &bits, 4)
        out.kind = REAL
        out.real = single
    elif code == 0x82:
        bits64 = load64(value.p)
        memcpy(&out.real, &bits64, 8)
        out.kind = REAL
    elif code == 0xA1 or code == 0xB1 or code == 0xA3 or code == 0xB3:
        out.kind = TEXT
        out.p = value.p
        out.size = value.size
    elif code == 0xA0 or code == 0xB0:
        out.kind = BYTES
        out.p = value.p
        out.size = value.size
    else:
        return UNSURE
    return OK


# Comparisons: `values.compared`

cdef int compare(int sign, const Found* one, const Found* other, Found* out) noexcept:
    cdef int order
    if one.kind == NOTHING or other.kind == NOTHING:
        return unknown(out)
    if one.kind >= TEXT and other.kind >= TEXT:
        order = memcmp(one.p, other.p, min(one.size, other.size))
        if order == 0:
            order = (one.size > other.size) - (one.size < other.size)
        return truth(out, holds(sign, order < 0, order == 0))
    if one.kind >= TEXT or other.kind >= TEXT or (one.kind == BOOLEAN) != (other.kind == BOOLEAN):
        return truth(out, False)
    if one.kind == BOOLEAN and sign > UNEQUAL_TOO:
        return truth(out, False)
    if one.kind != REAL and other.kind != REAL:
        return truth(out, holds(sign, one.number < other.number, one.number == other.number))
    if (one.kind == INTEGER and beyond(one.number)) or (other.kind == INTEGER and beyond(other.number)):
        return UNSURE
    return truth(out, real_holds(sign, real_of(one), real_of(other)))


cdef inline bint beyond(int64_t value) noexcept:
    return value > <int64_t>1 << EXACT or value < -(<int64_t>1 << EXACT)


cdef inline double real_of(const Found* value) noexcept:
    return value.real if value.kind == REAL else <double>value.number


cdef inline bint holds(int sign, bint less, bint equal) noexcept:
    if sign == EQUAL:
        return equal
    if sign == UNEQUAL or sign == UNEQUAL_TOO:
        return not equal
    if sign == LESS:
        return less
    if sign == LESS_EQUAL:
        return less or equal
    if sign == GREATER:
        return not less and not equal
    return not less


cdef inline bint real_holds(int sign, double one, double other) noexcept:
    """Of what is no number all are false, but that they are unequal."""
    if one == one and other == other:
        return holds(sign, one < other, one == other)
    return sign == UNEQUAL or sign == UNEQUAL_TOO


# LIKE: `values.Like`

cdef int like(const Found* one, const Found* pattern, Found* out) noexcept:
    """The parts between `%` are looked for one behind the other, each as early as it can be; the last one at the end."""
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* part = pattern.p
    cdef const uint8_t* last = pattern.p + pattern.size
    cdef const uint8_t* next_part
    cdef const uint8_t* found
    cdef bint first = True
    if one.kind == NOTHING:
        return unknown(out)
    if one.kind != TEXT:
        return truth(out, False)
    if one.size > LIKE_MAX:
        return UNSURE
    p = one.p
    end = one.p + one.size
    while True:
        next_part = end_of(part, last)
        if next_part == last:
            break
        found = fits(part, next_part, p, end)
        while found == NULL and not first and p < end:
            p = behind(p, end)
            found = fits(part, next_part, p, end)
        if found == NULL:
            return truth(out, False)
        p = found
        part = next_part + 1
        first = False
    if not first:               # as many characters as the last part has
        found = end
        while part < last and found != NULL:
            found = before(p, found)
            part += 1 + part[0]
        if found == NULL:
            return truth(out, False)
        p = found
        part = start_of(pattern.p, last)
    found = fits(part, last, p, end)
    return truth(out, found == end)


cdef const uint8_t* end_of(const uint8_t* part, const uint8_t* last) noexcept:
    """Where a part of a pattern ends."""
    while part < last and part[0] != 255:
        part += 1 + part[0]
    return part


cdef const uint8_t* start_of(const uint8_t* part, const uint8_t* last) noexcept:
    """Where the last part of a pattern begins."""
    cdef const uint8_t* next_part = end_of(part, last)
    while next_part < last:
        part = next_part + 1
        next_part = end_of(part, last)
    return part


cdef const uint8_t* behind(const uint8_t* p, const uint8_t* end) noexcept:
    """The next character of a text that is not at its end."""
    p += 1
    while p < end and p[0] & 0xC0 == 0x80:
        p += 1
    return p


cdef const uint8_t* before(const uint8_t* start, const uint8_t* p) noexcept:
    """The character in front of p; NULL: there is none."""
    if p <= start:
        return NULL
    p -= 1
    while p > start and p[0] & 0xC0 == 0x80:
        p -= 1
    return p


cdef const uint8_t* fits(const uint8_t* part, const uint8_t* part_end, const uint8_t* p, const uint8_t* end) noexcept:
    """Where what fits a part of a pattern ends; NULL: the text at p does not."""
    while part < part_end:
        if p >= end:
            return NULL
        if part[0] == 0:
            p = behind(p, end)
        else:
            if end - p < part[0] or memcmp(p, part + 1, part[0]) != 0:
                return NULL
            p += part[0]
        part += 1 + part[0]
    return p
