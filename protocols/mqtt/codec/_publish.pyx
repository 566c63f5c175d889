"""One PUBLISH to a client: a record of the log is taken apart for MQTT, and encoded.

    u8 3<<4 | dup<<3 | qos<<1 | retain ; varint size ; u16 + topic ; [u16 packet id]
    ; 5.0: [varint + (record's properties, expiry counted down, subscription identifiers)] ; payload

Topic, properties and payload are copied from the log's batch, once. A record that was born in AMQP is translated
first (`penstock.protocols.properties.translate`), behind a memo of one: traffic comes in runs of the same key and properties.

Aliases towards the client are as many as it takes, first come.

Source: MQTT 5.0 section 3.3.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from penstock.log_core.batch._batch cimport ENC_AMQP091, ENC_MQTT5, F_EXACTLY_ONCE, F_PERSISTENT, F_RETAIN, Batch, RecordHeader
from penstock.protocols.mqtt.codec._wire cimport FROM_CLIENT, Block, varint_width, walk_block, write_varint
from penstock.protocols.net.outbuffer cimport OutBuffer

cdef enum:
    LARGEST = 268435455


cdef class PublishEncoder:
    def __init__(self, OutBuffer out not None, int version, object translate):
        self.out = out
        self.version = version
        self.max_packet = LARGEST
        self.aliases = {}
        self.translate = translate

    cdef int read(self, Batch batch, uint32_t index, int64_t now_ms, bint started, Message* message) except -1:
        """Take the record apart; 0 = it cannot be said in MQTT, or its time is over and it was never sent."""
        cdef RecordHeader* header = &batch.headers[index]
        cdef const uint8_t* start = batch.blob + header.off
        cdef const uint8_t* props = start + header.key
        cdef Py_ssize_t key_size = header.key, props_size = header.props
        cdef Block found
        cdef int64_t elapsed_s
        message.body = props + props_size
        message.body_size = <Py_ssize_t>header.size - key_size - props_size
        message.retain = (header.flags & F_RETAIN) != 0
        message.expiry_at = 0
        if header.enc == ENC_MQTT5:
            message.topic = start
            message.topic_size = key_size
            message.block = props
            message.block_size = props_size
            message.qos = 0 if not header.flags & F_PERSISTENT else 2 if header.flags & F_EXACTLY_ONCE else 1
        elif header.enc == ENC_AMQP091:
            if (self.foreign_key is None or PyBytes_GET_SIZE(self.foreign_key) != key_size
                    or PyBytes_GET_SIZE(self.foreign_props) != props_size
                    or memcmp(PyBytes_AS_STRING(self.foreign_key), start, key_size) != 0
                    or memcmp(PyBytes_AS_STRING(self.foreign_props), props, props_size) != 0):
                self.foreign_key = PyBytes_FromStringAndSize(<const char*>start, key_size)
                self.foreign_props = PyBytes_FromStringAndSize(<const char*>props, props_size)
                self.foreign_topic, self.foreign_block = self.translate(self.foreign_key, self.foreign_props)
            if self.foreign_topic is None:
                return 0
            message.topic = <const uint8_t*>PyBytes_AS_STRING(self.foreign_topic)
            message.topic_size = PyBytes_GET_SIZE(self.foreign_topic)
            message.block = <const uint8_t*>PyBytes_AS_STRING(self.foreign_block)
            message.block_size = PyBytes_GET_SIZE(self.foreign_block)
            message.qos = 1 if header.flags & F_PERSISTENT else 0
        else:
            return 0
        if message.block_size:
            walk_block(message.block, message.block_size, FROM_CLIENT, False, &found)
            if found.expiry_at:
                elapsed_s = (now_ms - batch.base_ts - header.ts) // 1000
                if elapsed_s < 0:
                    elapsed_s = 0
                if elapsed_s >= <int64_t>found.expiry_s:
                    if not started:
                        return 0
                    elapsed_s = found.expiry_s
                message.expiry_at = found.expiry_at
                message.remaining_s = found.expiry_s - <uint32_t>elapsed_s
        return 1

    cdef Py_ssize_t encode(self, OutBuffer out, Message* message, int first, uint32_t packet_id,
                           bytes ids) except -1:
        """One PUBLISH; its size, or 0 when it is larger than the client takes."""
        cdef Py_ssize_t block_size = 0, ids_size = 0, size, whole
        cdef Py_ssize_t topic_size = message.topic_size
        cdef uint8_t* start
        cdef uint8_t* p
        cdef uint32_t remaining, alias = 0
        cdef bint known = False
        # Held packets leave later than those that might rely on an alias they set.
        if self.alias_maximum and out is self.out:
            alias = self.alias_of(message, &known)
        while True:
            size = 2 + topic_size + message.body_size
            if known:
                size -= topic_size
            if packet_id:
                size += 2
            if self.version == 5:
                ids_size = PyBytes_GET_SIZE(ids)
                block_size = message.block_size + ids_size + (3 if alias else 0)
                if block_size > LARGEST:
                    return 0
                size += varint_width(<uint32_t>block_size) + block_size
            whole = 1 + varint_width(<uint32_t>size) + size
            if size <= LARGEST and whole <= <Py_ssize_t>self.max_packet:
                break
            if not alias or known:
                return 0
            alias = 0  # setting it made the packet too large
        if known:
            topic_size = 0
        elif alias:
            self.aliases[PyBytes_FromStringAndSize(<const char*>message.topic, topic_size)] = alias
        start = p = out.reserve(whole)
        p[0] = <uint8_t>first
        p = write_varint(p + 1, <uint32_t>size)
        p[0] = <uint8_t>(topic_size >> 8)
        p[1] = <uint8_t>topic_size
        memcpy(p + 2, message.topic, topic_size)
        p += 2 + topic_size
        if packet_id:
            p[0] = <uint8_t>(packet_id >> 8)
            p[1] = <uint8_t>packet_id
            p += 2
        if self.version == 5:
            p = write_varint(p, <uint32_t>block_size)
            if alias:
                p[0] = 0x23
                p[1] = <uint8_t>(alias >> 8)
                p[2] = <uint8_t>alias
                p += 3
            if message.block_size:
                memcpy(p, message.block, message.block_size)
                if message.expiry_at:
                    remaining = message.remaining_s
                    p[message.expiry_at] = remaining >> 24
                    p[message.expiry_at + 1] = remaining >> 16 & 255
                    p[message.expiry_at + 2] = remaining >> 8 & 255
                    p[message.expiry_at + 3] = remaining & 255
                p += message.block_size
            if ids_size:
                memcpy(p, PyBytes_AS_STRING(ids), ids_size)
                p += ids_size
        memcpy(p, message.body, message.body_size)
        out.commit(p + message.body_size - start)
        self.delivered_bytes += <uint64_t>message.body_size
        return whole

    cdef uint32_t alias_of(self, Message* message, bint* known) except? 0:
        """The topic's alias on this connection, a new one while there are any; 0 = none."""
        cdef object alias
        if message.topic_size <= 3:
            return 0
        alias = self.aliases.get(PyBytes_FromStringAndSize(<const char*>message.topic, message.topic_size))
        known[0] = alias is not None
        if alias is not None:
            return alias
        return len(self.aliases) + 1 if <uint32_t>len(self.aliases) < self.alias_maximum else 0

    cdef bint too_large(self, Message* message, bytes ids) noexcept:
        # 4 + 4: the widest varints; exact only where it matters.
        cdef Py_ssize_t size = 5 + 4 + 4 + message.topic_size + message.block_size + PyBytes_GET_SIZE(ids) + message.body_size
        cdef Py_ssize_t block
        if size <= <Py_ssize_t>self.max_packet and size <= LARGEST:
            return False
        size = 4 + message.topic_size + message.body_size
        if self.version == 5:
            block = message.block_size + PyBytes_GET_SIZE(ids)
            if block > LARGEST:
                return True
            size += varint_width(<uint32_t>block) + block
        return size > LARGEST or 1 + varint_width(<uint32_t>size) + size > <Py_ssize_t>self.max_packet
