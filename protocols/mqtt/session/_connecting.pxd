"""CONNECT: from a login to a session. Words in _connecting.pyi."""

from penstock.protocols.mqtt.clients._client cimport ClientFields
from penstock.protocols.mqtt.clients._registry cimport Registry
from penstock.protocols.mqtt.codec._connect cimport Connect
from penstock.router.authorization._identity cimport Identity
from penstock.router.routes._routes cimport RouteTable


cdef class Accepted:                # the outcome of CONNECT
    cdef ClientFields client
    cdef RouteTable table
    cdef bint session_present
    cdef long long expiry_s
    cdef int keep_alive_s
    cdef bytes connack


cdef tuple wanted_login(Connect connect)    # `login_of`
cpdef tuple split_user_name(str user_name)
cpdef str vhost_of(Connect connect)
# Take over or make the session; `authenticated`, properties, goes into CONNACK as it is. Raises ConnectRefused: no such
# vhost, no right to it or to the will's topic, no room for CONNACK in the client's maximum packet size, or the session
# is another user's.
cdef Accepted accept(Registry clients, options, Connect connect, Identity identity, dict authenticated)
