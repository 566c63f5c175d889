"""Properties blocks taken apart: where each property lies that is a column, nothing copied.

Knows the layouts of AMQP's content header (amqp091:4.2.6) and of MQTT's properties (mqtt5:2.2.2). Has no face
in Python: `_columns` calls it for each record whose columns want properties.
"""

from libc.stdint cimport int8_t, uint8_t, uint32_t

cdef inline uint32_t be32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline uint32_t be16(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 8) | p[1]


# amqp091:4.2.6, by bit of the flags, 15 first: the column of a short string; -1 headers, -2 octet, -3 timestamp,
# -4 a short string that is no column (expiration, which the record's ttl has, and cluster-id).
cdef int8_t[16] AMQP_FIELDS = [
    -5, -5, -4, APP_ID, USER_ID, TYPE, -3, MESSAGE_ID, -4, REPLY_TO, CORRELATION_ID, -2, -2, -1, CONTENT_ENCODING,
    CONTENT_TYPE,
]


cdef void read_amqp(const uint8_t* p, size_t n, Properties* found) noexcept nogil:
    # A malformed entry ends the walk: the front end refused such a block, so it can only be another writer's.
    cdef uint32_t flags
    cdef size_t at = 2, size
    cdef int bit, field, k
    if n < 2:
        return
    flags = be16(p)
    for bit in range(15, 1, -1):
        if not flags >> bit & 1:
            continue
        field = AMQP_FIELDS[bit]
        if field == -2:
            at += 1
        elif field == -3:
            if at + 8 > n:
                return
            found.timestamp = 0
            for k in range(8):
                found.timestamp = found.timestamp << 8 | p[at + k]
            at += 8
        elif field == -1:
            if at + 4 > n or be32(p + at) > n - at - 4:
                return
            size = be32(p + at)
            found.headers.p = p + at + 4
            found.headers.n = size
            at += 4 + size
        else:
            if at >= n or p[at] > n - at - 1:
                return
            if field >= 0:
                found.texts[field].p = p + at + 1
                found.texts[field].n = p[at]
            at += 1 + p[at]


cdef size_t mqtt_property(const uint8_t* p, size_t n, Slice* first, Slice* second) noexcept nogil:
    # Bytes of the property at p with its identifier, and where its text or its pair stands; 0 = malformed.
    cdef size_t size
    first.p = second.p = NULL
    first.n = second.n = 0
    if p[0] == 0x01:
        return 2 if n >= 2 else 0
    if p[0] == 0x02:
        return 5 if n >= 5 else 0
    if p[0] == 0x23:
        return 3 if n >= 3 else 0
    if p[0] == 0x0B:
        for size in range(1, min(n, <size_t>5)):
            if p[size] < 0x80:
                return size + 1
        return 0
    if n < 3 or 3 + be16(p + 1) > n:
        return 0
    first.p = p + 3
    first.n = be16(p + 1)
    if p[0] != 0x26:
        return 3 + first.n
    size = 3 + first.n
    if size + 2 > n or size + 2 + be16(p + size) > n:
        return 0
    second.p = p + size + 2
    second.n = be16(p + size)
    return size + 2 + second.n


cdef void read_mqtt(const uint8_t* p, size_t n, Properties* found) noexcept nogil:
    # mqtt5:3.3.2.3
    cdef size_t at = 0, size
    cdef Slice first, second
    found.headers.p = p
    found.headers.n = n
    while at < n:
        size = mqtt_property(p + at, n - at, &first, &second)
        if size == 0:
            return
        if p[at] == 0x03:
            found.texts[CONTENT_TYPE] = first
        elif p[at] == 0x08:
            found.texts[REPLY_TO] = first
        elif p[at] == 0x09:
            found.texts[CORRELATION_ID] = first
        elif p[at] == 0x26:
            found.pairs = True
        at += size


cdef const char* type_name(uint8_t octet) noexcept nogil:
    # amqp091:4.2.1 with RabbitMQ's errata for what the types of fields are called here.
    if octet == c"S": return b"string"
    if octet == c"t": return b"boolean"
    if octet == c"b": return b"int8"
    if octet == c"B": return b"uint8"
    if octet == c"s": return b"int16"
    if octet == c"u": return b"uint16"
    if octet == c"I": return b"int32"
    if octet == c"i": return b"uint32"
    if octet == c"l" or octet == c"L": return b"int64"
    if octet == c"f": return b"float"
    if octet == c"d": return b"double"
    if octet == c"D": return b"decimal"
    if octet == c"T": return b"timestamp"
    if octet == c"A": return b"array"
    if octet == c"F": return b"table"
    if octet == c"x": return b"bytes"
    if octet == c"V": return b"void"
    return NULL


cdef size_t value_size(uint8_t octet, const uint8_t* p, size_t n) noexcept nogil:
    # Bytes of a value, with the size in front of one that has it; more than n = malformed.
    if octet == c"S" or octet == c"x" or octet == c"A" or octet == c"F":
        return 4 + <size_t>be32(p) if n >= 4 else 4
    if octet == c"t" or octet == c"b" or octet == c"B":
        return 1
    if octet == c"s" or octet == c"u":
        return 2
    if octet == c"I" or octet == c"i" or octet == c"f":
        return 4
    if octet == c"D":
        return 5
    return 0 if octet == c"V" else 8
