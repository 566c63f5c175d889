# cython: auto_pickle=False, nonecheck=True
"""CONNECT: from a login that was right to a session, or to the CONNACK that refuses.

Order of the checks: what the packet says (already done by `packets`), the login (the host's), vhost, will
topic, then the session. Nothing of an older session is touched before all of them are passed.

Source: MQTT 5.0 sections 3.1 and 3.2; MQTT 3.1.1 the same; the vhost in the user name is RabbitMQ's.
"""

import secrets

from penstock.protocols.mqtt.clients._client cimport ClientFields
from penstock.protocols.mqtt.clients._registry cimport Registry
from penstock.protocols.mqtt.codec._connect cimport Connect
from penstock.protocols.mqtt.codec import packets, reasons
from penstock.protocols.mqtt.codec.reason_strings import refusal
from penstock.protocols.mqtt.codec.reasons import ConnectRefused
from penstock.protocols.mqtt.subscriptions.filters import is_reserved
from penstock.router.authorization._identity cimport Identity
from penstock.router.errors import RoutingError
from penstock.router.routes._routes cimport RouteTable

cdef enum:
    MQTT_5 = 5
    ENC_MQTT5 = 2
    TAKES_ANY = 268435455           # the largest packet there is

cdef str DEFAULT_VHOST = "/"
cdef tuple NOBODY = (None, None)
encode_connack = packets.encode_connack
cdef int SUCCESS = reasons.SUCCESS


cdef class Accepted:
    pass


def login_of(Connect connect not None):
    return wanted_login(connect)


cdef tuple wanted_login(Connect connect):
    if connect.user_name is None and connect.password is None:
        return NOBODY
    return split_user_name(connect.user_name or "")[1], connect.password or b""


cpdef tuple split_user_name(str user_name):
    vhost, colon, user = user_name.rpartition(":")
    return (vhost, user) if colon else (DEFAULT_VHOST, user_name)


cpdef str vhost_of(Connect connect):
    return split_user_name(connect.user_name)[0] if connect.user_name is not None else DEFAULT_VHOST


cdef Accepted accept(Registry clients, options, Connect connect, Identity identity, dict authenticated):
    cdef str client_id = connect.client_id
    cdef dict properties = dict(authenticated)
    cdef Accepted found = Accepted.__new__(Accepted)
    cdef bytes topic
    cdef int present = 0
    vhost = permitted_vhost(clients, connect, identity)
    if not client_id:
        client_id = properties["assigned_client_id"] = f"auto-{secrets.token_hex(12)}"  # mqtt5:3.1.3-6
    identity = identity.of_client(client_id)
    found.table = vhost.publisher(identity, ENC_MQTT5)
    if connect.will is not None:
        topic = connect.will.topic.encode()
        if is_reserved(topic) or vhost.route(identity, ENC_MQTT5, topic).error is not None:
            raise refused(connect, reasons.NOT_AUTHORIZED, "the will's topic is not allowed")
    found.expiry_s = expiry_of(options, connect, properties)
    found.keep_alive_s = connect.keep_alive_s
    if connect.version == MQTT_5:
        tell_limits(options, connect, client_id, found, properties)
    found.connack = encode_connack(connect.version, False, SUCCESS, properties)
    if len(found.connack) > connect.properties.get("maximum_packet_size", TAKES_ANY):
        # mqtt5:3.1.2-24
        raise refused(connect, reasons.PACKET_TOO_LARGE, "its maximum packet size has no room for CONNACK")
    found.client = session_of(clients, options, vhost, connect, client_id, identity, found.expiry_s, &present)
    found.session_present = present
    if present:
        found.connack = encode_connack(connect.version, True, SUCCESS, properties)
    return found


cdef int tell_limits(options, Connect connect, str client_id, Accepted found, dict properties) except -1:
    """The limits that a 5.0 client is told in CONNACK: only what differs from the value that its absence means."""
    longest = options.keepalive_max_s
    if longest and not 0 < found.keep_alive_s <= longest:
        found.keep_alive_s = properties["server_keep_alive_s"] = longest
    if options.receive_maximum < 65535:
        properties["receive_maximum"] = options.receive_maximum
    if options.max_packet_bytes < TAKES_ANY:
        properties["maximum_packet_size"] = options.max_packet_bytes
    if options.topic_alias_maximum:
        properties["topic_alias_maximum"] = options.topic_alias_maximum
    if options.response_information and connect.properties.get("request_response_information"):
        properties["response_information"] = options.response_information.replace("{client_id}", client_id)
    return 0


cdef object refused(Connect connect, int reason, str why):
    return ConnectRefused(why, reason, refusal(connect, reason, why))


cdef object permitted_vhost(Registry clients, Connect connect, Identity identity):
    cdef str name = vhost_of(connect)
    try:
        # Decided on the name before it is looked up: a refusal does not tell whether the vhost exists.
        return clients.broker.enter(identity, name)
    except RoutingError:
        raise refused(connect, reasons.NOT_AUTHORIZED, f"no access to vhost {name!r}") from None


cdef long long expiry_of(options, Connect connect, dict properties) except -1:
    """How long the session outlives the connection; a 5.0 client is told when it is not what it asked for."""
    cdef long long longest, wanted
    if connect.version < MQTT_5:
        return 0 if connect.clean_start else options.session_expiry_max_s
    wanted = connect.properties.get("session_expiry_s", 0)
    if wanted:
        longest = options.session_expiry_max_s
        if wanted > longest:
            properties["session_expiry_s"] = longest
            return longest
    return wanted


cdef ClientFields session_of(Registry clients, options, vhost, Connect connect, str client_id, Identity identity,
                             long long expiry_s, int* present):
    """The client's session and whether it was there before (mqtt5:3.1.2-4, mqtt5:3.1.2-5, mqtt5:3.1.2-6).

    Raises ConnectRefused: the session is another user's, who keeps it and its connection.
    """
    cdef str name = vhost.name
    cdef ClientFields client = clients.find(name, client_id)
    cdef bint is_other
    if client is None:
        return clients.create(vhost, client_id, identity, expiry_s)
    is_other = not client.belongs_to(identity)
    if is_other and options.sessions_by == "user":
        raise refused(
            connect,
            reasons.NOT_AUTHORIZED,
            "the session of this client id belongs to another user: use another client id, or have an "
            "administrator end the session",
        )
    if client.connection is not None:
        client.connection.taken_over()
        client = clients.find(name, client_id)
    if client is not None and (connect.clean_start or (is_other and not clients.may_read(client, identity))):
        clients.end(client)
        client = None
    if client is None:
        return clients.create(vhost, client_id, identity, expiry_s)
    present[0] = 1
    return client
