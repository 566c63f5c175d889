"""WebSocket frames of clients: unmasked and taken out of the stream in place.

    +-+---+-------+-+-------------+-------------------------------+
    |F|RSV|opcode |M| len (7)     | length, 16 or 64 bits, if len |   FIN, reserved bits (0), MASK (always 1
    |I|   |  (4)  |A|             | is 126 or 127; then the mask, |   from a client); lengths big-endian and in
    |N|000|       |S|             | 4 bytes; then the payload     |   the shortest form
    +-+---+-------+-+-------------+-------------------------------+

One pass over a read: payload bytes move forward over the headers that stood between them, eight at a time.
The state between two calls is the header so far, or the place in the payload. Lengths are checked before they
are used: what is handled of a frame never reaches over `size`. Unlimited frame lengths cost nothing here, since
no frame is ever collected; the packets within have their own limits.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from penstock.protocols.net.outbuffer cimport OutBuffer

cdef enum:
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10
    CONTROL_MAX = 125
    HEADER_MAX = 10                 # of a frame that is not masked

cdef enum:                      # where a `PacketFramer` is in a packet
    _FIRST = 0
    _LENGTH = 1
    _BODY = 2


cdef class Unframer:
    def __cinit__(self):
        self._have = 0
        self._inside = False
        self._left = 0
        self._at = 0
        self._opcode = 0
        self._message = False
        self._control_size = 0

    def feed(self, uint8_t[::1] buffer not None, Py_ssize_t size):
        if size < 0 or size > buffer.shape[0]:
            raise ValueError("size is outside the buffer")
        return self.unframe(&buffer[0], size) if size else 0

    cdef Py_ssize_t unframe(self, uint8_t* bytes_, Py_ssize_t size) except -1:
        """`feed`."""
        cdef Py_ssize_t at = 0, out = 0, n
        if size == 0 or self.fault is not None or self.close is not None:
            return 0
        while True:
            if not self._inside:
                at += self._header(bytes_ + at, size - at)
                if self.fault is not None or not self._inside:
                    break
            n = size - at
            if <uint64_t>n > self._left:
                n = <Py_ssize_t>self._left
            if self._opcode >= CLOSE:
                self._unmask(self._control + self._control_size, bytes_ + at, n)
                self._control_size += <int>n
            else:
                self._unmask(bytes_ + out, bytes_ + at, n)
                out += n
            at += n
            self._left -= <uint64_t>n
            if self._left:
                break
            self._inside = False
            if self._opcode >= CLOSE and self._control_done():
                break
            if at == size:
                break
        return out

    cdef Py_ssize_t _header(self, const uint8_t* data, Py_ssize_t size) except -1:
        """Take header bytes; how many. Afterwards `_inside`, or there is a fault, or more is needed."""
        cdef Py_ssize_t consumed = 0
        cdef int need = 2
        while True:
            if self._have >= 2:
                need = 6 + (2 if self._head[1] & 0x7F == 126 else 8 if self._head[1] & 0x7F == 127 else 0)
                if self._have == 2 and not self._opening():
                    return consumed
                if self._have == need:
                    break
            if consumed == size:
                return consumed
            self._head[self._have] = data[consumed]
            self._have += 1
            consumed += 1
        self._begin(need)
        return consumed

    cdef bint _opening(self) except -1:
        """Check the first two bytes."""
        cdef int first = self._head[0], opcode = first & 0x0F, length = self._head[1] & 0x7F
        if first & 0x70:
            return self._fail(1002, "a reserved bit is set, and no extension was agreed on")
        if not self._head[1] & 0x80:
            return self._fail(1002, "a frame of a client is masked")
        if opcode >= CLOSE:
            if opcode > PONG:
                return self._fail(1002, "an unknown opcode")
            if not first & 0x80 or length > CONTROL_MAX:
                return self._fail(1002, "a control frame is whole and has at most 125 bytes")
        elif opcode == CONTINUATION:
            if not self._message:
                return self._fail(1002, "a continuation of nothing")
        elif opcode == TEXT:
            return self._fail(1003, "a text frame; data goes in binary frames")
        elif opcode != BINARY:
            return self._fail(1002, "an unknown opcode")
        elif self._message:
            return self._fail(1002, "a new message before the end of the last one")
        return True

    cdef int _begin(self, int need) except -1:
        """The header is whole."""
        cdef int length = self._head[1] & 0x7F, i
        cdef uint64_t left = <uint64_t>length
        if length >= 126:
            left = 0
            for i in range(2, need - 4):
                left = left << 8 | self._head[i]
            if left <= (125 if length == 126 else 65535) or left >> 63:
                self._fail(1002, "a length that is not in its shortest form")
                return 0
        memcpy(self._mask, &self._head[need - 4], 4)
        self._opcode = self._head[0] & 0x0F
        self._left = left
        self._at = 0
        self._have = 0
        self._inside = True
        if self._opcode >= CLOSE:
            self._control_size = 0
        else:
            self._message = not self._head[0] & 0x80
        return 0

    cdef bint _control_done(self) except -1:
        """A control frame is whole; True: nothing behind it is read."""
        payload = <bytes>self._control[:self._control_size]
        if self._opcode == PING:
            self.ping = payload
        elif self._opcode == CLOSE:
            if self._control_size == 1:
                self._fail(1002, "a close code has two bytes")
            else:
                self.close = payload
            return True
        return False

    cdef bint _fail(self, int code, str text) except -1:
        self.fault = (code, text)
        return False

    cdef void _unmask(self, uint8_t* to, const uint8_t* data, Py_ssize_t n) noexcept:
        """Unmask data[0:n] to to[0:n]; `to` may be the same place or one before it."""
        cdef uint8_t turned[8]
        cdef uint64_t mask, word
        cdef Py_ssize_t i = 0
        cdef int k
        for k in range(8):
            turned[k] = self._mask[(self._at + k) & 3]
        memcpy(&mask, turned, 8)
        while n - i >= 8:
            memcpy(&word, data + i, 8)
            word ^= mask
            memcpy(to + i, &word, 8)
            i += 8
        while i < n:
            to[i] = data[i] ^ turned[i & 7]
            i += 1
        self._at = (self._at + <unsigned int>(n & 3)) & 3


cdef class PacketFramer:
    def __cinit__(self):
        self._state = _FIRST

    def frame(self, const unsigned char[::1] data not None):
        cdef OutBuffer out = OutBuffer()
        if data.shape[0]:
            self.frame_into(&data[0], data.shape[0], out)
        return out.take()

    cdef int frame_into(self, const uint8_t* data, Py_ssize_t n, OutBuffer out) except -1:
        """`frame`, behind what `out` has."""
        cdef Py_ssize_t i = 0, start = 0, step
        while i < n:
            if self._state == _FIRST:
                i += 1
                self._state, self._rest, self._shift = _LENGTH, 0, 0
            elif self._state == _LENGTH:
                self._rest |= <Py_ssize_t>(data[i] & 0x7F) << self._shift
                self._shift += 7
                if data[i] < 0x80:
                    self._state = _BODY if self._rest else _FIRST
                i += 1
            else:
                step = min(n - i, self._rest)
                i += step
                self._rest -= step
                if self._rest == 0:
                    self._state = _FIRST
            if self._state == _FIRST:
                write_frame(data + start, i - start, out)
                start = i
        if start < n:
            write_frame(data + start, n - start, out)
        return 0


cdef int put_header(uint8_t* to, int opcode, Py_ssize_t size) noexcept:
    """Write the header of a whole frame; how many bytes it has, 10 at most."""
    cdef int i, more
    to[0] = <uint8_t>(0x80 | opcode)
    if size < 126:
        to[1] = <uint8_t>size
        return 2
    more = 2 if size < 65536 else 8
    to[1] = 126 if more == 2 else 127
    for i in range(more):
        to[2 + i] = <uint8_t>(size >> 8 * (more - 1 - i))
    return 2 + more


cdef int write_frame(const uint8_t* data, Py_ssize_t n, OutBuffer out) except -1:
    """Put data[0:n] into `out` as one binary frame."""
    cdef uint8_t* to = out.reserve(n + HEADER_MAX)
    cdef int head = put_header(to, BINARY, n)
    memcpy(to + head, data, n)
    out.commit(head + n)
    return 0


def frame_header(int opcode, Py_ssize_t size):
    cdef uint8_t head[HEADER_MAX]
    if size < 0:
        raise ValueError("a size is not negative")
    return PyBytes_FromStringAndSize(<char*>head, put_header(head, opcode, size))
