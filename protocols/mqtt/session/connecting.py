"""CONNECT: from a login that was right to a session, or to the CONNACK that refuses.

Order of the checks: what the packet says (already done by `packets`), the login (the host's), vhost, will
topic, then the session. Nothing of an older session is touched before all of them are passed.

Source: MQTT 5.0 sections 3.1 and 3.2; MQTT 3.1.1 the same; the vhost in the user name is RabbitMQ's.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.mqtt.clients.clients import Client, Clients
from penstock.protocols.mqtt.codec import packets, reasons
from penstock.protocols.mqtt.codec.properties import Properties
from penstock.protocols.mqtt.codec.reason_strings import refusal
from penstock.protocols.mqtt.codec.reasons import ConnectRefused
from penstock.protocols.mqtt.options import MqttOptions
from penstock.protocols.mqtt.subscriptions.filters import is_reserved
from penstock.router.errors import RoutingError

if TYPE_CHECKING:
    from penstock.router.authorization.identity import Identity
    from penstock.router.routes._routes import RouteTable
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Accepted", "accept", "login_of", "split_user_name", "vhost_of"]

DEFAULT_VHOST: Final = "/"
ENC_MQTT5: Final = 2


@dataclass(slots=True)
class Accepted:
    """The outcome of CONNECT."""

    client: Client
    table: RouteTable
    session_present: bool
    expiry_s: int
    keep_alive_s: int
    connack: bytes


def login_of(connect: packets.Connect) -> tuple[str | None, bytes | None]:
    """User name without vhost, and password; (None, None) for an anonymous client."""
    if connect.user_name is None and connect.password is None:
        return None, None
    return split_user_name(connect.user_name or "")[1], connect.password or b""


def split_user_name(user_name: str) -> tuple[str, str]:
    """(vhost, user) of `vhost:user`, split at the last colon; the default vhost without one."""
    vhost, colon, user = user_name.rpartition(":")
    return (vhost, user) if colon else (DEFAULT_VHOST, user_name)


def accept(
    clients: Clients,
    options: MqttOptions,
    connect: packets.Connect,
    identity: Identity,
    authenticated: Properties,
) -> Accepted:
    """Take over or make the session; `authenticated` goes into CONNACK as it is.

    Raises:
        ConnectRefused: no such vhost, no right to it or to the will's topic, no room for CONNACK in the
            client's maximum packet size, or the session is another user's.

    """
    vhost = _vhost_of(clients, connect, identity)
    properties: Properties = dict(authenticated)
    client_id = connect.client_id
    if not client_id:
        client_id = properties["assigned_client_id"] = f"auto-{secrets.token_hex(12)}"  # mqtt5:3.1.3-6
    identity = identity.of_client(client_id)
    table = vhost.publisher(identity, ENC_MQTT5)
    if connect.will is not None:
        topic = connect.will.topic.encode()
        if is_reserved(topic) or vhost.route(identity, ENC_MQTT5, topic).error is not None:
            raise _refused(connect, reasons.NOT_AUTHORIZED, "the will's topic is not allowed")
    expiry_s = _expiry_of(options, connect, properties)
    keep_alive_s = connect.keep_alive_s
    if connect.version == packets.MQTT_5 and options.keepalive_max_s:
        if not 0 < keep_alive_s <= options.keepalive_max_s:
            keep_alive_s = properties["server_keep_alive_s"] = options.keepalive_max_s
    if connect.version == packets.MQTT_5:
        # Only what differs from the value that its absence means.
        if options.receive_maximum < 65535:
            properties["receive_maximum"] = options.receive_maximum
        if options.max_packet_bytes < 268_435_455:
            properties["maximum_packet_size"] = options.max_packet_bytes
        if options.topic_alias_maximum:
            properties["topic_alias_maximum"] = options.topic_alias_maximum
        if options.response_information and connect.properties.get("request_response_information"):
            where = options.response_information.replace("{client_id}", client_id)
            properties["response_information"] = where
    connack = packets.encode_connack(connect.version, False, reasons.SUCCESS, properties)
    if len(connack) > connect.properties.get("maximum_packet_size", len(connack)):
        # mqtt5:3.1.2-24
        raise _refused(connect, reasons.PACKET_TOO_LARGE, "its maximum packet size has no room for CONNACK")
    client, present = _session(clients, options, vhost, connect, client_id, identity, expiry_s)
    if present:
        connack = packets.encode_connack(connect.version, True, reasons.SUCCESS, properties)
    return Accepted(client, table, present, expiry_s, keep_alive_s, connack)


def _refused(connect: packets.Connect, reason: int, why: str) -> ConnectRefused:
    return ConnectRefused(why, reason, refusal(connect, reason, why))


def vhost_of(connect: packets.Connect) -> str:
    """The name of the vhost that a client wants to use."""
    return split_user_name(connect.user_name)[0] if connect.user_name is not None else DEFAULT_VHOST


def _vhost_of(clients: Clients, connect: packets.Connect, identity: Identity) -> Vhost:
    name = vhost_of(connect)
    try:
        # Decided on the name before it is looked up: a refusal does not tell whether the vhost exists.
        return clients.broker.enter(identity, name)
    except RoutingError:
        raise _refused(connect, reasons.NOT_AUTHORIZED, f"no access to vhost {name!r}") from None


def _expiry_of(options: MqttOptions, connect: packets.Connect, properties: Properties) -> int:
    """How long the session outlives the connection; a 5.0 client is told when it is not what it asked for."""
    longest = options.session_expiry_max_s
    if connect.version < packets.MQTT_5:
        return 0 if connect.clean_start else longest
    wanted: int = connect.properties.get("session_expiry_s", 0)
    if wanted > longest:
        properties["session_expiry_s"] = longest
        return longest
    return wanted


def _session(
    clients: Clients,
    options: MqttOptions,
    vhost: Vhost,
    connect: packets.Connect,
    client_id: str,
    identity: Identity,
    expiry_s: int,
) -> tuple[Client, bool]:
    """The client's session and whether it was there before (mqtt5:3.1.2-4, mqtt5:3.1.2-5, mqtt5:3.1.2-6).

    Raises:
        ConnectRefused: the session is another user's, who keeps it and its connection.

    """
    client = clients.find(vhost.name, client_id)
    is_other = client is not None and not client.belongs_to(identity)
    if is_other and options.sessions_by == "user":
        raise _refused(
            connect,
            reasons.NOT_AUTHORIZED,
            "the session of this client id belongs to another user: use another client id, or have an "
            "administrator end the session",
        )
    if client is not None and client.connection is not None:
        client.connection.taken_over()
        client = clients.find(vhost.name, client_id)
    if client is not None and (connect.clean_start or (is_other and not clients.may_read(client, identity))):
        clients.end(client)
        client = None
    if client is None:
        return clients.create(vhost, client_id, identity, expiry_s), False
    return client, True
