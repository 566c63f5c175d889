"""`translate.stored_from_amqp10` for ordinary messages: from the bytes of a read to the record's bytes, no object between.

Ordinary is what clients send as a rule: scalars in properties, application properties and annotations, a body of data, of
sequences, or of one value, with lists and maps of a few levels. `store` says False for everything else, for all that is not well-formed, and for what somebody has to
decide about (delays by name, types of 0-9-1 in annotations). For what it takes, the result is that of the Python function to
the byte: tests/property/test_amqp10_kernels.py compares them.

Whether the sections would come back as they are (`translate._views`) is not found by translating back, but while they are
read: each value, and each of the sections, has to have the encoding and the type that it would come back with.
"""

from libc.stdint cimport int8_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from penstock.protocols.amqp10.codec._simple cimport (
    Buffer, Compound, Simple, clear, is_binary, is_false, is_null, is_shortest, is_symbol, is_text, is_true, is_uint, is_utf8,
    is_list, number, put, put_byte, put_u32, put_u64, read_compound, read_simple, read_value, reserve, VALUES_MAX,
)
from penstock.protocols.properties._tables cimport load32, load64, store16

cdef enum:
    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    SEQUENCE = 0x76
    VALUE = 0x77
    FOOTER = 0x78
    # of the properties section
    MESSAGE_ID = 0
    USER_ID = 1
    TO = 2
    SUBJECT = 3
    REPLY_TO = 4
    CORRELATION_ID = 5
    CONTENT_TYPE = 6
    CONTENT_ENCODING = 7
    ABSOLUTE_EXPIRY_TIME = 8
    CREATION_TIME = 9
    GROUP_ID = 10
    FIELDS = 13
    HEAD_MAX = 4096             # bytes in front of a body that are kept
    ENTRIES_MAX = 64            # of a map: whether a key stands twice is looked up one by one
    SHORT_MAX = 255

cdef extern from *:
    """
    #define TTL_MAX 4294967294u
    #define TIMESTAMP_MAX 9007199254740992000LL         /* 2^53 seconds in ms */
    #define LONG_MAX_ 9223372036854775807ull
    """
    uint32_t TTL_MAX
    int64_t TIMESTAMP_MAX
    uint64_t LONG_MAX_


cdef struct Text:                   # a field of the block
    const uint8_t* p                # NULL: there is none
    Py_ssize_t size


cdef struct Parts:                  # of a message that is being read
    bint durable, has_priority, has_ttl
    uint8_t priority
    uint32_t ttl
    Text fields[FIELDS]
    bint has_created
    uint64_t created                # s
    bint maybe_topic
    bint timed
    int64_t time, delay             # ms
    bint unknown                    # it has a field that 0-9-1 has no word for
    bint same                       # all kept sections would come back as they are


cdef Buffer block                   # of the last message
cdef Buffer last_head               # its bytes in front of its body, if that is one data section, and the last section
cdef Stored last_stored             # what became of it; `user` and `to` lie in `last_head`
cdef Buffer headers                 # entries of its table
cdef uint8_t digits[FIELDS][40]     # ids that were no text


cdef bint store(const uint8_t* p, Py_ssize_t n, Stored* out) except -1:
    return store_again(p, n, out) or store_anew(p, n, out)


cdef bint store_again(const uint8_t* p, Py_ssize_t n, Stored* out) noexcept:
    """Whether a message has the sections of the last one in front of its body; then all else is as it was."""
    cdef Simple data
    cdef Py_ssize_t at = last_head.size
    if at == 0 or n < at + 3 or memcmp(p, last_head.p, at) != 0 or p[at] != 0 or p[at + 1] != 0x53 or p[at + 2] != DATA:
        return False
    if read_simple(p + at + 3, n - at - 3, &data) != n - at - 3 or not is_binary(&data):
        return False
    out[0] = last_stored
    out.body = data.p
    out.body_size = data.size
    return True


cdef int keep_head(const uint8_t* p, Py_ssize_t n, Stored* stored) except -1:
    """Keep the first `n` bytes of a message, and what became of it, for the next one."""
    global last_stored
    clear(&last_head)
    if n == 0 or n > HEAD_MAX:
        return 0
    put(&last_head, p, n)
    last_stored = stored[0]
    if p <= stored.user < p + n:            # or in `digits`
        last_stored.user = last_head.p + (stored.user - p)
    if stored.to != NULL:
        last_stored.to = last_head.p + (stored.to - p)
    return 0


