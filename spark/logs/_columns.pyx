# cython: auto_pickle=False
"""Batches of the log to columns in Arrow's layout, without a Python object per record.

Owns the buffers of one chunk of rows and the walk over a stretch of a segment's bytes. Which rows are wanted
is decided per batch (log partition), per record (LSN, encoding) and per distinct key block: `decide` is asked
once about each, and the answer kept. Knows the layouts of batches (docs/reference/format.md); those of properties are
`_properties`'. Knows nothing of files or Spark.

A column is Arrow's: a bitmap of validity, then values, or int32 offsets and bytes; lists of headers have the
offsets and three text columns of their own. Text of peers that is no UTF-8 gets U+FFFD for each wrong byte.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from penstock.log_core.batch._batch cimport (
    BATCH_HEADER, ENC_AMQP091, ENC_MQTT5, ENC_NATIVE, EVENTS_LP, F_DELAYED, F_EXACTLY_ONCE, F_HALF, F_LIST, F_PERSISTENT,
    F_RETAIN, KIND_BLOCK, KIND_RECORDS, RECORD_HEADER, BatchHeader, Found, RecordHeader, check_batch,
    columns_size,
)
from penstock.log_core.batch._blocks cimport Walker
from penstock.spark.logs._properties cimport (
    ADDRESS, ALL_COLUMNS, APPEND_TIME, COLUMNS, CORRELATION_ID, EVENT_TIME, EXPIRES_AT, FEEDS, HEADERS,
    HEADER_NAME, HEADER_TYPE, HEADER_VALUE, MESSAGE_ID, OFFSET, PARTITION, PAYLOAD, PAYLOAD_SIZE, PERSISTENT, PRIORITY,
    PROTOCOL, QOS, RETAIN, ROUTING_KEY, USER_ID, VHOST, Properties, Slice, mqtt_property, read_amqp,
    read_mqtt, type_name, value_size,
)

COLUMN_NAMES = (
    "protocol", "vhost", "address", "routing_key", "partition", "offset", "append_time", "event_time", "expires_at",
    "priority", "qos", "persistent", "retain", "feeds", "message_id", "correlation_id", "reply_to",
    "content_type", "content_encoding", "type", "app_id", "user_id", "headers", "payload_size", "payload",
)

if len(COLUMN_NAMES) != COLUMNS:
    raise AssertionError("a column without a name")

cdef enum:
    KEYS_MAX = 1048576               # key blocks whose verdict is kept
    SPARES = 32                      # buffers that wait for the next rows
    SPARE_BYTES_MIN = 65536
    SPARE_BYTES_MAX = 67108864       # of all of them
    SECONDS_MAX = 253402300800       # the year 10000: a larger AMQP timestamp is none

# --- memory ---
#
# Large buffers that were freed are kept for the next rows: memory that comes from the kernel anew costs as
# much again as what is put into it.

cdef Spare[SPARES] spares
cdef size_t spare_count = 0, spare_bytes = 0


cdef uint8_t* take_spare(size_t* room) noexcept:
    # The smallest spare buffer with this room, but not four times as much; NULL: there is none.
    global spare_count, spare_bytes
    cdef size_t i, best = SPARES
    cdef uint8_t* data
    for i in range(spare_count):
        if room[0] <= spares[i].room <= 4 * room[0] and (best == SPARES or spares[i].room < spares[best].room):
            best = i
    if best == SPARES:
        return NULL
    data = spares[best].data
    room[0] = spares[best].room
    spare_count -= 1
    spare_bytes -= room[0]
    spares[best] = spares[spare_count]
    return data


cdef void given_back(uint8_t* data, size_t room) noexcept:
    global spare_count, spare_bytes
    if room < SPARE_BYTES_MIN or spare_count == SPARES or spare_bytes + room > SPARE_BYTES_MAX:
        free(data)
        return
    spares[spare_count] = Spare(data, room)
    spare_count += 1
    spare_bytes += room


@cython.final
cdef class Buffer:
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef size_t room

    def __dealloc__(self):
        given_back(self.data, self.room)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


cdef uint8_t* grown(Bytes* into, size_t n) except NULL:
    # Room for n more bytes behind the last one, which are counted as used.
    cdef size_t wanted = into.size + n, room
    cdef uint8_t* moved
    if wanted > into.room or into.data == NULL:
        room = max(2 * into.room, wanted + 64, <size_t>4096)
        moved = NULL
        if into.data == NULL:
            room = max(room, into.last)
            moved = take_spare(&room)
        if moved == NULL:
            moved = <uint8_t*>realloc(into.data, room)
        if moved == NULL:
            raise MemoryError(f"{room} bytes of a column")
        into.data = moved
        into.room = room
    into.size = wanted
    return into.data + wanted - n


cdef Buffer released(Bytes* bytes_):
    cdef Buffer buffer = Buffer.__new__(Buffer)
    if bytes_.data == NULL:
        grown(bytes_, 0)
    buffer.data = bytes_.data
    buffer.size = <Py_ssize_t>bytes_.size
    buffer.room = bytes_.last = bytes_.room
    bytes_.data = NULL
    bytes_.size = bytes_.room = 0
    return buffer


cdef int put_bit(Bytes* bits, uint32_t row, bint value) except -1:
    if row & 7 == 0:
        grown(bits, 1)[0] = 0
    if value:
        bits.data[row >> 3] |= <uint8_t>(1 << (row & 7))
    return 0


cdef int put_valid(Column* column, uint32_t row, bint valid) except -1:
    put_bit(&column.valid, row, valid)
    if not valid:
        column.nulls += 1
    return 0


cdef int put_long(Column* column, int64_t value) except -1:
    memcpy(grown(&column.values, 8), &value, 8)
    return 0


cdef int put_int(Column* column, int32_t value) except -1:
    memcpy(grown(&column.values, 4), &value, 4)
    return 0


cdef int put_end(Column* column) except -1:
    cdef int32_t end = <int32_t>column.values.size
    memcpy(grown(&column.ends, 4), &end, 4)
    return 0


cdef int put_bytes(Column* column, const uint8_t* p, size_t n) except -1:
    if n:
        memcpy(grown(&column.values, n), p, n)
    return put_end(column)


cdef size_t utf8_size(const uint8_t* p, size_t n) noexcept nogil:
    # Bytes of the valid UTF-8 sequence at p, 0 when there is none (RFC 3629, section 4).
    cdef uint8_t c = p[0]
    if c < 0x80:
        return 1
    if c < 0xC2 or c > 0xF4:
        return 0
    if n < 2 or p[1] & 0xC0 != 0x80:
        return 0
    if c < 0xE0:
        return 2
    if (c == 0xE0 and p[1] < 0xA0) or (c == 0xED and p[1] > 0x9F) or (c == 0xF0 and p[1] < 0x90) or (
            c == 0xF4 and p[1] > 0x8F):
        return 0
    if n < 3 or p[2] & 0xC0 != 0x80:
        return 0
    if c < 0xF0:
        return 3
    return 4 if n > 3 and p[3] & 0xC0 == 0x80 else 0


cdef int put_text(Column* column, const uint8_t* p, size_t n) except -1:
    cdef size_t i = 0, size
    cdef uint64_t word
    while i + 8 <= n:
        memcpy(&word, p + i, 8)
        if word & <uint64_t>0x8080808080808080:
            break
        i += 8
    while i < n:
        size = utf8_size(p + i, n - i)
        if size == 0:
            break
        i += size
    if i == n:
        return put_bytes(column, p, n)
    i = 0
    while i < n:
        size = utf8_size(p + i, n - i)
        if size:
            memcpy(grown(&column.values, size), p + i, size)
            i += size
        else:
            memcpy(grown(&column.values, 3), b"\xef\xbf\xbd", 3)
            i += 1
    return put_end(column)


# --- rows ---

cdef class Rows:
    def __cinit__(self, columns, *, dict vhosts not None, decide=None, wanted_vhosts=None, uint32_t encodings=0,
                  int64_t payload_max=-1, tuple names=COLUMN_NAMES):
        cdef int k
        unknown = set(columns).difference(names)
        if unknown:
            raise ValueError(f"no such columns: {', '.join(sorted(unknown))}")
        self.names = names
        for k in range(<int>len(names)):
            self.columns[k].wanted = names[k] in columns
            if self.columns[k].wanted and (MESSAGE_ID <= k <= HEADERS or k == EVENT_TIME):
                self.wants_properties = True
        self.gaps = []
        self.walker = Walker()
        self.vhosts = vhosts
        self.decide = decide
        self.wanted_vhosts = wanted_vhosts
        self.encodings = encodings
        self.payload_max = payload_max
        self.mask = 1023
        self.keys = <Key*>calloc(self.mask + 1, sizeof(Key))
        if self.keys == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef int k
        if self.keys != NULL:
            self.forget()
            free(self.keys)
        for k in range(ALL_COLUMNS):
            free(self.columns[k].valid.data)
            free(self.columns[k].values.data)
            free(self.columns[k].ends.data)

    cdef void forget(self) noexcept:
        cdef size_t i
        for i in range(self.mask + 1):
            free(self.keys[i].block)
        memset(self.keys, 0, (self.mask + 1) * sizeof(Key))
        self.known = 0

    cdef Key* find(self, uint8_t enc, const uint8_t* block, uint32_t size, uint64_t hashed) noexcept nogil:
        cdef size_t at = <size_t>(hashed ^ (hashed >> 32)) & self.mask
        cdef Key* key
        while True:
            key = &self.keys[at]
            if key.block == NULL or (key.hash == hashed and key.size == size and key.block[0] == enc
                                     and memcmp(key.block + 1, block, size) == 0):
                return key
            at = (at + 1) & self.mask

    cdef int grow_keys(self) except -1:
        cdef size_t old = self.mask + 1, i, at
        cdef Key* keys = <Key*>calloc(2 * old, sizeof(Key))
        if keys == NULL:
            raise MemoryError()
        for i in range(old):
            if self.keys[i].block != NULL:
                at = <size_t>(self.keys[i].hash ^ (self.keys[i].hash >> 32)) & (2 * old - 1)
                while keys[at].block != NULL:
                    at = (at + 1) & (2 * old - 1)
                keys[at] = self.keys[i]
        free(self.keys)
        self.keys = keys
        self.mask = 2 * old - 1
        return 0

    cdef bint is_wanted(self, uint8_t enc, const uint8_t* block, uint32_t size) except -1:
        cdef uint64_t hashed = (<uint64_t>14695981039346656037ULL ^ enc) * <uint64_t>1099511628211ULL
        cdef uint32_t i
        cdef Key* key
        cdef bint wanted
        for i in range(size):
            hashed = (hashed ^ block[i]) * <uint64_t>1099511628211ULL
        key = self.find(enc, block, size, hashed)
        if key.block != NULL:
            return key.wanted
        wanted = self.decide(enc, block[:size])
        if self.known == KEYS_MAX:
            self.forget()
        if 2 * self.known > self.mask:
            self.grow_keys()
        key = self.find(enc, block, size, hashed)
        key.block = <uint8_t*>malloc(<size_t>size + 1)
        if key.block == NULL:
            raise MemoryError()
        key.block[0] = enc
        memcpy(key.block + 1, block, size)
        key.hash = hashed
        key.size = size
        key.wanted = wanted
        self.known += 1
        return wanted

    def take(self, const uint8_t[::1] data not None, size_t at, uint64_t first, uint64_t last, uint32_t epoch,
             uint32_t rows_max, uint64_t bytes_max):
        cdef size_t size = <size_t>data.shape[0]
        cdef const uint8_t* p
        cdef const BatchHeader* header
        cdef Found found
        cdef int verdict
        while (at + BATCH_HEADER <= size and self.next_lsn < last and self.count < rows_max
               and self.nbytes < bytes_max):
            p = &data[at]
            header = <const BatchHeader*>p
            if header.len > size - at:
                return at, header.len, None, 0, 0
            with nogil:
                verdict = check_batch(p, size - at, &found)
            if verdict == 0:
                return at, 0, "zeros where a batch was written", 0, 0
            if verdict < 0:
                return at, 0, found.reason.decode(), found.crc_expected, found.crc_found
            if header.shard_epoch != epoch:
                return at, 0, "a batch of another epoch", 0, 0
            if header.kind == KIND_BLOCK:
                if header.base_pos > first and self.enter_block(header, first, last) < 0:
                    return at, 0, self.walker.found.reason.decode(), 0, 0
            else:
                self.enter(header, first, last)
            at += header.len
        return at, 0, None, 0, 0

    cdef int enter_block(self, const BatchHeader* block, uint64_t first, uint64_t last) except -2:
        # -1: it does not decode, or holds something else than batches of records.
        cdef const BatchHeader* header
        if self.walker.enter(block) < 0:
            return -1
        while self.walker.inside():
            header = self.walker.next_inside()
            if header == NULL:
                return -1
            self.enter(header, first, last)
        return 0

    cdef int enter(self, const BatchHeader* header, uint64_t first, uint64_t last) except -1:
        if header.base_lsn > self.next_lsn and self.next_lsn < last:
            self.gaps.append((self.next_lsn, min(header.base_lsn, last)))
        if header.kind == KIND_RECORDS and header.base_lsn < last and header.base_lsn + header.count > first:
            self.take_batch(header, first, last)
        self.next_lsn = max(self.next_lsn, min(header.base_lsn + header.count, last))
        return 0

    cdef int take_batch(self, const BatchHeader* header, uint64_t first, uint64_t last) except -1:
        cdef const RecordHeader* record = <const RecordHeader*>(<const uint8_t*>header + BATCH_HEADER)
        cdef const uint8_t* blob = <const uint8_t*>header + header.blob_off
        cdef bytes vhost = self.vhosts.get(header.lp, b"")
        cdef const uint8_t* vhost_p = vhost
        cdef size_t vhost_size = len(vhost)
        cdef uint32_t k
        self.lists = <const uint32_t*>(<const uint8_t*>record + <size_t>header.count * RECORD_HEADER
                                       + columns_size(header.cols, header.count))
        if header.lp == EVENTS_LP:           # of another table
            return 0
        if self.wanted_vhosts is not None and vhost not in self.wanted_vhosts:
            return 0
        for k in range(header.count):
            if (first <= header.base_lsn + k < last and not record.flags & (F_DELAYED | F_HALF)
                    and (self.encodings == 0 or self.encodings >> record.enc & 1)
                    and (self.decide is None or self.is_wanted(record.enc, blob + record.off, record.key))):
                self.take_record(header, record, header.base_lsn + k, blob + record.off, vhost_p, vhost_size)
            record += 1
        return 0

    cdef int take_record(self, const BatchHeader* header, const RecordHeader* record, uint64_t lsn,
                         const uint8_t* p, const uint8_t* vhost, size_t vhost_size) except -1:
        cdef Column* columns = self.columns
        cdef uint32_t row = self.count
        cdef int64_t time_us = (header.base_ts + record.ts) * 1000
        cdef size_t body = record.size - record.key - record.props, split
        cdef Properties found
        cdef bint valid
        cdef int k
        if self.wants_properties:
            memset(&found, 0, sizeof(found))
            if record.enc == ENC_AMQP091:
                read_amqp(p + record.key, record.props, &found)
            elif record.enc == ENC_MQTT5:
                read_mqtt(p + record.key, record.props, &found)
        if columns[PROTOCOL].wanted:
            if record.enc == ENC_AMQP091:
                put_bytes(&columns[PROTOCOL], b"amqp091", 7)
            elif record.enc == ENC_MQTT5:
                put_bytes(&columns[PROTOCOL], b"mqtt", 4)
            elif record.enc == ENC_NATIVE:
                put_bytes(&columns[PROTOCOL], b"native", 6)
            else:
                put_bytes(&columns[PROTOCOL], b"none", 4)
        if columns[VHOST].wanted:
            put_valid(&columns[VHOST], row, vhost_size > 0)
            put_text(&columns[VHOST], vhost, vhost_size)
        # AMQP: exchange and routing key, each behind its size; else the topic, which stands for both.
        split = 0
        if record.enc == ENC_AMQP091 and record.key >= 2 and <size_t>p[0] + 2 <= record.key:
            split = 1 + p[0]
        if columns[ADDRESS].wanted:
            if split:
                put_text(&columns[ADDRESS], p + 1, split - 1)
            else:
                put_text(&columns[ADDRESS], p, record.key)
        if columns[ROUTING_KEY].wanted:
            if split:
                put_text(&columns[ROUTING_KEY], p + split + 1, record.key - split - 1)
            else:
                put_text(&columns[ROUTING_KEY], p, record.key)
        if columns[PARTITION].wanted:
            put_int(&columns[PARTITION], 0)
        if columns[OFFSET].wanted:
            put_long(&columns[OFFSET], <int64_t>lsn)
        if columns[APPEND_TIME].wanted:
            put_long(&columns[APPEND_TIME], time_us)
        if columns[EVENT_TIME].wanted:
            valid = 0 < found.timestamp < <uint64_t>SECONDS_MAX
            put_long(&columns[EVENT_TIME], <int64_t>found.timestamp * 1000000 if valid else time_us)
        if columns[EXPIRES_AT].wanted:
            put_valid(&columns[EXPIRES_AT], row, record.ttl != 0)
            put_long(&columns[EXPIRES_AT], time_us + <int64_t>record.ttl * 1000)
        if columns[PRIORITY].wanted:
            grown(&columns[PRIORITY].values, 1)[0] = record.priority
        if columns[QOS].wanted:
            put_valid(&columns[QOS], row, record.enc == ENC_MQTT5)
            grown(&columns[QOS].values, 1)[0] = (
                0 if not record.flags & F_PERSISTENT else 2 if record.flags & F_EXACTLY_ONCE else 1)
        if columns[PERSISTENT].wanted:
            put_bit(&columns[PERSISTENT].values, row, record.flags & F_PERSISTENT != 0)
        if columns[RETAIN].wanted:
            put_bit(&columns[RETAIN].values, row, record.flags & F_RETAIN != 0)
        if columns[FEEDS].wanted:
            put_int(&columns[FEEDS], <int32_t>self.lists[record.feed] if record.flags & F_LIST
                    else record.feed != 0)
        if self.wants_properties:
            for k in range(MESSAGE_ID, USER_ID + 1):
                if columns[k].wanted:
                    put_valid(&columns[k], row, found.texts[k].p != NULL)
                    if k == CORRELATION_ID:
                        put_bytes(&columns[k], found.texts[k].p, found.texts[k].n)
                    else:
                        put_text(&columns[k], found.texts[k].p, found.texts[k].n)
            if columns[HEADERS].wanted:
                if record.enc == ENC_AMQP091:
                    self.take_table(found.headers.p, found.headers.n)
                elif found.pairs:
                    self.take_pairs(found.headers.p, found.headers.n)
                memcpy(grown(&columns[HEADERS].ends, 4), &self.header_count, 4)
        if columns[PAYLOAD_SIZE].wanted:
            put_int(&columns[PAYLOAD_SIZE], <int32_t>body)
        if columns[PAYLOAD].wanted:
            if self.payload_max >= 0 and body > <size_t>self.payload_max:
                body = <size_t>self.payload_max
            put_bytes(&columns[PAYLOAD], p + record.key + record.props, body)
        self.count += 1
        self.nbytes += record.size
        return 0

    cdef int put_header(self, const uint8_t* name, size_t name_size, const char* type_, size_t type_size,
                        const uint8_t* value, size_t size) except -1:
        put_text(&self.columns[HEADER_NAME], name, name_size)
        put_bytes(&self.columns[HEADER_TYPE], <const uint8_t*>type_, type_size)
        put_bytes(&self.columns[HEADER_VALUE], value, size)
        self.header_count += 1
        return 0

    cdef int take_table(self, const uint8_t* p, size_t n) except -1:
        cdef size_t at = 0, name, size, skip
        cdef const char* type_
        while at < n:
            name = p[at]
            if name + 2 > n - at:
                return 0
            type_ = type_name(p[at + 1 + name])
            if type_ == NULL:
                return 0
            size = value_size(p[at + 1 + name], p + at + 2 + name, n - at - 2 - name)
            if size > n - at - 2 - name:
                return 0
            # The value of a text and of bytes goes without the size in front of it.
            skip = 4 if p[at + 1 + name] == c"S" or p[at + 1 + name] == c"x" else 0
            self.put_header(p + at + 1, name, type_, len(type_), p + at + 2 + name + skip, size - skip)
            at += 2 + name + size
        return 0

    cdef int take_pairs(self, const uint8_t* p, size_t n) except -1:
        cdef size_t at = 0, size
        cdef Slice first, second
        while at < n:
            size = mqtt_property(p + at, n - at, &first, &second)
            if size == 0:
                return 0
            if p[at] == 0x26:
                self.put_header(first.p, first.n, b"string", 6, second.p, second.n)
            at += size
        return 0

    def release(self):
        cdef list found = []
        cdef int k
        cdef uint32_t count = self.count, headers = self.header_count
        for k in range(<int>len(self.names)):
            if self.columns[k].wanted:
                found.append((self.names[k], *self.release_column(k)))
        children = []
        if self.columns[HEADERS].wanted:
            children = [self.release_column(k) for k in range(HEADER_NAME, ALL_COLUMNS)]
        self.count = self.header_count = 0
        self.nbytes = 0
        return count, found, headers, children

    cdef tuple release_column(self, int k):
        cdef Column* column = &self.columns[k]
        cdef Buffer valid = None, values, ends = None
        cdef uint32_t nulls = column.nulls
        if column.valid.size:
            valid = released(&column.valid)
            if nulls == 0:
                valid = None
        if column.ends.size or k == HEADERS or k >= HEADER_NAME:
            ends = with_zero(&column.ends)
        values = released(&column.values)
        column.nulls = 0
        return nulls, valid, values, ends


cdef Buffer with_zero(Bytes* ends):
    # The offsets of a column begin with 0, which the rows did not write.
    grown(ends, 4)
    memmove(ends.data + 4, ends.data, ends.size - 4)
    memset(ends.data, 0, 4)
    return released(ends)
