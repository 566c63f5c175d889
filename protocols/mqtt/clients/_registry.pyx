# cython: auto_pickle=False, nonecheck=True
"""The registry of client sessions, as far as each connect and each end go through it. Words in _registry.pyi.

A session that ends with its connection and never subscribed has nothing but its name: it comes and goes here.
So does one that outlives its connection, as long as its rows say all there is to know of it: the time of its end
is written at a clean stop only (`rows`). `Clients` has the rest.
"""

from libc.stdint cimport uint32_t

from penstock.protocols.mqtt.clients._client cimport ClientFields, PacketIds, numbered
from penstock.protocols.mqtt.clients._timers cimport Timers
from penstock.router.authorization._identity cimport Identity

cdef enum:
    NUMBERS = 4294967295


cdef class Registry:
    def __init__(self, broker not None, clock not None, factory not None):
        self.broker = broker
        self.log = broker.log
        self.tick = broker.tick
        self._clock = clock
        self.factory = factory
        self._all = {}
        self._numbers = set()
        self._timers = Timers()

    cpdef ClientFields find(self, str vhost, str client_id):
        clients = self._all.get(vhost)
        return None if clients is None else (<dict>clients).get(client_id)

    cdef int keep(self, ClientFields client) except -1:
        cdef str vhost = client.vhost.name
        clients = self._all.get(vhost)
        if clients is None:
            clients = self._all[vhost] = {}
        (<dict>clients)[client.client_id] = client
        return 0

    cdef int forget(self, ClientFields client) except -1:
        cdef str vhost = client.vhost.name
        cdef dict clients = self._all[vhost]
        del clients[client.client_id]
        self._numbers.remove(client.number)
        if not clients:
            del self._all[vhost]
        return 0

    cdef uint32_t number(self, str vhost, str client_id) except 0:
        """The number of a new session: its client id's, if no other session has the same by chance."""
        cdef uint32_t number = numbered(vhost.encode(), client_id.encode())
        while number in self._numbers:
            number = number % NUMBERS + 1
        self._numbers.add(number)
        return number

    def restored(self, vhost, str client_id not None, queue, long long expiry_s):
        cdef ClientFields client = self.factory(vhost, client_id, queue, self.number(vhost.name, client_id), True, expiry_s)
        client.has_id_rows = True
        self.keep(client)
        return client

    cpdef ClientFields create(self, vhost, str client_id, identity, long long expiry_s):
        cdef bint persistent = expiry_s > 0
        cdef ClientFields client
        client = self.factory(vhost, client_id, None, self.number(vhost.name, client_id), persistent, expiry_s)
        client.belong(identity)
        self.keep(client)
        if persistent:
            self.give_queue(client)
        return client

    cpdef end(self, ClientFields client):
        if client.ended:
            return 0
        client.ended = True
        self.forget(client)
        if client.own_queue is None and not client.persistent and client.will is None:
            return 0
        return self.clean_up(client)

    cpdef connected(self, ClientFields client, Identity identity, long long expiry_s):
        self.accepted += 1
        self.connections += 1
        if self.connections > self.connections_maximum:
            self.connections_maximum = self.connections
        if client.asked and not client.persistent and client.own_queue is None:
            client.belong(identity)
            client.expiry_s = expiry_s
        elif self.is_as_before(client, identity, expiry_s):
            client.belong(identity)
            client.ends_at = None
        else:
            self.came_back(client, identity, expiry_s)

    cdef bint is_as_before(self, ClientFields client, Identity identity, long long expiry_s) except -1:
        """A session comes back as its row has it, but for the time of its end: nothing is to be written.

        After a crash, that begins anew anyway.
        """
        return (
            client.promised and client.asked and client.row_expiry_s == expiry_s == client.expiry_s
            and client.username == identity.username and client.grants == identity.grants and client.will is None
            and client.connection is not None and client.connection.will is None and client.packet_ids().is_settled()
        )

    cpdef disconnected(self, ClientFields client, will):
        self.connections -= 1
        if will is not None:
            self.left(client, will)
        elif not client.persistent:
            client.connection = None
            self.end(client)
        elif self.is_said(client):
            client.connection = None
            client.packet_ids().received.suspend()
            self.await_end(client)
        else:
            self.left(client, None)

    cdef bint is_said(self, ClientFields client) except -1:
        """The rows of a session say all there is to know, but when it ends."""
        cdef PacketIds ids = client.packet_ids()
        return (
            client.expiry_s > 0 and client.row_expiry_s == client.expiry_s and client.will is None and not client.ended
            and not ids.inflight.changed and not ids.received.changed
        )

    cpdef await_end(self, ClientFields client):
        cdef double now = self._clock()
        client.ends_at = now + client.expiry_s
        client.ends_late = True
        self.arm(client.ends_at, client, now)
        client.rest()

    cpdef arm(self, double at, ClientFields client, double now):
        if self._timers.arm(at, client, now):
            self.on_deadline()
