"""Values of AMQP 1.0, read and written by kernels without a Python object.

A kernel handles what messages ordinarily have: scalars, and lists and maps, of few levels in a body. Everything else is -1 here, and
`_decoding.pyx` looks at it. So nothing may be found here that is an error there; the other way round costs time only.

Source: AMQP 1.0 part 1, sections 1.2 and 1.6.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from penstock.protocols.properties._tables cimport load32, load64

cdef enum:
    KEPT_MAX = 1048576              # bytes of a buffer that stay its own
    LEVELS_MAX = 4                  # of `read_value`
    ENTRIES_MAX = 64                # of a map: whether a key stands twice is looked up one by one


cdef bint is_ascii(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    cdef uint64_t eight
    while n >= 8:
        memcpy(&eight, p, 8)
        if eight & <uint64_t>0x8080808080808080:
            return False
        p += 8
        n -= 8
    while n:
        if p[0] > 127:
            return False
        p += 1
        n -= 1
    return True


cdef bint is_utf8(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    cdef const uint8_t* end = p + n
    cdef uint32_t char
    cdef int more, i
    if is_ascii(p, n):
        return True
    while p < end:
        if p[0] < 0x80:
            p += 1
            continue
        if p[0] < 0xC2 or p[0] > 0xF4:
            return False
        more = 1 if p[0] < 0xE0 else 2 if p[0] < 0xF0 else 3
        if end - p <= more:
            return False
        char = p[0] & (0x3F >> more)
        for i in range(more):
            if p[1 + i] & 0xC0 != 0x80:
                return False
            char = char << 6 | (p[1 + i] & 0x3F)
        if more == 2 and (char < 0x800 or 0xD800 <= char < 0xE000):
            return False
        if more == 3 and (char < 0x10000 or char > 0x10FFFF):
            return False
        p += 1 + more
    return True


cdef Py_ssize_t fixed_size(uint8_t code) noexcept nogil:
    """Bytes behind a constructor with a fixed size."""
    cdef uint8_t category = code >> 4
    if category == 4:
        return 0
    return <Py_ssize_t>1 << (category - 5)


cdef Py_ssize_t read_simple(const uint8_t* p, Py_ssize_t n, Simple* out) noexcept nogil:
    cdef uint8_t code
    cdef Py_ssize_t head = 1
    if n < 1:
        return -1
    code = out.code = p[0]
    if code < 0xA0:
        if not (
            0x40 <= code <= 0x44 or 0x50 <= code <= 0x56 or 0x60 <= code <= 0x61 or 0x70 <= code <= 0x72
            or 0x80 <= code <= 0x83 or code == 0x98
        ):
            return -1
        out.size = fixed_size(code)
    elif code < 0xB0:
        if n < 2:
            return -1
        head = 2
        out.size = p[1]
    elif code < 0xC0:
        if n < 5:
            return -1
        head = 5
        out.size = load32(p + 1)
    else:
        return -1
    if out.size > n - head:
        return -1
    out.p = p + head
    if code == 0x56:
        if out.p[0] > 1:
            return -1
    elif code >= 0xA0:
        if code & 0x0F == 1:
            if not is_utf8(out.p, out.size):
                return -1
        elif code & 0x0F == 3:
            if not is_ascii(out.p, out.size):
                return -1
        elif code & 0x0F != 0:
            return -1
    return head + out.size


cdef Py_ssize_t read_compound(const uint8_t* p, Py_ssize_t n, bint is_map, Compound* out) noexcept nogil:
    cdef Py_ssize_t size, width
    if n < 1:
        return -1
    if p[0] == 0x45 and not is_map:
        out.p = out.end = p + 1
        out.count = 0
        out.shortest = True
        return 1
    if p[0] == 0xC0 + is_map:
        width = 1
    elif p[0] == 0xD0 + is_map:
        width = 4
    else:
        return -1
    if n < 1 + 2 * width:
        return -1
    size = p[1] if width == 1 else <Py_ssize_t>load32(p + 1)
    if size < width or size > n - 1 - width:
        return -1
    out.count = p[2] if width == 1 else load32(p + 5)
    out.p = p + 1 + 2 * width
    out.end = p + 1 + width + size
    # Each item has its constructor at least.
    if out.count > out.end - out.p or (is_map and out.count & 1):
        return -1
    out.shortest = (width == 1) == (out.count < 256 and out.end - out.p < 255) and (is_map or out.count > 0)
    return 1 + width + size


cdef Py_ssize_t read_value(const uint8_t* p, Py_ssize_t n, int level, int* left) noexcept nogil:
    cdef Simple value
    cdef Simple keys[ENTRIES_MAX]
    cdef Compound items
    cdef bint is_map
    cdef uint32_t i, k
    cdef Py_ssize_t size = read_simple(p, n, &value), whole
    left[0] -= 1
    if size >= 0 or left[0] < 0 or level == LEVELS_MAX:
        return size if left[0] >= 0 else -1
    is_map = n > 0 and p[0] & 1 and p[0] != 0x45
    whole = read_compound(p, n, is_map, &items)
    if whole < 0 or (is_map and items.count > 2 * ENTRIES_MAX):
        return -1
    p = items.p
    for i in range(items.count):
        if is_map and not i & 1:
            size = read_simple(p, items.end - p, &keys[i // 2])
            if size < 0 or not (is_text(&keys[i // 2]) or is_symbol(&keys[i // 2])):
                return -1
            for k in range(i // 2):
                if keys[k].size == keys[i // 2].size and memcmp(keys[k].p, keys[i // 2].p, keys[k].size) == 0:
                    return -1
            left[0] -= 1
        else:
            size = read_value(p, items.end - p, level + 1, left)
            if size < 0:
                return -1
        p += size
    return whole if p == items.end else -1


cdef Py_ssize_t extent(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t at = 0, size
    cdef uint8_t category
    cdef int values = 1             # that are still to come: a descriptor and what it describes are two
    while values:
        if n - at < 1:
            return -1
        values -= 1
        category = p[at] >> 4
        if p[at] == 0:
            if values > 8:
                return -1
            values += 2
            size = 0
        elif category < 4:
            return -1
        elif category < 0xA:
            size = fixed_size(p[at])
        elif category & 1 == 0:
            if n - at < 2:
                return -1
            size = 1 + p[at + 1]
        else:
            if n - at < 5:
                return -1
            size = 4 + <Py_ssize_t>load32(p + at + 1)
        if size > n - at - 1:
            return -1
        at += 1 + size
    return at


def section_places(bytes payload not None):
    cdef const uint8_t* p = <const uint8_t*><const char*>payload
    cdef Py_ssize_t n = len(payload), at = 0, size
    cdef dict places = {}
    while at < n:
        if n - at < 4 or p[at] != 0 or p[at + 1] != 0x53:
            return None
        size = extent(p + at + 3, n - at - 3)
        if size < 0:
            return None
        places.setdefault(p[at + 2], at + 3)
        at += 3 + size
    return places


cdef bint is_shortest(const Simple* value) noexcept nogil:
    cdef uint8_t code = value.code
    if code >= 0xA0:
        return (code < 0xB0) == (value.size < 256)
    if code == 0x56:
        return False
    if code == 0x52 or code == 0x53:
        return value.p[0] != 0
    if code == 0x70:
        return load32(value.p) > 255
    if code == 0x80:
        return load64(value.p) > 255
    if code == 0x71:
        return not -128 <= <int32_t>load32(value.p) < 128
    if code == 0x81:
        return not -128 <= <int64_t>load64(value.p) < 128
    return True


cdef int grow(Buffer* buffer, Py_ssize_t n) except -1:
    cdef Py_ssize_t capacity = max(2 * buffer.capacity, <Py_ssize_t>256)
    cdef uint8_t* grown
    if capacity < buffer.size + n:
        capacity = buffer.size + n
    grown = <uint8_t*>realloc(buffer.p, capacity)
    if grown == NULL:
        raise MemoryError
    buffer.p = grown
    buffer.capacity = capacity
    return 0


cdef void clear(Buffer* buffer) noexcept:
    buffer.size = 0
    if buffer.capacity > KEPT_MAX:
        free(buffer.p)
        buffer.p = NULL
        buffer.capacity = 0
