# cython: auto_pickle=False
"""Makes of what one broker sends what a bridge sends the other one: a read at a time.

    PUBLISH    3<<4 | DUP 8, QoS 6, RETAIN 1 | size varint | topic size u16, topic | id u16 (QoS 1, 2)
               | properties, size varint (5.0) | payload
    PUBACK, PUBREC, PUBREL, PUBCOMP    kind<<4 | size varint | id u16 | reason u8 (5.0, may be missing) | properties (5.0)

A PUBLISH gets the name of its topic at the target. Answers pass with their packet ids. A target gets no more
messages of QoS 1 and 2 at a time than half of what it takes: what is left of an earlier connection counts, too,
until its PUBREL has come. Others are held.

Source: MQTT 3.1.1 and 5.0, chapters 2 and 3.
"""

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from penstock.protocols.mqtt.codec import packets
from penstock.protocols.mqtt.codec._wire cimport read_varint, varint_width, write_varint
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.protocols.properties._tables cimport load16, store16

cdef enum:
    QOS = 6
    RETAIN = 1
    REFUSED = 0x80
    NAMES_MOST = 4096
    HEAD_MOST = 5
    LARGEST = 268435455
    TEXT_MOST = 65535

cdef uint8_t PUBLISH = packets.PUBLISH
cdef uint8_t PUBACK = packets.PUBACK
cdef uint8_t PUBREC = packets.PUBREC
cdef uint8_t PUBCOMP = packets.PUBCOMP
cdef uint8_t DISCONNECT = packets.DISCONNECT


