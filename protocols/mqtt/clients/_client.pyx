# cython: auto_pickle=False, nonecheck=True
"""The fields of a client session: most clients come, log in and go with nothing else. Words in _client.pyi.

The number of a session is a digest, of four bytes, of its vhost and its client id.
"""

from sys import intern

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from penstock.protocols.mqtt.codec._packet_ids cimport Inflight, Received
from penstock.router._row_keys cimport digest_into
from penstock.router.authorization._identity cimport Identity

cdef enum:
    SHORT = 128

cdef frozenset NO_TAGS = frozenset()


cdef uint32_t numbered(bytes vhost, bytes client_id) except 0:
    cdef Py_ssize_t first = PyBytes_GET_SIZE(vhost), second = PyBytes_GET_SIZE(client_id)
    cdef uint8_t[SHORT] short_key
    cdef uint8_t[4] digest
    cdef uint8_t* key = short_key
    cdef bytes long_key
    if 2 + first + second > SHORT:
        long_key = PyBytes_FromStringAndSize(NULL, 2 + first + second)
        key = <uint8_t*>PyBytes_AS_STRING(long_key)
    key[0] = <uint8_t>(first & 0xFF)
    key[1] = <uint8_t>(first >> 8 & 0xFF)
    memcpy(key + 2, PyBytes_AS_STRING(vhost), first)
    memcpy(key + 2 + first, PyBytes_AS_STRING(client_id), second)
    digest_into(key, 2 + first + second, digest, 4)
    return (<uint32_t>digest[0] << 24 | <uint32_t>digest[1] << 16 | <uint32_t>digest[2] << 8 | digest[3]) or 1


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
