# cython: auto_pickle=False
"""Rows of Arrow's as AMQP messages: the frames of many publishes in one go, without a Python object per row.

A message is three kinds of frames (amqp091:2.3.5, 4.2), integers big-endian:

    method   01 | channel u16 | size u32 | 60 u16 | 40 u16 | 0 u16 | exchange s | routing key s | 0 u8 | CE
    header   02 | channel u16 | size u32 | 60 u16 | 0 u16 | body size u64 | flags u16 | properties | CE
    body     03 | channel u16 | size u32 | at most frame_max - 8 bytes | CE             none for an empty body

Where it goes and with which properties is what `messages` says. The properties, in the order of their flags'
bits: content-type, content-encoding, headers, delivery-mode, priority, correlation-id, reply-to, message-id,
timestamp, type, app-id. Headers are the row's own, in order, but for those that begin with x-penstock-; then
x-penstock-producer (S) and x-penstock-sequence (l). A header's value goes as it is in the table: with its size
in front when it is a string or bytes, and checked against its type.

With shares the producer of a row is NAME/SHARE, and the share that of its own address and routing key, wherever
it goes: CRC-32 (of zlib and Spark's SQL) of both with a zero between them, modulo their number.

Owns the bytes it makes. Knows no socket, and no pyarrow: it is given the buffers of arrays.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

COLUMNS = (
    "protocol", "address", "routing_key", "offset", "event_time", "priority", "persistent", "content_type",
    "content_encoding", "correlation_id", "reply_to", "message_id", "type", "app_id", "headers", "payload",
    "header_name", "header_type", "header_value",
)

cdef enum:
    PROTOCOL
    ADDRESS
    ROUTING_KEY
    OFFSET
    EVENT_TIME
    PRIORITY
    PERSISTENT
    CONTENT_TYPE                 # the short strings, in the order of their bits
    CONTENT_ENCODING
    CORRELATION_ID
    REPLY_TO
    MESSAGE_ID
    TYPE
    APP_ID
    HEADERS
    PAYLOAD
    HEADER_NAME                  # the columns inside the lists of headers
    HEADER_TYPE
    HEADER_VALUE
    SLOTS
    CHANNEL = 1
    SHORT_MAX = 255
    PREFIX = 11                  # x-penstock-
    BODY_MAX = 0x3FFFFFFF        # the gateway takes less than 1 GiB
    SHARES_MAX = 256

cdef const char* OURS = b"x-penstock-"
cdef const char* TOPICS = b"amq.topic"

# amqp091:4.2.6, the bit of each short string's flag.
cdef uint16_t[SLOTS] BITS
BITS[CONTENT_TYPE] = 1 << 15
BITS[CONTENT_ENCODING] = 1 << 14
BITS[CORRELATION_ID] = 1 << 10
BITS[REPLY_TO] = 1 << 9
BITS[MESSAGE_ID] = 1 << 7
BITS[TYPE] = 1 << 5
BITS[APP_ID] = 1 << 3


cdef uint32_t[256] CRC_TABLE


cdef void make_crc_table() noexcept:
    cdef uint32_t value
    cdef int i, bit
    for i in range(256):
        value = i
        for bit in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        CRC_TABLE[i] = value


make_crc_table()


cdef inline uint32_t crc32(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil:
    # Without the inversions at both ends.
    cdef size_t i
    for i in range(n):
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ p[i]) & 0xFF]
    return crc


cdef struct Column:
    const uint8_t* valid         # NULL: no row is null
    const uint8_t* values
    const int32_t* ends          # of text and lists
    int64_t first                # of the batch's rows among those of the buffers
    bint there


cdef struct Text:
    const uint8_t* p
    size_t n
    bint there


cdef inline uint8_t* put16(uint8_t* p, uint16_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 8)
    p[1] = <uint8_t>value
    return p + 2


cdef inline uint8_t* put32(uint8_t* p, uint32_t value) noexcept nogil:
    return put16(put16(p, <uint16_t>(value >> 16)), <uint16_t>value)


cdef inline uint8_t* put64(uint8_t* p, uint64_t value) noexcept nogil:
    return put32(put32(p, <uint32_t>(value >> 32)), <uint32_t>value)


cdef inline uint8_t* put_raw(uint8_t* p, const void* source, size_t n) noexcept nogil:
    if n:
        memcpy(p, source, n)
    return p + n


cdef inline uint8_t* put_short(uint8_t* p, const uint8_t* source, size_t n) noexcept nogil:
    p[0] = <uint8_t>n
    return put_raw(p + 1, source, n)


cdef inline uint8_t* begin_frame(uint8_t* p, uint8_t kind, uint32_t size) noexcept nogil:
    p[0] = kind
    return put32(put16(p + 1, CHANNEL), size)


cdef inline bint is_null(const Column* column, int64_t row) noexcept nogil:
    cdef int64_t at = column.first + row
    return column.valid != NULL and not column.valid[at >> 3] >> (at & 7) & 1


cdef inline Text text_at(const Column* column, int64_t row) noexcept nogil:
    cdef Text found
    cdef const int32_t* end
    found.p = NULL
    found.n = 0
    found.there = column.there and not is_null(column, row)
    if found.there:
        end = column.ends + column.first + row
        found.p = column.values + end[0]
        found.n = <size_t>(end[1] - end[0])
    return found


cdef inline bint equals(Text text, const char* word, size_t n) noexcept nogil:
    return text.n == n and memcmp(text.p, word, n) == 0


cdef inline bint ours(Text name) noexcept nogil:
    return name.n >= PREFIX and memcmp(name.p, OURS, PREFIX) == 0


cdef dict OCTETS = {
    b"string": c"S", b"boolean": c"t", b"int8": c"b", b"uint8": c"B", b"int16": c"s", b"uint16": c"u",
    b"int32": c"I", b"uint32": c"i", b"int64": c"l", b"float": c"f", b"double": c"d", b"decimal": c"D",
    b"timestamp": c"T", b"array": c"A", b"table": c"F", b"bytes": c"x", b"void": c"V",
}


cdef int sized(uint8_t octet, Text value) noexcept nogil:
    # Whether the bytes can be a value of that type (amqp091:4.2.1); an array and a table begin with their size.
    if octet == c"S" or octet == c"x":
        return True
    if octet == c"t" or octet == c"b" or octet == c"B":
        return value.n == 1
    if octet == c"s" or octet == c"u":
        return value.n == 2
    if octet == c"I" or octet == c"i" or octet == c"f":
        return value.n == 4
    if octet == c"D":
        return value.n == 5
    if octet == c"V":
        return value.n == 0
    if octet == c"A" or octet == c"F":
        return value.n >= 4 and value.n - 4 == (<size_t>value.p[0] << 24 | <size_t>value.p[1] << 16
                                               | <size_t>value.p[2] << 8 | value.p[3])
    return value.n == 8


@cython.final
cdef class Encoder:
    cdef Column[SLOTS] columns
    cdef int64_t rows
    cdef list kept                       # the buffers that `columns` points into
    cdef bytes exchange, routing_key
    cdef list producers                  # the only one, or one for each share
    cdef uint64_t[SHARES_MAX] sequences  # of their next messages
    cdef uint32_t frame_max, shares, tasks, task
    cdef bint by_offset
    cdef int64_t last_offset
    cdef uint8_t* out
    cdef size_t used, room
    # Of the row at hand
    cdef Text[SLOTS] texts
    cdef bint mqtt
    cdef uint32_t share
    cdef bytes producer

    def __cinit__(self, bytes producer not None, uint32_t frame_max, *, bytes exchange=None, bytes routing_key=None,
                  bint by_offset=False, uint64_t sequence=0, uint32_t shares=0, uint32_t tasks=1, uint32_t task=0):
        cdef uint32_t k
        if frame_max < 4096:
            raise ValueError("frames have at least 4096 bytes")
        if shares > SHARES_MAX or task >= tasks or (tasks > 1 and not shares):
            raise ValueError(f"task {task} of {tasks} with {shares} shares")
        self.shares, self.tasks, self.task = shares, tasks, task
        self.producers = [producer + b"/%d" % k for k in range(shares)] if shares else [producer]
        for k in range(max(shares, <uint32_t>1)):
            self.sequences[k] = sequence
        self.exchange = exchange
        self.routing_key = routing_key
        self.frame_max = frame_max
        self.by_offset = by_offset
        self.last_offset = -1
        self.kept = []

    def __dealloc__(self):
        free(self.out)

    def load(self, int64_t rows, dict columns not None):
        cdef int k
        cdef Column* column
        unknown = set(columns).difference(COLUMNS)
        if unknown:
            raise ValueError(f"no such columns: {', '.join(sorted(unknown))}")
        self.kept = []
        self.rows = rows
        for k in range(SLOTS):
            column = &self.columns[k]
            column.there = COLUMNS[k] in columns
            column.valid = column.values = NULL
            column.ends = NULL
            if not column.there:
                continue
            column.first, valid, ends, values = columns[COLUMNS[k]]
            self.kept.append((valid, ends, values))
            column.valid = address(valid)
            column.ends = <const int32_t*>address(ends)
            column.values = address(values)

    def encode(self, int64_t first, int64_t rows_max, size_t bytes_max):
        cdef int64_t row = first, offset, messages = 0
        cdef size_t bodies = 0
        self.used = 0
        while row < self.rows and messages < rows_max and (messages == 0 or self.used < bytes_max):
            self.find_texts(row)
            self.share = self.share_of() if self.shares else 0
            if self.tasks > 1 and self.share % self.tasks != self.task:
                row += 1
                continue
            if self.by_offset:
                if is_null(&self.columns[OFFSET], row):
                    raise ValueError("a message without an offset cannot be numbered by it")
                memcpy(&offset, self.columns[OFFSET].values + 8 * (self.columns[OFFSET].first + row), 8)
                if offset <= self.last_offset:
                    raise ValueError(f"offset {offset} comes after {self.last_offset}: these are of several logs, or not in order")
                self.last_offset = offset
                self.sequences[self.share] = <uint64_t>offset
            self.look(row)
            self.producer = <bytes>self.producers[self.share]
            self.put_message(row, self.sequences[self.share])
            self.sequences[self.share] += 1
            bodies += self.texts[PAYLOAD].n
            messages += 1
            row += 1
        return PyBytes_FromStringAndSize(<const char*>self.out, <Py_ssize_t>self.used), row, messages, bodies

    cdef uint32_t share_of(self) noexcept:
        cdef uint8_t zero = 0
        cdef uint32_t crc = crc32(0xFFFFFFFF, self.texts[ADDRESS].p, self.texts[ADDRESS].n)
        crc = crc32(crc32(crc, &zero, 1), self.texts[ROUTING_KEY].p, self.texts[ROUTING_KEY].n)
        return (crc ^ <uint32_t>0xFFFFFFFF) % self.shares

    cdef void find_texts(self, int64_t row) noexcept:
        cdef int k
        for k in range(SLOTS):
            if (k == PROTOCOL or k == ADDRESS or k == ROUTING_KEY or CONTENT_TYPE <= k <= APP_ID or k == PAYLOAD):
                self.texts[k] = text_at(&self.columns[k], row)

    cdef int look(self, int64_t row) except -1:
        """Say where it goes, and check that AMQP can say its texts."""
        cdef int k
        self.mqtt = equals(self.texts[PROTOCOL], b"mqtt", 4)
        if self.exchange is not None:
            self.texts[ADDRESS].p = self.exchange
            self.texts[ADDRESS].n = len(self.exchange)
        elif self.mqtt:
            self.texts[ADDRESS].p = <const uint8_t*>TOPICS
            self.texts[ADDRESS].n = 9
        if self.routing_key is not None:
            self.texts[ROUTING_KEY].p = self.routing_key
            self.texts[ROUTING_KEY].n = len(self.routing_key)
        for k in range(ADDRESS, APP_ID + 1):
            if (k <= ROUTING_KEY or k >= CONTENT_TYPE) and self.texts[k].n > SHORT_MAX:
                raise self.unsendable(row, f"its {COLUMNS[k]} has {self.texts[k].n} bytes, and AMQP's has at most 255")
        if self.texts[PAYLOAD].n > BODY_MAX:
            raise self.unsendable(row, f"its payload has {self.texts[PAYLOAD].n} bytes")
        return 0

    cdef object unsendable(self, int64_t row, str why):
        cdef int64_t offset
        if self.columns[OFFSET].there and not is_null(&self.columns[OFFSET], row):
            memcpy(&offset, self.columns[OFFSET].values + 8 * (self.columns[OFFSET].first + row), 8)
            return ValueError(f"the message at offset {offset} cannot be sent: {why}")
        return ValueError(f"a message cannot be sent: {why}")

    cdef uint8_t* room_for(self, size_t n) except NULL:
        """Room for n bytes behind those that are used."""
        cdef uint8_t* moved
        cdef size_t wanted = self.used + n
        if wanted > self.room:
            wanted = max(wanted, 2 * self.room, <size_t>1 << 20)
            moved = <uint8_t*>realloc(self.out, wanted)
            if moved == NULL:
                raise MemoryError(f"{wanted} bytes of messages")
            self.out = moved
            self.room = wanted
        return self.out + self.used

    cdef size_t headers_size(self, int64_t row, int64_t* begin, int64_t* end) except 0:
        """Bytes of the table of headers without its size, ours included; where the row's own are."""
        cdef const Column* lists = &self.columns[HEADERS]
        # u8 size and name, type, value: once more 4 for the size of a text
        cdef size_t size = 1 + PREFIX + 8 + 1 + 4 + len(self.producer) + 1 + PREFIX + 8 + 1 + 8
        cdef int64_t at
        cdef Text name, type_, value
        cdef uint8_t octet
        begin[0] = end[0] = 0
        if not lists.there or is_null(lists, row):
            return size
        begin[0] = lists.ends[lists.first + row]
        end[0] = lists.ends[lists.first + row + 1]
        for at in range(begin[0], end[0]):
            name = text_at(&self.columns[HEADER_NAME], at)
            type_ = text_at(&self.columns[HEADER_TYPE], at)
            value = text_at(&self.columns[HEADER_VALUE], at)
            if ours(name):
                continue
            if not name.there or name.n > SHORT_MAX:
                raise self.unsendable(row, f"a header's name has {name.n} bytes, and AMQP's has 1 to 255")
            octet = self.octet(row, name, type_)
            if not sized(octet, value):
                raise self.unsendable(row, f"header {shown(name)} is {shown(type_)}, and its value has {value.n} bytes")
            size += 2 + name.n + value.n + (4 if octet == c"S" or octet == c"x" else 0)
        return size

    cdef uint8_t octet(self, int64_t row, Text name, Text type_) except 0:
        if equals(type_, b"string", 6):          # nearly all
            return c"S"
        found = OCTETS.get(type_.p[:type_.n] if type_.there else b"")
        if found is None:
            raise self.unsendable(row, f"header {shown(name)} is of type {shown(type_)}, which AMQP does not know")
        return found

    cdef int put_message(self, int64_t row, uint64_t sequence) except -1:
        cdef Text* texts = self.texts
        cdef size_t key_size = 2 + texts[ADDRESS].n + texts[ROUTING_KEY].n, table, props = 2 + 4 + 1, i
        cdef size_t body_max = self.frame_max - 8, left = texts[PAYLOAD].n, part
        cdef int64_t begin, end, at, seconds = 0
        cdef uint16_t flags = 1 << 13 | 1 << 12          # headers, delivery-mode
        cdef int k
        cdef uint8_t priority = 0
        cdef uint8_t* p
        cdef const uint8_t* body = texts[PAYLOAD].p
        cdef Text name, type_, value
        cdef uint8_t octet
        cdef bint timed = self.columns[EVENT_TIME].there and not is_null(&self.columns[EVENT_TIME], row)
        table = self.headers_size(row, &begin, &end)
        props += table
        for k in range(CONTENT_TYPE, APP_ID + 1):
            if texts[k].there:
                flags |= BITS[k]
                props += 1 + texts[k].n
        if self.columns[PRIORITY].there and not is_null(&self.columns[PRIORITY], row):
            priority = self.columns[PRIORITY].values[self.columns[PRIORITY].first + row]
            if priority:
                flags |= 1 << 11
                props += 1
        if timed:
            memcpy(&seconds, self.columns[EVENT_TIME].values + 8 * (self.columns[EVENT_TIME].first + row), 8)
            if seconds < 0:
                raise self.unsendable(row, "its event_time is before 1970, which AMQP cannot say")
            seconds //= 1000000
            flags |= 1 << 6
            props += 8
        if 12 + props > self.frame_max - 8:
            raise self.unsendable(row, f"its properties have {props} bytes, and a frame at most {self.frame_max}")
        p = self.room_for(8 + 7 + key_size + 8 + 12 + props + left + 8 * (left // body_max + 1))
        # basic.publish
        p = put32(begin_frame(p, 1, <uint32_t>(7 + key_size)), 60 << 16 | 40)
        p = put_short(put16(p, 0), texts[ADDRESS].p, texts[ADDRESS].n)
        p = put_short(p, texts[ROUTING_KEY].p, texts[ROUTING_KEY].n)
        if self.mqtt and self.routing_key is None:
            for i in range(texts[ROUTING_KEY].n):        # levels of a topic are words of a key
                if (p - 1 - i)[0] == c"/":
                    (p - 1 - i)[0] = c"."
        p[0] = 0
        p[1] = 0xCE
        # header
        p = put64(put32(begin_frame(p + 2, 2, <uint32_t>(12 + props)), 60 << 16), left)
        p = put16(p, flags)
        for k in range(CONTENT_TYPE, CONTENT_ENCODING + 1):
            if texts[k].there:
                p = put_short(p, texts[k].p, texts[k].n)
        p = put32(p, <uint32_t>table)
        for at in range(begin, end):
            name = text_at(&self.columns[HEADER_NAME], at)
            if ours(name):
                continue
            type_ = text_at(&self.columns[HEADER_TYPE], at)
            value = text_at(&self.columns[HEADER_VALUE], at)
            octet = self.octet(row, name, type_)
            p = put_short(p, name.p, name.n)
            p[0] = octet
            p += 1
            if octet == c"S" or octet == c"x":
                p = put32(p, <uint32_t>value.n)
            p = put_raw(p, value.p, value.n)
        p = put_short(p, b"x-penstock-producer", PREFIX + 8)
        p[0] = c"S"
        p = put_raw(put32(p + 1, <uint32_t>len(self.producer)), <const char*>self.producer, len(self.producer))
        p = put_short(p, b"x-penstock-sequence", PREFIX + 8)
        p[0] = c"l"
        p = put64(p + 1, sequence)
        p[0] = 1 if self.transient(row) else 2
        p += 1
        if priority:
            p[0] = priority
            p += 1
        for k in range(CORRELATION_ID, APP_ID + 1):
            if k == TYPE and timed:
                p = put64(p, <uint64_t>seconds)
            if texts[k].there:
                p = put_short(p, texts[k].p, texts[k].n)
        p[0] = 0xCE
        p += 1
        while left:
            part = min(left, body_max)
            p = put_raw(begin_frame(p, 3, <uint32_t>part), body, part)
            p[0] = 0xCE
            p += 1
            body += part
            left -= part
        self.used = p - self.out
        return 0

    cdef bint transient(self, int64_t row) noexcept:
        cdef const Column* column = &self.columns[PERSISTENT]
        cdef int64_t at = column.first + row
        return column.there and not is_null(column, row) and not column.values[at >> 3] >> (at & 7) & 1


cdef const uint8_t* address(object buffer) except? NULL:
    cdef Py_buffer view
    cdef const uint8_t* p
    if buffer is None:
        return NULL
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    p = <const uint8_t*>view.buf
    PyBuffer_Release(&view)              # `kept` keeps it, and what is in it does not change
    return p


cdef str shown(Text text):
    return repr(text.p[:text.n].decode("utf-8", "replace")) if text.there else "''"