cdef bint store_anew(const uint8_t* p, Py_ssize_t n, Stored* out) except -1:
    cdef Parts parts
    cdef Py_ssize_t at = 0, size, body_size
    cdef Py_ssize_t kept_at[4]
    cdef Py_ssize_t kept_size[4]
    cdef int kept = 0, bodies = 0, i
    cdef uint8_t code, last = 0
    cdef const uint8_t* value
    cdef const uint8_t* whole_body = p
    cdef Simple simple
    cdef bint is_value = False
    cdef int left
    parts.durable = parts.has_priority = parts.has_ttl = parts.has_created = parts.unknown = parts.maybe_topic = False
    parts.same = True
    parts.timed = False
    parts.time = parts.delay = 0
    for i in range(FIELDS):
        parts.fields[i].p = NULL
    clear(&headers)
    clear(&last_head)
    out.body = p
    out.body_size = body_size = 0
    while at < n:
        if n - at < 4 or p[at] != 0 or p[at + 1] != 0x53:
            return False
        code = p[at + 2]
        if code < HEADER or code > FOOTER:
            return False
        if code <= last and not (code == last and (code == DATA or code == SEQUENCE)):
            return False
        if DATA <= last <= VALUE and code != FOOTER and code != last:
            return False
        value = p + at + 3
        size = n - at - 3
        if code == HEADER:
            size = read_header(value, size, &parts)
        elif code == DELIVERY_ANNOTATIONS:
            size = read_map(value, size)
        elif code == ANNOTATIONS:
            size = read_annotations(value, size, &parts)
        elif code == PROPERTIES:
            size = read_properties(value, size, &parts)
        elif code == APPLICATION_PROPERTIES:
            size = read_application(value, size, &parts)
        elif code == DATA:
            size = read_simple(value, size, &simple)
            if size >= 0 and not is_binary(&simple):
                return False
            out.body = simple.p
            out.body_size = simple.size
        elif code == VALUE or code == SEQUENCE:
            is_value = True
            left = VALUES_MAX
            if code == SEQUENCE and not is_list(value, size):
                return False
            size = read_value(value, size, 0, &left)
        elif code == FOOTER:
            size = read_map(value, size)
            parts.same = False
        else:
            return False
        if size < 0:
            return False
        size += 3
        if DATA <= code <= VALUE:
            if not bodies:
                whole_body = p + at
            bodies += 1
            body_size += size
        elif code >= ANNOTATIONS:
            kept_at[kept] = at
            kept_size[kept] = size
            kept += 1
        last = code
        at += size
    if bodies > 1 or is_value:
        is_value = True
        out.body = whole_body
        out.body_size = body_size
    out.has_sections = kept > 0 and (parts.unknown or not parts.same)
    if out.has_sections:
        size = 0
        for i in range(kept):
            size += kept_size[i]
        put(&headers, b"\x11x-amqp10-sectionsx", 19)
        put_u32(&headers, <uint32_t>size)
        for i in range(kept):
            put(&headers, p + kept_at[i], kept_size[i])
    write_block(&parts, is_value)
    out.block = block.p
    out.block_size = <uint32_t>block.size
    out.durable = parts.durable
    out.priority = parts.priority if parts.has_priority else 0
    out.ttl = max(parts.ttl, <uint32_t>1) if parts.has_ttl and parts.ttl <= TTL_MAX else 0
    out.user = parts.fields[USER_ID].p
    out.user_size = parts.fields[USER_ID].size
    out.to = parts.fields[TO].p
    out.to_size = parts.fields[TO].size
    out.maybe_topic = parts.maybe_topic
    out.timed = parts.timed
    out.time = parts.time
    out.delay = parts.delay
    if bodies == 1 and last == DATA:
        keep_head(p, n - body_size, out)
    return True


