# cython: auto_pickle=False
"""The work of TLS for each read and write: OpenSSL's memory BIOs, as the module ssl has them, called from C.

    socket --> CIPHER, shared --> memory BIO --decrypted straight into--> `place` of what is above
    socket <------ bytes <------- memory BIO <------- encrypted from ---- output

An `ssl.SSLObject` is a shell of Python around the object in C that is called here. A Python without that object has the
shell called, with the same meaning.

Small reads and writes are handed over as bytes, and plaintext is put straight into the arena by its bytearray: to make a
view of memory costs more than to copy a small message.
"""

import ssl

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t

from penstock.protocols.net.layers._layer cimport Layer
from penstock.protocols.net._stream import ARENA
from penstock.protocols.net.outbuffer cimport OutBuffer

cdef enum:
    CIPHER_SIZE = 262144
    RECORD = 16384                  # most plaintext in one record
    SHOWN = 64                      # of what began a handshake that fails
    SMALL = 2048                    # bytes that are copied rather than shown by a view

# Where all connections read ciphertext into; valid only until it is in the memory BIO.
cdef uint8_t[CIPHER_SIZE] cipher
cdef bytearray arena = ARENA
cdef Py_ssize_t arena_size = PyByteArray_GET_SIZE(arena)
cdef object ARENA_SIZE = len(arena)
cdef object SSLError = ssl.SSLError, SSLWantReadError = ssl.SSLWantReadError


cdef inline object shown(const uint8_t* p, Py_ssize_t size):
    """These bytes, for a call."""
    if size <= SMALL:
        return PyBytes_FromStringAndSize(<const char*>p, size)
    return PyMemoryView_FromMemory(<char*>p, size, PyBUF_READ)


cdef class TlsLayer(Layer):
    cdef object incoming, outgoing      # memory BIOs
    cdef object read_plain, write_plain, write_cipher, read_cipher
    cdef public bint is_open, is_paused, is_ended

    def __init__(self, above, tls not None, incoming not None, outgoing not None):
        super().__init__(above)
        tls = getattr(tls, "_sslobj", tls)
        self.incoming = incoming
        self.outgoing = outgoing
        self.read_plain = tls.read
        self.write_plain = tls.write
        self.write_cipher = incoming.write
        self.read_cipher = outgoing.read

    cdef uint8_t* place(self, Py_ssize_t* capacity) except NULL:
        capacity[0] = CIPHER_SIZE
        return cipher

    cdef int arrived(self, Py_ssize_t nbytes) except -1:
        if self.is_ended:
            return 0
        self.write_cipher(shown(cipher, nbytes))
        if not self.is_open:
            first = PyBytes_FromStringAndSize(<char*>cipher, min(nbytes, <Py_ssize_t>SHOWN))
            if not self.handshake(nbytes, first):
                return 0
        return self.hand_plain()

    def hand_on(self):
        self.hand_plain()

    cdef int hand_plain(self) except -1:
        cdef Py_ssize_t size, filled, count
        cdef uint8_t* start
        cdef bint more = True
        while more and not (self.is_paused or self.is_ended):
            start = self.place_above(&size)
            filled = 0
            try:
                while filled < size:
                    if size == arena_size and filled == 0 and start == <uint8_t*>PyByteArray_AS_STRING(arena):
                        count = self.read_plain(ARENA_SIZE, arena)
                    else:
                        count = self.read_plain(
                            size - filled, PyMemoryView_FromMemory(<char*>start + filled, size - filled, PyBUF_WRITE))
                    if count == 0:
                        self.is_ended = True
                        break
                    filled += count
                    # A record is read whole, so what is left of it fills the buffer.
                    if filled < size and not self.incoming.pending:
                        more = False
                        break
            except SSLWantReadError:
                more = False            # the rest is the beginning of a record
            except SSLError as error:
                self.is_ended = True
                self.failed(error)
                return 0
            if filled:
                self.hand_up(filled)
        if self.outgoing.pending:
            self.send_cipher()          # an answer of TLS itself, such as new keys
        if self.is_ended and not self.below.is_over():
            self.peer_ended()
        return 0

    cpdef send_cipher(self):
        cdef bytes data = self.read_cipher()
        if PyBytes_GET_SIZE(data) and not self.below.is_over():
            self.below.send(data)

    cdef int encrypt(self, const uint8_t* p, Py_ssize_t size) except -1:
        cdef Py_ssize_t at = 0
        try:
            while at < size:
                at += <Py_ssize_t>self.write_plain(shown(p + at, min(size - at, <Py_ssize_t>RECORD)))
        except SSLError as error:
            self.failed(error)
            return 0
        self.send_cipher()
        return 0

    cdef int send_output(self, OutBuffer out) except -1:
        if self.is_open and not self.below.is_over():
            self.encrypt(out._start, out.size)
        return out.drop()

    cpdef int send(self, bytes data) except -1:
        return self.write(data)

    def write(self, const uint8_t[::1] data):
        if data.shape[0] and self.is_open and not self.below.is_over():
            self.encrypt(&data[0], data.shape[0])
        return 0
