# cython: language_level=3
"""Reading MQTT fields in C: texts, variable byte integers, property blocks. Inline, without state.

Every function is given where its bytes end and reads nothing behind it. A fault is the 5.0 reason code of
what is wrong, 0 for none. Source: MQTT 5.0 sections 1.5, 2.2.2 and 4.7.
"""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef enum:
    MALFORMED = 0x81
    VIOLATION = 0x82
    ALIAS_INVALID = 0x94

# The words of eight equal bytes that the tests of a whole word at once need.
cdef enum:
    WORD = 8

cdef inline uint64_t _every(uint8_t byte) noexcept nogil:
    return <uint64_t>0x0101010101010101 * byte

cdef inline uint64_t _has_below(uint64_t word, uint8_t byte) noexcept nogil:
    """Not 0 when some byte of `word` (all < 0x80) is below `byte`."""
    return (word - _every(byte)) & ~word & _every(0x80)

cdef inline uint64_t _has(uint64_t word, uint8_t byte) noexcept nogil:
    """Not 0 when some byte of `word` equals `byte`."""
    return _has_below(word ^ _every(byte), 1)

cdef inline int32_t decode_rune(const uint8_t* at, Py_ssize_t n, Py_ssize_t* width) noexcept nogil:
    """The code point at `at` (n >= 1 bytes left) and its width; -1 when ill-formed (RFC 3629)."""
    cdef uint8_t a = at[0]
    cdef int32_t rune
    if a < 0x80:
        width[0] = 1
        return a
    if a < 0xC2:
        return -1
    if a < 0xE0:
        if n < 2 or at[1] & 0xC0 != 0x80:
            return -1
        width[0] = 2
        return (a & 0x1F) << 6 | (at[1] & 0x3F)
    if a < 0xF0:
        if n < 3 or at[1] & 0xC0 != 0x80 or at[2] & 0xC0 != 0x80:
            return -1
        rune = (a & 0x0F) << 12 | (at[1] & 0x3F) << 6 | (at[2] & 0x3F)
        if rune < 0x800 or 0xD800 <= rune < 0xE000:
            return -1
        width[0] = 3
        return rune
    if a > 0xF4 or n < 4 or at[1] & 0xC0 != 0x80 or at[2] & 0xC0 != 0x80 or at[3] & 0xC0 != 0x80:
        return -1
    rune = (a & 0x07) << 18 | (at[1] & 0x3F) << 12 | (at[2] & 0x3F) << 6 | (at[3] & 0x3F)
    if rune < 0x10000 or rune > 0x10FFFF:
        return -1
    width[0] = 4
    return rune

