"""Makes of what a source delivers what a target is sent: a read at a time, without an object per message.

    deliver   1 | channel u16 | size u32 | 60 u16 | 60 u16 | consumer tag | tag u64 | redelivered u8 | exchange | key | CE
    publish   1 | channel u16 | size u32 | 60 u16 | 40 u16 | 0 u16 | exchange | key | bits u8                       | CE

consumer tag, exchange and key are short strings: size u8 and bytes. Header and body frames pass as they are.
A deliver and its header are looked at together, so that a message which does not pass leaves no trace.

Source: AMQP 0-9-1, 2.3.5 and basic.deliver, basic.publish.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.protocols.links.amqp._frames cimport BODY, END, HEAD, HEADER, HEARTBEAT, METHOD, frame_end
from penstock.protocols.links.amqp._header_edit cimport HeaderEdit
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.protocols.properties._tables cimport load32, load64, store16, store32

cdef enum:
    DELIVER = 0x003C003C
    PUBLISH = 0x003C0028


cdef class Relay:

    def __init__(self, *, channel, publish=None, exchange=None, key=None, HeaderEdit change=None, left=-1):
        self._channel = channel
        self._publish = publish
        self._exchange = exchange
        self._key = key
        self._change = change
        self.left = left
        self._out = OutBuffer()
        self.out = b""
        self.others = []
        self.runs = []
        self.dropped = []

    def take(self, const uint8_t[::1] data not None):
        cdef Py_ssize_t size = data.shape[0]
        cdef const uint8_t* start = &data[0] if size else NULL
        cdef Py_ssize_t at = 0, end, used
        cdef uint8_t kind
        self.others = []
        self.runs = []
        self.dropped = []
        self._run = 0
        while True:
            end = frame_end(start, at, size)
            if end < 0:
                break
            kind = start[at]
            if kind == METHOD and end - at >= HEAD + 5 and load32(start + at + HEAD) == DELIVER:
                used = self._deliver(start, at, end, size)
                if used < 0:
                    break
                at = used
                continue
            if kind == HEADER or kind == BODY:
                if not self._skipping:
                    self._put(start + at, end - at)
            elif kind != HEARTBEAT:
                self.others.append((kind, start[at:end]))
            at = end
        self._close_run()
        self.out = self._out.take()
        return at

    cdef Py_ssize_t _deliver(self, const uint8_t* start, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size) except -2:
        """Take a deliver and its header: where they end, or -1 when the header is not whole yet."""
        cdef Py_ssize_t header_end = frame_end(start, end, size)
        cdef Py_ssize_t tag_at = at + HEAD + 5 + start[at + HEAD + 4]
        cdef Py_ssize_t exchange_at = tag_at + 9, key_at, key_end, used, before
        cdef uint64_t tag
        if header_end < 0:
            return -1
        key_at = exchange_at + 1 + start[exchange_at] if exchange_at < end else end
        key_end = key_at + 1 + start[key_at] if key_at < end else end
        if key_end + 1 != end or start[end] != HEADER:
            raise ValueError("the broker sent no frame of AMQP")
        if self.left == 0:
            self._skipping = True
            return header_end
        tag = load64(start + tag_at)
        before = self._out.size
        if self._publish is not None:
            self._put(<const uint8_t*>PyBytes_AS_STRING(self._publish), PyBytes_GET_SIZE(self._publish))
        else:
            self._put_publish(start + exchange_at, start + key_at)
        # Mostly the body is one frame, and there: both are copied at once.
        used = header_end
        if header_end < size and start[header_end] == BODY:
            used = max(frame_end(start, header_end, size), header_end)
        if self._change is None:
            self._put(start + end, used - end)
        elif self._change.put(self._out, start + end, header_end - end, start[tag_at + 8] != 0):
            self._put(start + header_end, used - header_end)
        else:
            self._out.size = before
            self._skipping = True
            self.dropped.append(tag)
            return used
        self._skipping = False
        if self.left > 0:
            self.left -= 1
        if self._run == 0 or tag != self._tag + <uint64_t>self._run:
            self._close_run()
            self._tag = tag
        self._run += 1
        return used

    cdef int _put_publish(self, const uint8_t* exchange, const uint8_t* key) except -1:
        """`exchange` and `key` are the message's own, as short strings; what was given counts instead."""
        cdef Py_ssize_t size
        cdef uint8_t* p
        if self._exchange is not None:
            exchange = <const uint8_t*>PyBytes_AS_STRING(self._exchange)
        if self._key is not None:
            key = <const uint8_t*>PyBytes_AS_STRING(self._key)
        size = 4 + 2 + 1 + exchange[0] + 1 + key[0] + 1
        p = self._out.reserve(HEAD + size + 1)
        p[0] = METHOD
        store16(p + 1, self._channel)
        store32(p + 3, <uint32_t>size)
        store32(p + HEAD, PUBLISH)
        store16(p + HEAD + 4, 0)
        p += HEAD + 6
        memcpy(p, exchange, 1 + exchange[0])
        p += 1 + exchange[0]
        memcpy(p, key, 1 + key[0])
        p += 1 + key[0]
        p[0] = 0
        p[1] = END
        self._out.commit(HEAD + size + 1)
        return 0

    cdef int _put(self, const uint8_t* data, Py_ssize_t size) except -1:
        memcpy(self._out.reserve(size), data, size)
        self._out.commit(size)
        return 0

    cdef int _close_run(self) except -1:
        if self._run:
            self.runs.append((self._tag, self._run))
            self._run = 0
        return 0
