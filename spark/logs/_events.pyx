# cython: auto_pickle=False
"""Blocks of events in the log to columns in Arrow's layout, a row per event.

Takes what `subscriptions/cursor/_events.pyx` appended: records of a log partition of its own. The walk over batches is that
of `_columns`. Names are copied out of the block as they are in it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.log_core.batch._batch cimport BATCH_HEADER, ENC_EVENTS, EVENTS_LP, RECORD_HEADER, BatchHeader, RecordHeader
from penstock.spark.logs._columns cimport (
    Column, Rows, put_bit, put_bytes, put_int, put_long, put_text, put_valid,
)

EVENT_NAMES = (
    "kind", "vhost", "partition", "offset", "index", "append_time", "message_offset", "queue", "connection", "user",
    "redelivered", "detail", "messages",
)
KIND_NAMES = (
    b"connect", b"disconnect", b"subscribe", b"unsubscribe", b"deliver", b"ack", b"requeue", b"dead_letter", b"drop",
    b"gap", b"publish",
)

cdef enum:
    KIND
    VHOST
    PARTITION
    OFFSET
    INDEX
    APPEND_TIME
    MESSAGE_OFFSET
    QUEUE
    CONNECTION
    USER
    REDELIVERED
    DETAIL
    MESSAGES
    HEAD = 16
    EVENT = 32
    VERSION = 1
    DELIVER = 4
    DROP = 8
    PUBLISH = 10


cdef struct Event:
    uint64_t pos
    uint32_t vhost, queue, connection, user, detail
    uint8_t kind, redelivered
    uint16_t positions


cdef class EventRows(Rows):
    cdef list texts                  # of the block being taken, by number
    cdef list verdicts               # whether the vhost of that number is wanted

    def __cinit__(self, columns, **options):
        self.texts = []
        self.verdicts = []

    cdef int take_batch(self, const BatchHeader* header, uint64_t first, uint64_t last) except -1:
        cdef const RecordHeader* record = <const RecordHeader*>(<const uint8_t*>header + BATCH_HEADER)
        cdef const uint8_t* blob = <const uint8_t*>header + header.blob_off
        cdef uint32_t k
        if header.lp != EVENTS_LP:
            return 0
        for k in range(header.count):
            if first <= header.base_lsn + k < last and record.enc == ENC_EVENTS:
                self.take_events(blob + record.off, record.size, header.base_lsn + k, (header.base_ts + record.ts) * 1000)
            record += 1
        return 0

    cdef int take_events(self, const uint8_t* p, size_t size, uint64_t lsn, int64_t time_us) except -1:
        cdef uint32_t head[4]
        cdef size_t at
        cdef uint32_t i, n
        cdef Event event
        if size < HEAD:
            raise ValueError(f"the events at {lsn} are cut off")
        memcpy(head, p, HEAD)
        if head[0] != VERSION:
            raise ValueError(f"the events at {lsn} are of version {head[0]}, which a newer penstock reads")
        at = HEAD + <size_t>head[1] * EVENT
        self.texts = [b""]
        for i in range(head[2]):
            if at + 4 > size:
                raise ValueError(f"the names of the events at {lsn} are cut off")
            memcpy(&n, p + at, 4)
            if n > size - at - 4:
                raise ValueError(f"the names of the events at {lsn} are cut off")
            self.texts.append((<const char*>p)[at + 4:at + 4 + n])
            at += 4 + n
        if at != size:
            raise ValueError(f"the events at {lsn} have {size - at} bytes too many")
        if self.wanted_vhosts is not None:
            self.verdicts = [text in self.wanted_vhosts for text in self.texts]
        for i in range(head[1]):
            memcpy(&event, p + HEAD + <size_t>i * EVENT, EVENT)
            if max(event.vhost, event.queue, event.connection, event.user, event.detail) > head[2]:
                raise ValueError(f"event {i} at {lsn} has a name that is not there")
            if self.wanted_vhosts is None or self.verdicts[event.vhost]:
                self.take_event(&event, lsn, i, time_us)
        self.nbytes += size
        return 0

    cdef int take_event(self, const Event* event, uint64_t lsn, uint32_t index, int64_t time_us) except -1:
        cdef Column* columns = self.columns
        cdef uint32_t row = self.count
        cdef bint of_message = DELIVER <= event.kind <= DROP or event.kind == PUBLISH
        cdef bytes kind
        if columns[KIND].wanted:
            kind = KIND_NAMES[event.kind] if event.kind < len(KIND_NAMES) else b"unknown"
            put_bytes(&columns[KIND], kind, len(kind))
        if columns[PARTITION].wanted:
            put_int(&columns[PARTITION], 0)
        if columns[OFFSET].wanted:
            put_long(&columns[OFFSET], <int64_t>lsn)
        if columns[INDEX].wanted:
            put_int(&columns[INDEX], <int32_t>index)
        if columns[APPEND_TIME].wanted:
            put_long(&columns[APPEND_TIME], time_us)
        if columns[MESSAGE_OFFSET].wanted:
            put_valid(&columns[MESSAGE_OFFSET], row, of_message)
            put_long(&columns[MESSAGE_OFFSET], <int64_t>event.pos)
        if columns[MESSAGES].wanted:
            put_valid(&columns[MESSAGES], row, event.kind == PUBLISH)
            put_int(&columns[MESSAGES], event.positions)
        if columns[REDELIVERED].wanted:
            put_valid(&columns[REDELIVERED], row, event.kind == DELIVER)
            put_bit(&columns[REDELIVERED].values, row, event.redelivered)
        self.put_name(VHOST, event.vhost)
        self.put_name(QUEUE, event.queue)
        self.put_name(CONNECTION, event.connection)
        self.put_name(USER, event.user)
        self.put_name(DETAIL, event.detail)
        self.count += 1
        return 0

    cdef int put_name(self, int k, uint32_t number) except -1:
        cdef bytes text
        if self.columns[k].wanted:
            text = self.texts[number]
            put_valid(&self.columns[k], self.count, number != 0)
            put_text(&self.columns[k], text, len(text))
        return 0