cdef inline bint is_text(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """UTF-8 without U+0000 (mqtt5:1.5.4-1, mqtt5:1.5.4-2)."""
    cdef uint64_t word
    cdef Py_ssize_t i = 0, width = 1
    cdef int32_t rune
    while i < n:
        if n - i >= WORD:
            memcpy(&word, p + i, WORD)
            if not word & _every(0x80) and not _has(word, 0):
                i += WORD
                continue
        rune = decode_rune(p + i, n - i, &width)
        if rune <= 0:
            return False
        i += width
    return True

cdef inline bint is_topic(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """UTF-8 without U+0000, control characters and wildcards; not empty (mqtt5:3.3.2-2, mqtt5:4.7.3-1)."""
    cdef uint64_t word
    cdef Py_ssize_t i = 0, width = 1
    cdef int32_t rune
    while i < n:
        if n - i >= WORD:
            memcpy(&word, p + i, WORD)
            if not (word & _every(0x80) or _has_below(word, 0x20) or _has(word, 0x7F)
                    or _has(word, c"+") or _has(word, c"#")):
                i += WORD
                continue
        rune = decode_rune(p + i, n - i, &width)
        if rune < 0x20 or 0x7F <= rune < 0xA0 or rune == c"+" or rune == c"#":
            return False
        i += width
    return n > 0

cdef inline Py_ssize_t read_varint(const uint8_t* p, Py_ssize_t n, uint32_t* value) noexcept nogil:
    """A variable byte integer in p[0..n): its width; 0 = it goes on behind n; -1 = none (too long, not minimal)."""
    cdef Py_ssize_t i
    cdef uint32_t out = 0
    for i in range(4):
        if i >= n:
            return 0
        out |= <uint32_t>(p[i] & 0x7F) << (7 * i)
        if p[i] < 0x80:
            if p[i] == 0 and i:
                return -1
            value[0] = out
            return i + 1
    return -1

cdef inline Py_ssize_t varint_width(uint32_t value) noexcept nogil:
    return 1 if value < 128 else 2 if value < 16384 else 3 if value < 2097152 else 4

cdef inline uint8_t* write_varint(uint8_t* p, uint32_t value) noexcept nogil:
    """Writes it and gives the place after it."""
    while value > 0x7F:
        p[0] = <uint8_t>(value | 0x80)
        p += 1
        value >>= 7
    p[0] = <uint8_t>value
    return p + 1

cdef inline uint32_t u16(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 8 | p[1]

cdef inline uint32_t u32(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]

# Property blocks

cdef struct Block:
    uint32_t alias            # topic alias, 0 = none
    uint32_t alias_at         # where its property starts; it is 3 bytes
    uint32_t expiry_s         # message expiry interval
    uint32_t expiry_at        # where its value starts; 0 = none (a value is never at 0)
    bint delayed              # it may have a user property that delays the message, names it, or cancels one

# Which identifiers a packet may carry, a bit each.
cdef enum:
    FROM_CLIENT = 1
    ACKNOWLEDGEMENT = 2

cdef inline uint64_t _bit(uint32_t identifier) noexcept nogil:
    return (<uint64_t>1) << identifier

cdef inline uint64_t _known() noexcept nogil:
    return (_bit(0x01) | _bit(0x02) | _bit(0x03) | _bit(0x08) | _bit(0x09) | _bit(0x0B) | _bit(0x11) | _bit(0x12)
            | _bit(0x13) | _bit(0x15) | _bit(0x16) | _bit(0x17) | _bit(0x18) | _bit(0x19) | _bit(0x1A) | _bit(0x1C)
            | _bit(0x1F) | _bit(0x21) | _bit(0x22) | _bit(0x23) | _bit(0x24) | _bit(0x25) | _bit(0x26) | _bit(0x27)
            | _bit(0x28) | _bit(0x29) | _bit(0x2A))

cdef inline uint64_t _allowed(int packet) noexcept nogil:
    if packet == ACKNOWLEDGEMENT:
        return _bit(0x1F) | _bit(0x26)
    return (_bit(0x01) | _bit(0x02) | _bit(0x03) | _bit(0x08) | _bit(0x09) | _bit(0x23) | _bit(0x26))

cdef inline Py_ssize_t _text_end(const uint8_t* p, Py_ssize_t i, Py_ssize_t n, bint check) noexcept nogil:
    """The end of the text field at i; -1 when it is cut off or (with `check`) no text."""
    cdef Py_ssize_t size
    if n - i < 2:
        return -1
    size = u16(p + i)
    i += 2
    if n - i < size or (check and not is_text(p + i, size)):
        return -1
    return i + size

cdef inline int walk_block(const uint8_t* p, Py_ssize_t n, int packet, bint check, Block* found) noexcept nogil:
    """Check the property block p[0..n) of a PUBLISH from a client or of an acknowledgement, and note what the
    scanner and the encoder want of it. Without `check` texts are not looked into: for blocks of our own log."""
    cdef Py_ssize_t i = 0, stop
    cdef uint32_t identifier
    cdef uint64_t seen = 0, allowed = _allowed(packet)
    found.alias = found.alias_at = found.expiry_s = found.expiry_at = 0
    found.delayed = False
    while i < n:
        identifier = p[i]
        if identifier > 0x2A or not _known() & _bit(identifier):
            return MALFORMED
        if not allowed & _bit(identifier):
            # A subscription identifier is one of PUBLISH, but no client may send it (mqtt5:3.3.4-6).
            return VIOLATION if identifier == 0x0B and packet == FROM_CLIENT else MALFORMED  # mqtt5:2.2.2.2
        if seen & _bit(identifier) and identifier != 0x26:
            return VIOLATION
        seen |= _bit(identifier)
        i += 1
        if identifier == 0x26:
            stop = i
            i = _text_end(p, i, n, check)
            if i < 0:
                return MALFORMED
            if (i - stop >= 17 and memcmp(p + stop + 2, b"penstock-cancel", 15) == 0) or (
                i - stop >= 19 and memcmp(p + stop + 2, b"penstock-de", 11) == 0
            ):
                found.delayed = True
            i = _text_end(p, i, n, check)
            if i < 0:
                return MALFORMED
        elif identifier == 0x03 or identifier == 0x1F:
            i = _text_end(p, i, n, check)
            if i < 0:
                return MALFORMED
        elif identifier == 0x08:
            stop = _text_end(p, i, n, check)
            if stop < 0:
                return MALFORMED
            if check:
                if stop == i + 2:
                    return VIOLATION
                if not is_topic(p + i + 2, stop - i - 2):  # mqtt5:3.3.2-14
                    return MALFORMED
            i = stop
        elif identifier == 0x09:
            i = _text_end(p, i, n, False)
            if i < 0:
                return MALFORMED
        elif identifier == 0x01:
            if n - i < 1:
                return MALFORMED
            if p[i] > 1:
                return VIOLATION
            i += 1
        elif identifier == 0x02:
            if n - i < 4:
                return MALFORMED
            found.expiry_s = u32(p + i)
            found.expiry_at = <uint32_t>i
            i += 4
        else:  # 0x23
            if n - i < 2:
                return MALFORMED
            found.alias = u16(p + i)
            found.alias_at = <uint32_t>(i - 1)
            if found.alias == 0:
                return ALIAS_INVALID  # mqtt5:3.3.2-8
            i += 2
    return 0
