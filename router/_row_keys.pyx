# cython: auto_pickle=False, nonecheck=True
"""Keys of rows, and the digest that they are: BLAKE2b (RFC 7693).

A digest of what fits one block, as nearly all names do, is computed here: Python's object for a hash costs more
than the hash, and a row is made for each queue, binding and retained message.
"""

from hashlib import blake2b

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    BLOCK = 128
    ROUNDS = 12
    KEY = 16                        # bytes of a row's key
    DIGEST_MAX = 64

cdef uint64_t[8] IV = [
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
]
cdef uint8_t[160] SIGMA = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
    14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3,
    11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4,
    7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8,
    9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13,
    2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9,
    12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11,
    13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10,
    6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5,
    10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0,
]


cdef inline uint64_t turned(uint64_t x, int n) noexcept:
    return x >> n | x << (64 - n)


cdef inline void mix(uint64_t* v, int a, int b, int c, int d, uint64_t x, uint64_t y) noexcept:
    v[a] += v[b] + x
    v[d] = turned(v[d] ^ v[a], 32)
    v[c] += v[d]
    v[b] = turned(v[b] ^ v[c], 24)
    v[a] += v[b] + y
    v[d] = turned(v[d] ^ v[a], 16)
    v[c] += v[d]
    v[b] = turned(v[b] ^ v[c], 63)


cdef void hash_block(const uint8_t* block, uint64_t size, uint8_t* digest, int digest_size) noexcept:
    """The hash, of digest_size bytes, of block[0:size], padded with zeros to BLOCK bytes."""
    cdef uint64_t[16] v, m
    cdef uint64_t[8] h
    cdef uint64_t first = IV[0] ^ 0x01010000 ^ <uint64_t>digest_size
    cdef const uint8_t* s
    cdef int i
    memcpy(m, block, BLOCK)         # of a little-endian machine, as all of the log's formats
    for i in range(8):
        v[i] = v[i + 8] = IV[i]
    v[0] = first
    v[12] ^= size
    v[14] = ~v[14]
    for i in range(ROUNDS):
        s = SIGMA + i % 10 * 16
        mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]])
        mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]])
        mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]])
        mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]])
        mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]])
        mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]])
        mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]])
        mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]])
    h[0] = first ^ v[0] ^ v[8]
    for i in range(1, 8):
        h[i] = IV[i] ^ v[i] ^ v[i + 8]
    memcpy(digest, h, digest_size)


cdef int digest_into(const uint8_t* data, Py_ssize_t size, uint8_t* digest, Py_ssize_t digest_size) except -1:
    """Put the hash, of digest_size bytes, of data[0:size] there."""
    cdef uint8_t[BLOCK] block
    cdef bytes found
    if not 1 <= digest_size <= DIGEST_MAX:
        raise ValueError(f"a digest of {digest_size} bytes; it has 1 to {DIGEST_MAX}")
    if size <= BLOCK:
        memcpy(block, data, size)
        memset(block + size, 0, BLOCK - size)
        hash_block(block, <uint64_t>size, digest, <int>digest_size)
        return 0
    found = blake2b(data[:size], digest_size=digest_size).digest()
    memcpy(digest, PyBytes_AS_STRING(found), digest_size)
    return 0


cpdef bytes digest_of(bytes parts):
    cdef uint8_t[KEY] digest
    cdef Py_ssize_t size = len(parts)           # raises for None
    digest_into(<const uint8_t*>PyBytes_AS_STRING(parts), size, digest, KEY)
    return PyBytes_FromStringAndSize(<char*>digest, KEY)


cpdef bytes row_part(bytes name):
    cdef Py_ssize_t size = len(name)
    cdef bytes part = PyBytes_FromStringAndSize(NULL, 4 + size)
    cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(part)
    cdef int i
    if size > 0xFFFFFFFF:
        raise OverflowError("a name of 4 GiB or more")
    for i in range(4):
        start[i] = <uint8_t>(size >> 8 * i & 0xFF)
    memcpy(start + 4, PyBytes_AS_STRING(name), size)
    return part


def row_key(*parts):
    cdef list some = []
    for part in parts:
        some.append(row_part(part if isinstance(part, bytes) else (<str?>part).encode("utf-8", "surrogateescape")))
    return digest_of(b"".join(some))