cdef Py_ssize_t read_header(const uint8_t* p, Py_ssize_t n, Parts* parts) noexcept:
    cdef Compound fields
    cdef Simple value
    cdef uint32_t i
    cdef Py_ssize_t size, whole = read_compound(p, n, False, &fields)
    if whole < 0 or fields.count > 5:
        return -1
    p = fields.p
    for i in range(fields.count):
        size = read_simple(p, fields.end - p, &value)
        if size < 0:
            return -1
        p += size
        if is_null(&value):
            continue
        if i == 0:
            if not (is_true(&value) or is_false(&value)):
                return -1
            parts.durable = is_true(&value)
        elif i == 1:
            if value.code != 0x50:
                return -1
            parts.has_priority = True
            parts.priority = value.p[0]
        elif i == 2:
            if not is_uint(&value):
                return -1
            parts.has_ttl = True
            parts.ttl = <uint32_t>number(&value)
    return whole if p == fields.end else -1


cdef Py_ssize_t next_entry(const uint8_t* p, const uint8_t* end, Text* keys, uint32_t i, Simple* key, Simple* value) noexcept:
    """Bytes of entry `i` of a map, whose keys before it stand in `keys`; its key is text."""
    cdef Py_ssize_t key_size = read_simple(p, end - p, key), size
    cdef uint32_t k
    if key_size < 0 or not (is_text(key) or is_symbol(key)):
        return -1
    for k in range(i):
        if keys[k].size == key.size and memcmp(keys[k].p, key.p, key.size) == 0:
            return -1
    keys[i].p = key.p
    keys[i].size = key.size
    size = read_simple(p + key_size, end - p - key_size, value)
    return -1 if size < 0 else key_size + size


