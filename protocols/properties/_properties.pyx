"""The properties block of a content header, from its flags on: walked, checked, and what the broker needs of it.

    flags u16, highest bit first             | then the present ones in this order
    15 content-type      s   14 content-encoding s   13 headers     t   12 delivery-mode o   11 priority   o
    10 correlation-id    s    9 reply-to         s    8 expiration  s    7 message-id    s    6 timestamp  L
     5 type              s    4 user-id          s    3 app-id      s    2 cluster-id    s    1, 0 must be 0

Linear; every size is checked against what is there. The block is stored as it came, so what is accepted here goes to
consumers: bit 0 (a second word of flags, which basic does not have) and bit 1 are refused.

Source: AMQP 0-9-1 section 4.2.6 and class basic.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from penstock.protocols.properties._tables cimport load16, load32, table_size

cdef enum:
    HEADERS = 13
    DELIVERY_MODE = 12
    PRIORITY = 11
    REPLY_TO = 9
    EXPIRATION = 8
    TIMESTAMP = 6
    USER_ID = 4


cdef bint has_words(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """Whether the checked table of n bytes at p has a key for Python: CC, BCC, or one of ours."""
    cdef Py_ssize_t at = 4, size
    cdef const uint8_t* key
    while at < n:
        size = p[at]
        key = p + at + 1
        if (size == 2 and key[0] == c'C' and key[1] == c'C') or (
            size == 3 and key[0] == c'B' and key[1] == c'C' and key[2] == c'C'
        ) or (size > 11 and key[2] == c'p' and memcmp(key, b"x-penstock-", 11) == 0
              ) or (size == 13 and key[2] == c'm' and memcmp(key, b"x-mqtt-retain", 13) == 0):
            return True
        at += 1 + size
        at += 1 + checked_size(p[at], p + at + 1, n - at - 1)
    return False


cdef Py_ssize_t checked_size(uint8_t kind, const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """Bytes of a value in a table that was found well-formed."""
    if kind == c'S' or kind == c'x' or kind == c'F' or kind == c'A':
        return 4 + <Py_ssize_t>load32(p)
    if kind == c't' or kind == c'b' or kind == c'B':
        return 1
    if kind == c's' or kind == c'u':
        return 2
    if kind == c'I' or kind == c'i' or kind == c'f':
        return 4
    if kind == c'D':
        return 5
    if kind == c'V':
        return 0
    return 8


cdef bint read_ttl(const uint8_t* p, Py_ssize_t n, uint32_t* ttl) noexcept nogil:
    """Whether the n bytes at p are a plain decimal number of milliseconds below 2**32."""
    cdef uint64_t value = 0
    cdef Py_ssize_t i
    if n == 0 or n > 10:
        return False
    for i in range(n):
        if p[i] < c'0' or p[i] > c'9':
            return False
        value = value * 10 + (p[i] - c'0')
    if value >> 32:
        return False
    # 0 in a record means "never expires"; a message that may not wait at all gets the shortest time there is.
    ttl[0] = <uint32_t>value if value else 1
    return True


cdef int read_properties(const uint8_t* p, Py_ssize_t n, Properties* out) noexcept nogil:
    cdef uint16_t flags
    cdef Py_ssize_t at = 2, size
    cdef int bit
    out.ttl = 0
    out.delivery_mode = out.priority = out.user_id_size = 0
    out.special = False
    out.user_id = NULL
    if n < 2:
        return -1
    flags = load16(p)
    if flags & 3:
        return -1
    for bit in range(15, 1, -1):
        if not (flags >> bit) & 1:
            continue
        if bit == HEADERS:
            size = table_size(p + at, n - at, 1)
            if size < 0:
                return -1
            if has_words(p + at, size):
                out.special = True
        elif bit == DELIVERY_MODE or bit == PRIORITY:
            size = 1
            if at + size > n:
                return -1
            if bit == PRIORITY:
                out.priority = p[at]
            else:
                out.delivery_mode = p[at]
        elif bit == TIMESTAMP:
            size = 8
        else:
            if at >= n:
                return -1
            size = 1 + p[at]
            if at + size > n:
                return -1
            if bit == EXPIRATION:
                if not read_ttl(p + at + 1, size - 1, &out.ttl):
                    out.special = True
            elif bit == USER_ID:
                out.user_id = p + at + 1
                out.user_id_size = p[at]
            elif bit == REPLY_TO and size >= 22 and memcmp(p + at + 1, b"amq.rabbitmq.reply-to", 21) == 0:
                out.special = True
        at += size
        if at > n:
            return -1
    return 0 if at == n else -1


def parse(bytes block not None):
    """(delivery mode, priority, ttl, user id or None, special), or None when malformed; for tests."""
    cdef Properties found
    if read_properties(<const uint8_t*><const char*>block, len(block), &found) < 0:
        return None
    user_id = None
    if found.user_id != NULL:
        user_id = found.user_id[:found.user_id_size]
    return found.delivery_mode, found.priority, found.ttl, user_id, bool(found.special)
