"""`translate.amqp10_from_stored` for ordinary records: from the record's bytes to the sections, no object between.

Ordinary are the properties that 0-9-1 and 1.0 have in common, headers of up to `NESTED_MAX` levels, such as those of dead
letters, and the sections that `_storing.pyx` kept. Those go out as they are; of the annotations only the broker's own are
added. `deliverable` says False for everything else. Its sections have the values that the Python function gives:
tests/property/test_amqp10_kernels.py compares them.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from penstock.protocols.amqp10.codec._simple cimport (
    Buffer, Compound, Simple, clear, extent, is_ascii, is_binary, is_symbol, is_text, is_utf8, put, put_byte, put_compound, put_sized,
    put_u32, put_u64, read_compound, read_simple, read_value, reserve, write_uint, is_list, VALUES_MAX,
)
from penstock.protocols.properties._tables cimport load16, load32, load64, store32, table_size

cdef enum:
    ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    SEQUENCE = 0x76
    VALUE = 0x77
    FOOTER = 0x78
    ENTRIES_MAX = 64
    NESTED_MAX = 4
    # properties of 0-9-1, by their bit
    CONTENT_TYPE = 15
    CONTENT_ENCODING = 14
    HEADERS = 13
    DELIVERY_MODE = 12
    PRIORITY = 11
    CORRELATION_ID = 10
    REPLY_TO = 9
    EXPIRATION = 8
    MESSAGE_ID = 7
    TIMESTAMP = 6
    TYPE = 5
    USER_ID = 4
    APP_ID = 3
    CLUSTER_ID = 2
    SECONDS_MAX = 9007199254740992      # 2^53


cdef struct Span:
    const uint8_t* p                # NULL: it is not there
    Py_ssize_t size


cdef struct Kept:                   # the sections that a record keeps
    Span annotations                # its entries
    uint32_t annotation_count       # of keys and values
    Span properties, application, footer


cdef Buffer head                    # of the last payload
cdef Buffer annotations             # entries, and how many keys and values these are
cdef uint32_t annotation_count
cdef Buffer application
cdef uint32_t application_count
cdef Buffer fields
cdef Buffer extra                   # of one section, or one address


cdef bint deliverable(const uint8_t* key, Py_ssize_t key_size, const uint8_t* props, Py_ssize_t props_size,
                      const uint8_t* body, Py_ssize_t body_size, bint sections, const Told* told, Payload* out) except -1:
    global annotation_count, application_count
    cdef Span found[16]
    cdef Kept kept
    cdef Span whole
    cdef bint raw_body = False
    memset(&kept, 0, sizeof(kept))
    annotation_count = application_count = 0
    clear(&head)
    clear(&annotations)
    clear(&application)
    clear(&fields)
    clear(&extra)
    if not read_block(props, props_size, found):
        return False
    whole.p = NULL
    if not read_headers(&found[HEADERS], sections, told, &whole):
        return False
    if found[TYPE].p != NULL and found[TYPE].size == 8 and memcmp(found[TYPE].p, b"amqp-1.0", 8) == 0:
        if not is_body(body, body_size):
            return False
        raw_body = True
    if whole.p != NULL:
        if not read_kept(whole.p, whole.size, &kept, told):
            return False
        annotation_count += kept.annotation_count       # the broker's own stand in `annotations`
    if not put_header(found, told):
        return False
    if whole.p == NULL:
        if not put_basic(found, raw_body):
            return False
        put(&fields, annotations.p, annotations.size)       # behind the two of put_basic
        if not put_annotations(fields.p, fields.size, key, key_size, told):
            return False
        fields.size = 0
        if not put_properties(found):
            return False
        if application_count:
            put(&head, b"\x00\x53\x74", 3)
            put_compound(&head, 0xC1, application_count, application.p, application.size)
    else:
        if annotations.size:
            put(&fields, kept.annotations.p, kept.annotations.size)
            put(&fields, annotations.p, annotations.size)
            kept.annotations.p = fields.p
            kept.annotations.size = fields.size
        if not put_annotations(kept.annotations.p, kept.annotations.size, key, key_size, told):
            return False
        if kept.properties.p != NULL:
            put(&head, kept.properties.p, kept.properties.size)
        if kept.application.p != NULL:
            put(&head, kept.application.p, kept.application.size)
    if not raw_body:
        put(&head, b"\x00\x53\x75", 3)
        if body_size < 256:
            put_byte(&head, 0xA0)
            put_byte(&head, <uint8_t>body_size)
        else:
            put_byte(&head, 0xB0)
            put_u32(&head, <uint32_t>body_size)
    out.head = head.p
    out.head_size = head.size
    out.body = body
    out.body_size = body_size
    out.foot = NULL
    out.foot_size = 0
    if whole.p != NULL and kept.footer.p != NULL:
        out.foot = kept.footer.p
        out.foot_size = kept.footer.size
    return True


cdef bint read_block(const uint8_t* p, Py_ssize_t n, Span* found) noexcept:
    """Where the properties are, each without its length. Headers have theirs."""
    cdef uint16_t flags
    cdef Py_ssize_t at = 2, size
    cdef int bit
    for bit in range(16):
        found[bit].p = NULL
    if n < 2:
        return False
    flags = load16(p)
    if flags & 3:
        return False
    for bit in range(15, 1, -1):
        if not flags >> bit & 1:
            continue
        if bit == HEADERS:
            size = table_size(p + at, n - at, 1)
            if size < 0:
                return False
        elif bit == DELIVERY_MODE or bit == PRIORITY:
            size = 1
        elif bit == TIMESTAMP:
            size = 8
        else:
            if at >= n:
                return False
            size = p[at]
            at += 1
        if size > n - at:
            return False
        found[bit].p = p + at
        found[bit].size = size
        at += size
    return at == n


cdef bint begins(const uint8_t* p, Py_ssize_t n, const char* with_, Py_ssize_t size) noexcept:
    return n >= size and memcmp(p, with_, size) == 0


cdef bint is_own(const uint8_t* p, Py_ssize_t n) noexcept:
    """Whether it is an annotation that the broker gives: `translate._OWN`."""
    return (
        begins(p, n, b"x-death", 7) or begins(p, n, b"x-first-death-", 14) or begins(p, n, b"x-last-death-", 13)
        or is_count(p, n)
    )


cdef bint is_count(const uint8_t* p, Py_ssize_t n) noexcept:
    return begins(p, n, b"x-delivery-count", 16) or begins(p, n, b"x-acquired-count", 16)


cdef bint is_given(const uint8_t* p, Py_ssize_t n, const Told* told) noexcept:
    """Whether it is an annotation that this delivery is given."""
    return (
        (n == 10 and memcmp(p, b"x-exchange", 10) == 0) or (n == 13 and memcmp(p, b"x-routing-key", 13) == 0)
        or (told.offset >= 0 and n == 15 and memcmp(p, b"x-stream-offset", 15) == 0) or (told.counts and is_count(p, n))
    )


cdef bint read_headers(const Span* table, bint sections, const Told* told, Span* kept) except -1:
    """The headers as annotations and application properties, or, with `sections`, where these are kept."""
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* name
    cdef Span names[ENTRIES_MAX]
    cdef Py_ssize_t n, count = 0, i
    cdef bint is_annotation
    if table.p == NULL:
        return True
    p = table.p + 4
    end = table.p + table.size
    while p < end:
        n = p[0]
        name = p + 1
        p += 1 + n                      # a type and its value follow: the table is well-formed
        if n == 17 and memcmp(name, b"x-amqp10-sections", 17) == 0:
            if not sections or kept.p != NULL or p[0] != c'x':
                return False
            kept.size = load32(p + 1)
            kept.p = p + 5
            p += 5 + kept.size
            continue
        if count == ENTRIES_MAX:
            return False
        for i in range(count):
            if names[i].size == n and memcmp(names[i].p, name, n) == 0:
                return False
        names[count].p = name
        names[count].size = n
        count += 1
        is_annotation = begins(name, n, b"x-", 2)
        if not is_own(name, n) if sections else (not is_annotation and is_nested(p)):
            i = field_size(p)           # it stands in the sections, or 1.0 has no words for it
            if i < 0:
                return False
            p += i
            continue
        if is_given(name, n, told) or (n == 2 and memcmp(name, b"CC", 2) == 0) or (n == 3 and memcmp(name, b"BCC", 3) == 0):
            return False
        if is_annotation:
            if begins(name, n, b"x-basic-", 8) or not is_ascii(name, n):
                return False
            put_sized(&annotations, 0xA3, name, n)
            i = put_value(&annotations, p, 0)
        else:
            if not is_utf8(name, n):
                return False
            put_sized(&application, 0xA1, name, n)
            i = put_value(&application, p, 0)
        if i < 0:
            return False
        count_entry(is_annotation)
        p += i
    return not sections or kept.p != NULL


cdef void count_entry(bint is_annotation) noexcept:
    global annotation_count, application_count
    if is_annotation:
        annotation_count += 2
    else:
        application_count += 2


cdef Py_ssize_t field_size(const uint8_t* p) noexcept:
    """Bytes of a field of a well-formed table, its letter included; -1: an odd one."""
    cdef uint8_t kind = p[0]
    if kind == c'S' or kind == c'x' or is_nested(p):
        return 5 + <Py_ssize_t>load32(p + 1)
    if kind == c't' or kind == c'b' or kind == c'B':
        return 2
    if kind == c's' or kind == c'u':
        return 3
    if kind == c'I' or kind == c'i' or kind == c'f':
        return 5
    if kind == c'l' or kind == c'd' or kind == c'T':
        return 9
    if kind == c'V':
        return 1
    return -1


cdef inline bint is_nested(const uint8_t* p) noexcept:
    """Whether a field is a list or a table."""
    return p[0] == c'A' or p[0] == c'F'


cdef Py_ssize_t put_nested(Buffer* to, const uint8_t* p, int depth) except -2:
    """A list or a table as a list or a map; as `put_value`."""
    cdef Span names[ENTRIES_MAX]
    cdef bint is_table = p[0] == c'F'
    cdef const uint8_t* end = p + field_size(p)
    cdef const uint8_t* start = p
    cdef Py_ssize_t at = to.size, n, i
    cdef uint32_t count = 0
    if depth == NESTED_MAX:
        return -1
    put_byte(to, 0xD1 if is_table else 0xD0)
    put_u32(to, 0)
    put_u32(to, 0)
    p += 5
    while p < end:
        if count == ENTRIES_MAX:
            return -1
        if is_table:
            n = p[0]
            names[count].p = p + 1
            names[count].size = n
            for i in range(count):
                if names[i].size == n and memcmp(names[i].p, p + 1, n) == 0:
                    return -1
            if not is_utf8(p + 1, n):
                return -1
            put_sized(to, 0xA1, p + 1, n)
            p += 1 + n
        n = put_value(to, p, depth + 1)
        if n < 0:
            return -1
        p += n
        count += 1
    store32(to.p + at + 1, <uint32_t>(to.size - at - 5))
    store32(to.p + at + 5, 2 * count if is_table else count)
    return end - start


cdef Py_ssize_t put_value(Buffer* to, const uint8_t* p, int depth) except -2:
    """A field of a table as a value: `tables.from_field`. Bytes of the field; -1: it is no ordinary one."""
    cdef uint8_t kind = p[0]
    cdef Py_ssize_t size = field_size(p)
    cdef uint64_t bits
    cdef uint32_t bits32
    cdef float single
    cdef double double_
    cdef uint8_t* out
    if size < 0:
        return -1
    if is_nested(p):
        return put_nested(to, p, depth)
    p += 1
    if kind == c'S':
        if not is_utf8(p + 4, size - 5):
            return -1
        put_sized(to, 0xA1, p + 4, size - 5)
    elif kind == c'x':
        put_sized(to, 0xA0, p + 4, size - 5)
    elif kind == c't':
        put_byte(to, 0x41 if p[0] else 0x42)
    elif kind == c'b' or kind == c'B':
        put_byte(to, 0x51 if kind == c'b' else 0x50)
        put_byte(to, p[0])
    elif kind == c's' or kind == c'u':
        put_byte(to, 0x61 if kind == c's' else 0x60)
        put(to, p, 2)
    elif kind == c'I':
        bits32 = load32(p)
        if -128 <= <int>bits32 < 128:
            put_byte(to, 0x54)
            put_byte(to, p[3])
        else:
            put_byte(to, 0x71)
            put(to, p, 4)
    elif kind == c'i':
        out = reserve(to, 5)
        to.size += write_uint(out, load32(p)) - out
    elif kind == c'l':
        bits = load64(p)
        if -128 <= <int64_t>bits < 128:
            put_byte(to, 0x55)
            put_byte(to, p[7])
        else:
            put_byte(to, 0x81)
            put(to, p, 8)
    elif kind == c'f':
        bits32 = load32(p)
        memcpy(&single, &bits32, 4)
        double_ = single
        memcpy(&bits, &double_, 8)
        put_byte(to, 0x82)
        put_u64(to, bits)
    elif kind == c'd':
        put_byte(to, 0x82)
        put(to, p, 8)
    elif kind == c'T':
        put_byte(to, 0x83)
        put_u64(to, min(load64(p), <uint64_t>SECONDS_MAX) * 1000)
    else:
        put_byte(to, 0x40)
    return size


cdef bint is_body(const uint8_t* p, Py_ssize_t n) noexcept:
    """Whether it is data sections, sequences, or one value, as `_storing.pyx` takes them."""
    cdef Simple value
    cdef Py_ssize_t size
    cdef uint8_t code, last = 0
    cdef int left
    if n == 0:
        return False
    while n:
        if n < 4 or p[0] != 0 or p[1] != 0x53:
            return False
        code = p[2]
        if code < DATA or code > VALUE or (last and (code != last or code == VALUE)):
            return False
        left = VALUES_MAX
        size = read_value(p + 3, n - 3, 0, &left)
        if size < 0 or (code == SEQUENCE and not is_list(p + 3, n - 3)):
            return False
        if code == DATA and (read_simple(p + 3, n - 3, &value) < 0 or not is_binary(&value)):
            return False
        p += 3 + size
        n -= 3 + size
        last = code
    return True


cdef bint read_kept(const uint8_t* p, Py_ssize_t n, Kept* kept, const Told* told) noexcept:
    """The sections of the header x-amqp10-sections, which `store` or its twin in Python wrote."""
    cdef Compound entries
    cdef Simple name
    cdef const uint8_t* entry
    cdef Py_ssize_t size, name_size
    cdef uint8_t code, last = 0
    while n:
        if n < 4 or p[0] != 0 or p[1] != 0x53:
            return False
        code = p[2]
        if code <= last:
            return False
        size = extent(p, n)
        if size < 0:
            return False
        if code == ANNOTATIONS:
            if read_compound(p + 3, n - 3, True, &entries) != size - 3:
                return False
            kept.annotations.p = entries.p
            kept.annotations.size = entries.end - entries.p
            kept.annotation_count = entries.count
            entry = entries.p
            while entry < entries.end:
                name_size = read_simple(entry, entries.end - entry, &name)
                if name_size < 0 or not (is_symbol(&name) or is_text(&name)):
                    return False
                if is_given(name.p, name.size, told) or is_own(name.p, name.size):
                    return False
                entry += name_size
                name_size = extent(entry, entries.end - entry)
                if name_size < 0:
                    return False
                entry += name_size
        elif code == PROPERTIES:
            kept.properties.p = p
            kept.properties.size = size
        elif code == APPLICATION_PROPERTIES:
            kept.application.p = p
            kept.application.size = size
        elif code == FOOTER:
            kept.footer.p = p
            kept.footer.size = size
        else:
            return False
        p += size
        n -= size
        last = code
    return True


cdef bint put_header(const Span* found, const Told* told) except -1:
    cdef uint8_t* p
    cdef uint8_t* start
    if found[EXPIRATION].p != NULL and told.ttl_left < 0:
        return False
    start = reserve(&head, 24)
    memcpy(start, b"\x00\x53\x70\xc0\x00\x05", 6)
    p = start + 6
    p[0] = 0x41 if found[DELIVERY_MODE].p != NULL and found[DELIVERY_MODE].p[0] == 2 else 0x42
    p += 1
    if found[PRIORITY].p == NULL:
        p[0] = 0x40
        p += 1
    else:
        p[0] = 0x50
        p[1] = found[PRIORITY].p[0]
        p += 2
    if told.ttl_left < 0:
        p[0] = 0x40
        p += 1
    else:
        p = write_uint(p, <uint32_t>min(told.ttl_left, <int64_t>0xFFFFFFFF))
    p[0] = 0x42 if told.acquired else 0x41
    p = write_uint(p + 1, told.count)
    start[4] = <uint8_t>(p - start - 5)
    head.size += p - start
    return True


cdef bint put_basic(const Span* found, bint raw_body) except -1:
    """The annotations for type and cluster-id, into `fields`."""
    global annotation_count
    if found[TYPE].p != NULL and not raw_body:
        if not is_utf8(found[TYPE].p, found[TYPE].size):
            return False
        put_sized(&fields, 0xA3, b"x-basic-type", 12)
        put_sized(&fields, 0xA1, found[TYPE].p, found[TYPE].size)
        annotation_count += 2
    if found[CLUSTER_ID].p != NULL:
        if not is_utf8(found[CLUSTER_ID].p, found[CLUSTER_ID].size):
            return False
        put_sized(&fields, 0xA3, b"x-basic-cluster-id", 18)
        put_sized(&fields, 0xA1, found[CLUSTER_ID].p, found[CLUSTER_ID].size)
        annotation_count += 2
    return True


cdef int put_long(Buffer* to, int64_t value) except -1:
    if -128 <= value < 128:
        put_byte(to, 0x55)
        put_byte(to, <uint8_t>value)
    else:
        put_byte(to, 0x81)
        put_u64(to, <uint64_t>value)
    return 0


cdef bint put_annotations(
    const uint8_t* entries, Py_ssize_t size, const uint8_t* key, Py_ssize_t key_size, const Told* told
) except -1:
    """The section: `entries`, and those that this delivery is given. `annotation_count` tells of `entries`."""
    cdef int64_t offset = told.offset
    cdef const uint8_t* routing = NULL
    cdef Py_ssize_t n
    cdef uint32_t count = annotation_count + 4
    if key_size < 2 or key_size < 2 + key[0] or key_size != 2 + key[0] + key[1 + key[0]]:
        return False
    routing = key + 1 + key[0]
    if not is_utf8(key + 1, key[0]) or not is_utf8(routing + 1, routing[0]):
        return False
    extra.size = 0
    if told.counts:
        count += 4
        put_sized(&extra, 0xA3, b"x-delivery-count", 16)
        put_long(&extra, told.count)
        put_sized(&extra, 0xA3, b"x-acquired-count", 16)
        put_long(&extra, told.acquired)
    if offset >= 0:
        count += 2
        put_sized(&extra, 0xA3, b"x-stream-offset", 15)
        put_long(&extra, offset)
    put_sized(&extra, 0xA3, b"x-exchange", 10)
    put_sized(&extra, 0xA1, key + 1, key[0])
    put_sized(&extra, 0xA3, b"x-routing-key", 13)
    put_sized(&extra, 0xA1, routing + 1, routing[0])
    n = size + extra.size
    put(&head, b"\x00\x53\x72", 3)
    if count < 256 and n < 255:
        put_byte(&head, 0xC1)
        put_byte(&head, <uint8_t>(n + 1))
        put_byte(&head, <uint8_t>count)
    else:
        put_byte(&head, 0xD1)
        put_u32(&head, <uint32_t>(n + 4))
        put_u32(&head, count)
    put(&head, entries, size)
    put(&head, extra.p, extra.size)
    return True


cdef bint put_properties(const Span* found) except -1:
    """The section of the fields that are there, without the nulls at its end."""
    cdef int order[13]
    cdef uint8_t codes[13]
    cdef int i, last = -1, bit
    order[:] = [MESSAGE_ID, USER_ID, -1, -1, REPLY_TO, CORRELATION_ID, CONTENT_TYPE, CONTENT_ENCODING, -1, TIMESTAMP, APP_ID, -1, -1]
    codes[:] = [0xA1, 0xA0, 0, 0, 0xA1, 0xA1, 0xA3, 0xA3, 0, 0x83, 0xA1, 0, 0]
    for i in range(13):
        if order[i] >= 0 and found[order[i]].p != NULL:
            last = i
    if last < 0:
        return True
    for i in range(last + 1):
        bit = order[i]
        if bit < 0 or found[bit].p == NULL:
            put_byte(&fields, 0x40)
        elif bit == TIMESTAMP:
            put_byte(&fields, 0x83)
            put_u64(&fields, min(load64(found[bit].p), <uint64_t>SECONDS_MAX) * 1000)
        elif bit == REPLY_TO:
            if not put_reply_to(found[bit].p, found[bit].size):
                return False
        else:
            if codes[i] == 0xA3:
                if not is_ascii(found[bit].p, found[bit].size):
                    return False
            elif codes[i] == 0xA1 and not is_utf8(found[bit].p, found[bit].size):
                return False
            put_sized(&fields, codes[i], found[bit].p, found[bit].size)
    put(&head, b"\x00\x53\x73", 3)
    put_compound(&head, 0xC0, last + 1, fields.p, fields.size)
    return True


cdef bint put_reply_to(const uint8_t* p, Py_ssize_t n) except -1:
    """The address of a queue; names with other characters than these are encoded in Python."""
    cdef Py_ssize_t i
    cdef uint8_t c
    if n and p[0] == c'/':
        if begins(p, n, b"/topic/", 7) or not is_utf8(p, n):
            return False
        put_sized(&fields, 0xA1, p, n)
        return True
    for i in range(n):
        c = p[i]
        if not (c'a' <= c <= c'z' or c'A' <= c <= c'Z' or c'0' <= c <= c'9' or c == c'_' or c == c'.' or c == c'-' or c == c'~'):
            return False
    extra.size = 0
    put(&extra, b"/queues/", 8)
    put(&extra, p, n)
    put_sized(&fields, 0xA1, extra.p, extra.size)
    return True


def delivered(bytes key not None, bytes block not None, bytes body not None, *, bint sections=False, uint32_t delivery_count=0,
              acquired=None, bint counts=False, ttl_ms=None, offset=None):
    cdef Told told
    cdef Payload payload
    told.count = delivery_count
    told.acquired = delivery_count if acquired is None else acquired
    told.counts = counts
    told.ttl_left = -1 if ttl_ms is None else ttl_ms
    told.offset = -1 if offset is None else offset
    if not deliverable(<const uint8_t*><const char*>key, len(key), <const uint8_t*><const char*>block, len(block),
                       <const uint8_t*><const char*>body, len(body), sections, &told, &payload):
        return None
    return (
        payload.head[:payload.head_size] + payload.body[:payload.body_size]
        + (b"" if payload.foot == NULL else payload.foot[:payload.foot_size])
    )
