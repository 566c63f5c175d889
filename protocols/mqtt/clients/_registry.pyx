# cython: auto_pickle=False, nonecheck=True
"""The registry of client sessions, as far as each connect and each end go through it. Words in _registry.pyi.

A session that ends with its connection and never subscribed has nothing but its name: it comes and goes here.
`Clients` has the rest.
"""

from libc.stdint cimport uint32_t

from penstock.protocols.mqtt.clients._client cimport ClientFields, numbered

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

    cpdef connected(self, ClientFields client, identity, long long expiry_s):
        self.accepted += 1
        self.connections += 1
        if self.connections > self.connections_maximum:
            self.connections_maximum = self.connections
        if client.persistent or client.own_queue is not None or not client.asked:
            self.came_back(client, identity, expiry_s)
        else:
            client.belong(identity)
            client.expiry_s = expiry_s

    cpdef disconnected(self, ClientFields client, will):
        self.connections -= 1
        if client.persistent or will is not None:
            self.left(client, will)
        else:
            client.connection = None
            self.end(client)