cdef class InFlight:

    def __init__(self, Py_ssize_t receive_maximum):
        self.most = max(receive_maximum // 2, 1)
        self._held = deque()
        memset(self._ids, 0, sizeof(self._ids))

    cdef int send(self, OutBuffer out, Py_ssize_t start, uint16_t packet_id) except -1:
        """The output from `start` on is a message of this id: let it go, or hold it."""
        cdef uint8_t bit = <uint8_t>(1 << (packet_id & 7))
        if self.count >= self.most:
            self._held.append((packet_id, PyBytes_FromStringAndSize(<char*>out._start + start, out.size - start)))
            out.size = start
            return 0
        if not self._ids[packet_id >> 3] & bit:
            self._ids[packet_id >> 3] |= bit
            self.count += 1
        return 0

    cdef int answered(self, OutBuffer out, uint16_t packet_id) except -1:
        """The broker is done with a message: those that are held may go."""
        cdef uint8_t bit = <uint8_t>(1 << (packet_id & 7))
        cdef Py_ssize_t start
        if self._ids[packet_id >> 3] & bit:
            self._ids[packet_id >> 3] &= <uint8_t>~bit
            self.count -= 1
        while self._held and self.count < self.most:
            held_id, packet = self._held.popleft()
            start = out.size
            out.write(packet)
            self.send(out, start, held_id)
        return 0


cdef class Relay:

    def __init__(self, InFlight source not None, InFlight target not None, *, bint from_5, bint to_5, name_of,
                 bint keeps_retain, Py_ssize_t most):
        self._back = source
        self._on = target
        self._from_5 = from_5
        self._to_5 = to_5
        self._keeps_retain = keeps_retain
        self._most = most
        self._name_of = name_of
        self._names = {}
        self._out = OutBuffer()
        self._answers = OutBuffer()
        self.out = self.answers = b""
        self.reasons = []
        self.ended = -1

    def take(self, const uint8_t[::1] data not None):
        cdef Py_ssize_t end = data.shape[0], at = 0, width, size
        cdef const uint8_t* p
        cdef uint32_t length
        cdef uint8_t kind
        self.forwarded = self.unnamed = self.too_large = 0
        self.reasons = []
        while end - at >= 2:
            p = &data[at]
            width = read_varint(p + 1, end - at - 1, &length)
            if width < 0:
                raise ValueError("it sent no packet of MQTT")
            if width == 0 or end - at - 1 - width < <Py_ssize_t>length:
                break
            size = 1 + width + <Py_ssize_t>length
            kind = p[0] >> 4
            if kind == PUBLISH:
                self._publish(p, size, 1 + width)
            elif PUBACK <= kind <= PUBCOMP:
                self._answer(p, size, 1 + width)
            elif kind == DISCONNECT and self.ended < 0:
                self.ended = p[2] if length else 0
            at += size
        self.out = self._out.take()
        self.answers = self._answers.take()
        return at

    cdef int _publish(self, const uint8_t* p, Py_ssize_t size, Py_ssize_t at) except -1:
        """The topic of the packet begins at `at`."""
        cdef uint8_t flags = p[0] & 0x0F, qos = (flags & QOS) >> 1
        cdef Py_ssize_t topic_end, id_end, width, start = self._out.size, whole, block = 0
        cdef uint32_t properties = 0
        cdef uint16_t packet_id = 0
        cdef uint8_t* out
        topic_end = at + 2 + load16(p + at) if size - at >= 2 else size + 1
        id_end = topic_end + (2 if qos else 0)
        if id_end > size:
            raise ValueError("it sent no packet of MQTT")
        if qos:
            packet_id = load16(p + topic_end)
        if self._from_5:
            width = read_varint(p + id_end, size - id_end, &properties)
            if width <= 0 or size - id_end - width < <Py_ssize_t>properties:
                raise ValueError("it sent no packet of MQTT")
            block = width + <Py_ssize_t>properties
        if not self._keeps_retain:
            flags &= ~RETAIN
        self._named(p + at + 2, topic_end - at - 2)
        if self._name is None:
            self.unnamed += 1
            return self._refuse(qos, packet_id)
        # Behind the size stand topic, id, properties of 5.0 and payload.
        whole = 2 + PyBytes_GET_SIZE(self._name) + (2 if qos else 0) + size - id_end - block
        if self._to_5:
            whole += block if self._from_5 else 1
        if whole > LARGEST or 1 + varint_width(<uint32_t>whole) + whole > self._most:
            self.too_large += 1
            return self._refuse(qos, packet_id)
        out = self._out.reserve(HEAD_MOST + whole)
        out[0] = PUBLISH << 4 | flags
        out = write_varint(out + 1, <uint32_t>whole)
        store16(out, <uint16_t>PyBytes_GET_SIZE(self._name))
        memcpy(out + 2, PyBytes_AS_STRING(self._name), PyBytes_GET_SIZE(self._name))
        out += 2 + PyBytes_GET_SIZE(self._name)
        if qos:
            store16(out, packet_id)
            out += 2
        if self._to_5:
            if self._from_5:
                memcpy(out, p + id_end, block)
                out += block
            else:
                out[0] = 0
                out += 1
        memcpy(out, p + id_end + block, size - id_end - block)
        self._out.commit(1 + varint_width(<uint32_t>whole) + whole)
        if qos:
            return self._on.send(self._out, start, packet_id)
        self.forwarded += 1
        return 0

    cdef int _named(self, const uint8_t* topic, Py_ssize_t size) except -1:
        """Set `_name` to the name of a topic at the target."""
        cdef bytes found
        if (self._topic is not None and PyBytes_GET_SIZE(self._topic) == size
                and memcmp(PyBytes_AS_STRING(self._topic), topic, size) == 0):
            return 0
        found = PyBytes_FromStringAndSize(<const char*>topic, size)
        if found not in self._names:
            if len(self._names) >= NAMES_MOST:
                self._names.clear()
            try:
                name = self._name_of(found.decode())
            except UnicodeDecodeError:
                raise ValueError("it sent a topic that is not UTF-8") from None
            made = None if name is None else name.encode()
            self._names[found] = None if made is None or len(made) > TEXT_MOST else made
        self._topic = found
        self._name = self._names[found]
        return 0

    cdef int _refuse(self, uint8_t qos, uint16_t packet_id) except -1:
        """Take a message that cannot cross off its sender; its PUBREL is answered by the other side."""
        cdef uint8_t* p
        if qos:
            p = self._answers.reserve(4)
            p[0] = (PUBACK if qos == 1 else PUBREC) << 4
            p[1] = 2
            store16(p + 2, packet_id)
            self._answers.commit(4)
        return 0

    cdef int _answer(self, const uint8_t* p, Py_ssize_t size, Py_ssize_t at) except -1:
        """Pass on a PUBACK, PUBREC, PUBREL or PUBCOMP, whose packet id is at `at`; MQTT 3 has no reasons."""
        cdef uint8_t kind = p[0] >> 4, reason = 0
        cdef uint8_t* out = self._out.reserve(size)
        if size - at < 2:
            raise ValueError("it sent no packet of MQTT")
        if self._from_5 and size - at > 2:
            reason = p[at + 2]
        if self._from_5 and not self._to_5:
            out[0] = p[0]
            out[1] = 2
            memcpy(out + 2, p + at, 2)
            self._out.commit(4)
        else:
            memcpy(out, p, size)
            self._out.commit(size)
        if kind == PUBACK or kind == PUBREC:
            if reason < REFUSED:
                self.forwarded += 1
            else:
                self.reasons.append(reason)
        if kind == PUBACK or kind == PUBCOMP or (kind == PUBREC and reason >= REFUSED):
            self._back.answered(self._answers, load16(p + at))
        return 0
