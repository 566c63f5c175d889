"""The registry of client sessions. Words in _registry.pyi."""

from libc.stdint cimport uint32_t

from penstock.protocols.mqtt.clients._client cimport ClientFields
from penstock.protocols.mqtt.clients._timers cimport Timers
from penstock.router.authorization._identity cimport Identity


cdef class Registry:
    cdef public object broker, log, tick
    cdef readonly dict _all         # by vhost and client id
    cdef readonly set _numbers
    cdef public object _clock
    cdef object factory
    cdef readonly Timers _timers
    cdef public long long connections, connections_maximum, accepted, sockets
    cdef public long long _connect_rate

    cpdef ClientFields find(self, str vhost, str client_id)
    cdef int keep(self, ClientFields client) except -1
    cdef int forget(self, ClientFields client) except -1
    cdef uint32_t number(self, str vhost, str client_id) except 0
    cpdef ClientFields create(self, vhost, str client_id, identity, long long expiry_s)
    cpdef end(self, ClientFields client)
    cpdef connected(self, ClientFields client, Identity identity, long long expiry_s)
    cdef bint is_as_before(self, ClientFields client, Identity identity, long long expiry_s) except -1
    cpdef disconnected(self, ClientFields client, will)
    cdef bint is_said(self, ClientFields client) except -1
    cpdef await_end(self, ClientFields client)
    cpdef arm(self, double at, ClientFields client, double now)
