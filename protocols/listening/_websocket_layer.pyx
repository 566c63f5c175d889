# cython: auto_pickle=False
"""The work of WebSocket for each read and write: frames are taken away where they were read, and put around output.

The handshake, control frames and the end are Python's, in `websocket`. Words in _websocket_layer.pyi.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from penstock.protocols.listening._unframe cimport PacketFramer, Unframer, write_frame
from penstock.protocols.net.layers._layer cimport Layer
from penstock.protocols.net._stream cimport Stream
from penstock.protocols.net.outbuffer cimport OutBuffer


cdef class WebSocketLayer(Layer):
    cdef readonly Unframer frames
    cdef PacketFramer packets       # None: a frame has what one flush sends
    cdef uint8_t* start             # where the next bytes go
    cdef public bint is_open
    cdef public bint is_leaving

    def __init__(self, Stream stream not None, *, bint mqtt_packets):
        super().__init__(stream)
        self.frames = Unframer()
        self.packets = PacketFramer() if mqtt_packets else None

    cdef bint is_over(self) noexcept:
        return self.is_leaving or self.below is None or self.below.is_over()

    cdef uint8_t* place(self, Py_ssize_t* capacity) except NULL:
        self.start = self.stream.place(capacity)
        return self.start

    cdef int arrived(self, Py_ssize_t nbytes) except -1:
        if self.is_open:
            return self.unframe(nbytes)
        if not self.is_leaving:
            self.handshake(PyBytes_FromStringAndSize(<char*>self.start, nbytes))
        return 0

    def unframe_rest(self, bytes rest not None):
        cdef Py_ssize_t capacity, size = PyBytes_GET_SIZE(rest)
        self.place(&capacity)
        if size > capacity:
            raise ValueError("more than was read")
        memcpy(self.start, PyBytes_AS_STRING(rest), size)
        self.stream.bytes_in -= size    # they were counted with the handshake, and are counted once more now
        self.unframe(size)

    cdef int unframe(self, Py_ssize_t nbytes) except -1:
        cdef Stream stream = self.stream
        cdef Unframer frames = self.frames
        cdef Py_ssize_t payload = frames.unframe(self.start, nbytes)
        if not self.is_leaving:
            stream.bytes_in += nbytes - payload
            if not stream.trusted:
                stream.within_login_bytes()
            if payload and not stream.closing:
                stream.arrived(payload)
        if frames.close is not None or frames.fault is not None or frames.ping is not None:
            self.control()
        return 0

    cdef int frame(self, const uint8_t* p, Py_ssize_t size) except -1:
        cdef OutBuffer framed = OutBuffer()
        if self.packets is not None:
            self.packets.frame_into(p, size, framed)
        else:
            write_frame(p, size, framed)
        return self.below.send_output(framed)

    cdef int send_output(self, OutBuffer out) except -1:
        if self.is_open and not self.is_over():
            self.frame(out._start, out.size)
        return out.drop()

    cpdef int send(self, bytes data) except -1:
        return self.write(data)

    def write(self, const uint8_t[::1] data):
        if data.shape[0] and self.is_open and not self.is_over():
            self.frame(&data[0], data.shape[0])
        return 0
