# cython: auto_pickle=False, nonecheck=True
"""The fields of a client session: most clients come, log in and go with nothing else. Words in _client.pyi.

The number of a session is BLAKE2b, of four bytes, of its key (RFC 7693). It is computed here, since the key
fits one block as a rule and Python's object for a hash costs more than the hash.
"""

from hashlib import blake2b
from sys import intern

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from penstock.protocols.mqtt.codec._packet_ids cimport Inflight, Received
from penstock.router.authorization._identity cimport Identity

cdef enum:
    BLOCK = 128
    ROUNDS = 12

cdef frozenset NO_TAGS = frozenset()
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


cdef uint32_t hash_of_block(const uint8_t* block, uint64_t size) noexcept:
    """The first four bytes, as a big-endian number, of the hash of block[0:size], padded with zeros to BLOCK bytes."""
    cdef uint64_t[16] v, m
    cdef uint64_t first = IV[0] ^ 0x01010000 ^ 4
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
    first ^= v[0] ^ v[8]
    return <uint32_t>((first & 0xFF) << 24 | (first >> 8 & 0xFF) << 16 | (first >> 16 & 0xFF) << 8 | (first >> 24 & 0xFF))


cdef uint32_t numbered(bytes vhost, bytes client_id) except 0:
    cdef uint8_t[BLOCK] block
    cdef Py_ssize_t first = PyBytes_GET_SIZE(vhost), second = PyBytes_GET_SIZE(client_id)
    cdef uint32_t number
    if 2 + first + second <= BLOCK:
        memset(block, 0, BLOCK)
        block[0] = <uint8_t>(first & 0xFF)
        block[1] = <uint8_t>(first >> 8)
        memcpy(block + 2, PyBytes_AS_STRING(vhost), first)
        memcpy(block + 2 + first, PyBytes_AS_STRING(client_id), second)
        number = hash_of_block(block, <uint64_t>(2 + first + second))
    else:
        digest = blake2b(first.to_bytes(2, "little") + vhost + client_id, digest_size=4).digest()
        number = int.from_bytes(digest, "big")
    return number or 1


def number_of(str vhost not None, str client_id not None):
    return numbered(vhost.encode(), client_id.encode())


cdef class PacketIds:
    def __init__(self, Inflight inflight not None, Received received not None):
        self.inflight = inflight
        self.received = received
        self.tokens = {}
        self.next_token = 1

    cdef bint is_settled(self) noexcept:
        return not (self.inflight.held or self.inflight.changed or self.received.count or self.received.changed)

    @property
    def settled(self):
        return self.is_settled()


cdef class ClientFields:
    def __init__(self, vhost not None, str client_id not None, own_queue, uint32_t number, bint persistent,
                 long long expiry_s=0):
        self.vhost = vhost
        self.client_id = client_id
        self.own_queue = own_queue
        self.number = number
        self.persistent = persistent
        self.expiry_s = expiry_s
        self.username = ""
        self.tags = NO_TAGS
        self.asked = True
        self.next_tag = 1
        self.row_expiry_s = -1
        self.most_qos = -1

    cdef PacketIds packet_ids(self):
        cdef Inflight inflight
        if self.loaded_ids is None:
            if self.has_id_rows or self.shares:
                return self.load_ids()
            inflight = Inflight.__new__(Inflight)
            if self.own_queue is not None:
                inflight.cursors.append(self.own_queue.cursor)
            self.loaded_ids = PacketIds(inflight, Received.__new__(Received))
        return self.loaded_ids

    cdef int subscribed_qos(self) except -1:
        """The highest QoS of its subscriptions that are not shared; 0: there is none."""
        if self.loaded is None and self.most_qos >= 0:
            return self.most_qos
        return self.filters.most_qos()

    cpdef rest(self):
        if not self.persistent:
            return
        self.row_lsn = 0        # its next connection puts a row, and whoever waits for that has waited for this one
        if self.loaded is not None:
            self.next_tag = self.loaded.next_tag
            self.most_qos = self.loaded.most_qos()
            self.loaded = None
            self.vhost.sessions.rest(self.client_id)
        if self.loaded_ids is not None and self.loaded_ids.is_settled():
            self.loaded_ids = None

    @property
    def ids(self):
        return self.packet_ids()

    @property
    def identity(self):
        return Identity(self.username, self.tags, self.client_id, self.grants)

    def belongs_to(self, Identity identity not None):
        return self.username == identity.username and (self.grants is None) is (identity.grants is None)

    cpdef belong(self, identity):
        cdef Identity whose = identity
        self.username = intern(whose.username)
        self.tags = whose.tags
        self.grants = whose.grants