cdef Py_ssize_t read_map(const uint8_t* p, Py_ssize_t n) noexcept:
    """Bytes of a map that is only handed on."""
    cdef Compound entries
    cdef Text keys[ENTRIES_MAX]
    cdef Simple key, value
    cdef uint32_t i
    cdef Py_ssize_t size, whole = read_compound(p, n, True, &entries)
    if whole < 0 or entries.count > 2 * ENTRIES_MAX:
        return -1
    p = entries.p
    for i in range(entries.count // 2):
        size = next_entry(p, entries.end, keys, i, &key, &value)
        if size < 0:
            return -1
        p += size
    return whole if p == entries.end else -1


cdef bint begins(const Simple* name, const char* with_, Py_ssize_t size) noexcept:
    return name.size >= size and memcmp(name.p, with_, size) == 0


cdef bint is_one(const Simple* name, const char* other, Py_ssize_t size) noexcept:
    return name.size == size and memcmp(name.p, other, size) == 0


cdef bint is_reserved(const Simple* name) noexcept:
    """Whether no header comes from it: see `translate._put_header`."""
    return (
        is_one(name, b"CC", 2) or is_one(name, b"BCC", 3) or is_one(name, b"x-amqp10-sections", 17)
        or is_one(name, b"x-exchange", 10) or is_one(name, b"x-routing-key", 13)
        or begins(name, b"x-death", 7) or begins(name, b"x-first-death-", 14) or begins(name, b"x-last-death-", 13)
        or begins(name, b"x-delivery-count", 16) or begins(name, b"x-acquired-count", 16)
    )


cdef Py_ssize_t begin_entries(const uint8_t* p, Py_ssize_t n, Compound* entries, Parts* parts) noexcept:
    # The bytes of a section that is a map of at most ENTRIES_MAX entries; -1: it is another one.
    cdef Py_ssize_t whole = read_compound(p, n, True, entries)
    if whole < 0 or entries.count > 2 * ENTRIES_MAX:
        return -1
    if entries.count == 0 or not entries.shortest:
        parts.same = False
    return whole


cdef bint read_ms(const Simple* value, int64_t* ms) noexcept:
    """Whether a value is a number of ms as clients write it; below 0 it is 0."""
    cdef uint64_t bits
    if value.code == 0x83 or value.code == 0x81 or value.code == 0x80:      # timestamp, long, ulong
        bits = load64(value.p)
    elif is_uint(value) or value.code == 0x53 or value.code == 0x44:        # uint, ulong in short forms
        bits = number(value)
    elif value.code == 0x55:                                                # long in its short form
        bits = <uint64_t><int64_t><int8_t>value.p[0]
    else:
        return False
    if value.code == 0x80 and bits > LONG_MAX_:
        return False
    ms[0] = max(<int64_t>bits, <int64_t>0)
    return True


cdef Py_ssize_t read_annotations(const uint8_t* p, Py_ssize_t n, Parts* parts) except -2:
    cdef Compound entries
    cdef Text keys[ENTRIES_MAX]
    cdef Simple key, value
    cdef uint32_t i
    cdef Py_ssize_t size, whole = begin_entries(p, n, &entries, parts)
    if whole < 0:
        return -1
    p = entries.p
    for i in range(entries.count // 2):
        size = next_entry(p, entries.end, keys, i, &key, &value)
        if size < 0:
            return -1
        p += size
        if is_one(&key, b"x-opt-jms-dest", 14) and not (value.code == 0x51 and (value.p[0] == 0 or value.p[0] == 2)):
            parts.maybe_topic = True
        if begins(&key, b"x-", 2):
            if begins(&key, b"x-basic-", 8) or begins(&key, b"x-penstock-", 11) or is_one(&key, b"x-delay", 7):
                return -1
            if begins(&key, b"x-opt-delivery-", 15):
                if is_one(&key, b"x-opt-delivery-time", 19):
                    if not read_ms(&value, &parts.time):
                        return -1
                    parts.timed = True
                elif is_one(&key, b"x-opt-delivery-delay", 20):
                    if not read_ms(&value, &parts.delay):
                        return -1
                    parts.timed = True
            if key.size > SHORT_MAX:
                return -1
            if not is_reserved(&key):
                if key.code != 0xA3:
                    parts.same = False
                put_header(&key, &value, parts)
                continue
        parts.same = False
    return whole if p == entries.end else -1


cdef Py_ssize_t read_application(const uint8_t* p, Py_ssize_t n, Parts* parts) except -2:
    cdef Compound entries
    cdef Text keys[ENTRIES_MAX]
    cdef Simple key, value
    cdef uint32_t i
    cdef Py_ssize_t size, whole = begin_entries(p, n, &entries, parts)
    if whole < 0:
        return -1
    p = entries.p
    for i in range(entries.count // 2):
        size = next_entry(p, entries.end, keys, i, &key, &value)
        if size < 0 or key.size > SHORT_MAX:
            return -1
        p += size
        if key.code != 0xA1 or begins(&key, b"x-", 2) or is_reserved(&key):
            parts.same = False
        if not (begins(&key, b"x-", 2) or is_reserved(&key)):
            put_header(&key, &value, parts)
    return whole if p == entries.end else -1


cdef int put_header(const Simple* name, const Simple* value, Parts* parts) except -1:
    """An entry of the table: `tables.to_field`."""
    cdef uint8_t code = value.code
    cdef uint64_t bits
    cdef int64_t signed
    cdef float single
    cdef double double_
    cdef uint32_t bits32
    cdef uint8_t raw[40]
    put_byte(&headers, <uint8_t>name.size)
    put(&headers, name.p, name.size)
    if not is_shortest(value):
        parts.same = False
    if code == 0x40:
        put_byte(&headers, c'V')
    elif code == 0x41 or code == 0x42 or code == 0x56:
        put_byte(&headers, c't')
        put_byte(&headers, is_true(value))
    elif is_uint(value):
        put_byte(&headers, c'i')
        put_u32(&headers, <uint32_t>number(value))
    elif code == 0x44 or code == 0x53 or code == 0x80:
        parts.same = False
        bits = number(value)
        if bits <= LONG_MAX_:
            put_byte(&headers, c'l')
            put_u64(&headers, bits)
        else:
            put_text(decimal(bits, raw), raw)
    elif code == 0x50 or code == 0x51:
        put_byte(&headers, c'B' if code == 0x50 else c'b')
        put_byte(&headers, value.p[0])
    elif code == 0x60 or code == 0x61:
        put_byte(&headers, c'u' if code == 0x60 else c's')
        put(&headers, value.p, 2)
    elif code == 0x54:
        put_byte(&headers, c'I')
        signed = <signed char>value.p[0]
        put_u32(&headers, <uint32_t>signed)
    elif code == 0x71:
        put_byte(&headers, c'I')
        put(&headers, value.p, 4)
    elif code == 0x55:
        put_byte(&headers, c'l')
        signed = <signed char>value.p[0]
        put_u64(&headers, <uint64_t>signed)
    elif code == 0x81:
        put_byte(&headers, c'l')
        put(&headers, value.p, 8)
    elif code == 0x72:
        parts.same = False
        bits32 = load32(value.p)
        memcpy(&single, &bits32, 4)
        double_ = single
        memcpy(&bits, &double_, 8)
        put_byte(&headers, c'd')
        put_u64(&headers, bits)
    elif code == 0x82:
        put_byte(&headers, c'd')
        put(&headers, value.p, 8)
    elif code == 0x83:
        signed = <int64_t>number(value)
        if signed < 0:
            parts.same = False
            put_byte(&headers, c'l')
            put_u64(&headers, <uint64_t>signed)
        else:
            if signed % 1000 or signed > TIMESTAMP_MAX:
                parts.same = False
            put_byte(&headers, c'T')
            put_u64(&headers, <uint64_t>(signed // 1000))
    elif code == 0x98:
        parts.same = False
        put_text(uuid_text(value.p, raw), raw)
    else:
        if is_symbol(value):
            parts.same = False
        put_byte(&headers, c'x' if is_binary(value) else c'S')
        put_u32(&headers, <uint32_t>value.size)
        put(&headers, value.p, value.size)
    return 0


cdef int put_text(Py_ssize_t size, const uint8_t* p) except -1:
    put_byte(&headers, c'S')
    put_u32(&headers, <uint32_t>size)
    return put(&headers, p, size)


cdef Py_ssize_t decimal(uint64_t value, uint8_t* out) noexcept:
    """At most 20 digits; how many."""
    cdef uint8_t reverse[20]
    cdef Py_ssize_t n = 0, i
    while True:
        reverse[n] = <uint8_t>(c'0' + value % 10)
        n += 1
        value //= 10
        if value == 0:
            break
    for i in range(n):
        out[i] = reverse[n - 1 - i]
    return n


cdef Py_ssize_t uuid_text(const uint8_t* p, uint8_t* out) noexcept:
    """36 characters."""
    cdef const char* hexes = b"0123456789abcdef"
    cdef Py_ssize_t n = 0
    cdef int i
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            out[n] = c'-'
            n += 1
        out[n] = hexes[p[i] >> 4]
        out[n + 1] = hexes[p[i] & 15]
        n += 2
    return n


cdef Py_ssize_t read_properties(const uint8_t* p, Py_ssize_t n, Parts* parts) noexcept:
    cdef Compound fields
    cdef Simple value
    cdef uint32_t i
    cdef Py_ssize_t size, whole = read_compound(p, n, False, &fields)
    if whole < 0 or fields.count > FIELDS:
        return -1
    value.code = 0x40
    p = fields.p
    for i in range(fields.count):
        size = read_simple(p, fields.end - p, &value)
        if size < 0:
            return -1
        p += size
        if is_null(&value):
            continue
        if not is_shortest(&value):
            parts.same = False
        if i == CREATION_TIME:
            if value.code != 0x83 or <int64_t>number(&value) < 0:
                return -1
            parts.has_created = True
            parts.created = number(&value) // 1000
            if number(&value) % 1000 or <int64_t>number(&value) > TIMESTAMP_MAX:
                parts.same = False
        elif i == REPLY_TO:
            if not read_reply_to(&value, parts):
                return -1
        elif i == TO or i == SUBJECT or i == ABSOLUTE_EXPIRY_TIME or i > GROUP_ID:
            parts.unknown = True
            if i == TO and is_text(&value):
                parts.fields[TO].p = value.p
                parts.fields[TO].size = value.size
        elif not read_text(&value, i, parts):
            return -1
    if not fields.shortest or is_null(&value):      # null: the last one, or there is none
        parts.same = False
    return whole if p == fields.end else -1


cdef bint read_text(const Simple* value, uint32_t i, Parts* parts) noexcept:
    """A field that is text for 0-9-1: `translate._text`."""
    cdef Text* field = &parts.fields[i]
    cdef uint8_t expected = 0xA1
    if i == USER_ID:
        expected = 0xA0
    elif i == CONTENT_TYPE or i == CONTENT_ENCODING:
        expected = 0xA3
    if value.code != expected:
        parts.same = False
    field.p = value.p
    field.size = value.size
    if is_binary(value):
        if not is_utf8(value.p, value.size):
            return False
    elif value.code == 0x98:
        field.p = digits[i]
        field.size = uuid_text(value.p, digits[i])
    elif value.code == 0x44 or value.code == 0x53 or value.code == 0x80:
        field.p = digits[i]
        field.size = decimal(number(value), digits[i])
    elif not (is_text(value) or is_symbol(value)):
        return False
    if field.size > SHORT_MAX:
        # Whose user-id it is has to be looked at all the same.
        if i == USER_ID:
            return False
        parts.same = False
        field.p = NULL
    return True


cdef bint read_reply_to(const Simple* value, Parts* parts) noexcept:
    """An address that needs no decoding: `translate._reply_to_091`."""
    cdef Text* field = &parts.fields[REPLY_TO]
    cdef Py_ssize_t i
    cdef uint8_t c
    if not is_text(value):
        return False
    field.p = value.p
    field.size = value.size
    if value.size and value.p[0] == c'/':
        if not begins(value, b"/queues/", 8) or value.size == 8:
            return False
        field.p += 8
        field.size -= 8
        for i in range(field.size):
            c = field.p[i]
            if not (
                c'a' <= c <= c'z' or c'A' <= c <= c'Z' or c'0' <= c <= c'9' or c == c'_' or c == c'.' or c == c'-' or c == c'~'
            ):
                return False
        if field.size > SHORT_MAX:
            return False
    else:
        parts.same = False
        if field.size > SHORT_MAX:
            field.p = NULL
    return True


cdef int put_field(const Text* text) except -1:
    put_byte(&block, <uint8_t>text.size)
    return put(&block, text.p, text.size)


cdef int write_block(Parts* parts, bint is_value) except -1:
    """The properties, in the order of their flags."""
    cdef uint16_t flags = 0x1000
    cdef uint8_t raw[20]
    cdef Text expiration
    cdef Text* fields = parts.fields
    clear(&block)
    reserve(&block, 2)
    block.size = 2
    if fields[CONTENT_TYPE].p != NULL:
        flags |= 0x8000
        put_field(&fields[CONTENT_TYPE])
    if fields[CONTENT_ENCODING].p != NULL:
        flags |= 0x4000
        put_field(&fields[CONTENT_ENCODING])
    if headers.size:
        flags |= 0x2000
        put_u32(&block, <uint32_t>headers.size)
        put(&block, headers.p, headers.size)
    put_byte(&block, 2 if parts.durable else 1)
    if parts.has_priority:
        flags |= 0x0800
        put_byte(&block, parts.priority)
    if fields[CORRELATION_ID].p != NULL:
        flags |= 0x0400
        put_field(&fields[CORRELATION_ID])
    if fields[REPLY_TO].p != NULL:
        flags |= 0x0200
        put_field(&fields[REPLY_TO])
    if parts.has_ttl:
        flags |= 0x0100
        expiration.size = decimal(parts.ttl, raw)
        expiration.p = raw
        put_field(&expiration)
    if fields[MESSAGE_ID].p != NULL:
        flags |= 0x0080
        put_field(&fields[MESSAGE_ID])
    if parts.has_created:
        flags |= 0x0040
        put_u64(&block, parts.created)
    if is_value:
        flags |= 0x0020
        put(&block, b"\x08amqp-1.0", 9)
    if fields[USER_ID].p != NULL:
        flags |= 0x0010
        put_field(&fields[USER_ID])
    if fields[GROUP_ID].p != NULL:
        flags |= 0x0008
        put_field(&fields[GROUP_ID])
    store16(block.p, flags)
    return 0


def stored(bytes payload not None):
    cdef Stored found
    if not store(<const uint8_t*><const char*>payload, len(payload), &found):
        return None
    return (
        found.block[:found.block_size],
        found.body[:found.body_size],
        bool(found.durable),
        bool(found.has_sections),
        found.priority,
        found.ttl,
        None if found.user == NULL else found.user[:found.user_size],
        found.time,
        found.delay,
    )
