"""The section `mqtt`: MQTT 3.1, 3.1.1 and 5.0."""

from __future__ import annotations

from dataclasses import field
from typing import Final, Literal

from penstock.config.kinds import (
    KIB,
    MIB,
    Bytes,
    Choice,
    Count,
    Listen,
    Pairs,
    Seconds,
    Switch,
    Text,
    WholeSeconds,
    option,
)
from penstock.config.sections.listener import WS_ORIGINS, WS_PATHS, TlsListener
from penstock.lazy_dataclass import dataclass

__all__ = ["Mqtt"]

SHARED_STRATEGIES: Final = ("round-robin", "random", "sticky", "hash-topic", "hash-clientid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mqtt(TlsListener):
    """MQTT 3.1, 3.1.1 and 5.0."""

    listen: str = field(
        default="127.0.0.1:1883",
        metadata=option(
            Listen(), "Address for MQTT clients.", when='clients run on other machines ("0.0.0.0:1883")'
        ),
    )
    unix_listen: str = field(
        default="",
        metadata=option(
            Text("a path"),
            "Path of a socket in the file system for MQTT clients on this machine, who count as from "
            '127.0.0.1; its folder says who may connect. "" = off.',
            when="clients on this machine shall not use TCP",
        ),
    )
    tls_listen: str = field(
        default="",
        metadata=option(
            Listen(),
            "Address for MQTT clients with TLS, usually port 8883; needs tls.cert_file.",
            when='clients use TLS ("0.0.0.0:8883")',
        ),
    )
    ws_listen: str = field(
        default="",
        metadata=option(
            Listen(),
            "Address for MQTT clients over WebSocket, as browsers are.",
            when='browsers connect ("0.0.0.0:8083")',
        ),
    )
    wss_listen: str = field(
        default="",
        metadata=option(
            Listen(),
            "Address for MQTT clients over WebSocket with TLS; needs tls.cert_file.",
            when='browsers connect from pages with https ("0.0.0.0:8084")',
        ),
    )
    ws_paths: tuple[str, ...] = field(
        default=("/mqtt", "/ws"),
        metadata=WS_PATHS,
    )
    ws_origins: tuple[str, ...] = field(default=(), metadata=WS_ORIGINS)
    cert_login: bool = field(
        default=False,
        metadata=option(
            Switch(),
            "A client with a verified certificate and without a user name is the user that the certificate "
            "names (tls.cert_login_from).",
            when="devices have certificates in place of passwords",
        ),
    )
    allow_anonymous: Literal["loopback"] | bool = field(
        default="loopback",
        metadata=option(
            Choice(("loopback",), switch=True),
            'Who may connect without a user name, as auth.default_user: "loopback" = peers on this machine, '
            "true = everybody, false = nobody.",
            when="devices on other machines have no user name (true), or none may come without one (false)",
        ),
    )
    allow_any_login: Literal["loopback"] | bool = field(
        default=False,
        metadata=option(
            Choice(("loopback",), switch=True),
            "Whose user name and password are not checked if the gateway has no user of that name: "
            '"loopback" = peers on this machine, true = everybody, false = nobody. They are '
            "auth.default_user. Mosquitto without a password file accepts them, too.",
            when="you move from a Mosquitto that checked no passwords",
        ),
    )
    max_packet_bytes: int = field(
        default=MIB,
        metadata=option(
            Bytes(KIB, 268_435_455),
            "The largest packet accepted; told to MQTT 5 clients.",
            when="your messages are larger",
        ),
    )
    receive_maximum: int = field(
        default=32_768,
        metadata=option(
            Count(1, 65535),
            "QoS 1 and 2 messages a client may have under way to the gateway; told to MQTT 5 clients.",
            when="clients must send few messages before they are acknowledged",
        ),
    )
    max_inflight: int = field(
        default=4096,
        metadata=option(
            Count(1, 65535),
            "QoS 1 and 2 messages under way to a client before it acknowledges; a client may ask for less.",
            when="clients must get few messages at once",
        ),
    )
    topic_alias_maximum: int = field(
        default=64,
        metadata=option(
            Count(0, 65535),
            "Topic aliases an MQTT 5 client may set; 0 = none.",
            when="clients publish to more topics by alias",
        ),
    )
    sessions_by: Literal["user", "client"] = field(
        default="user",
        metadata=option(
            Choice(("user", "client")),
            'Whose a session is. "user" = the user\'s who began it; another user with the same client id is '
            'refused (0x87; 3.x: return code 5). "client" = everybody\'s who comes with its client id: any '
            "user can take the session over.",
            when="one device logs in as several users",
        ),
    )
    session_expiry_max_s: int = field(
        default=604800,
        metadata=option(
            WholeSeconds(0, 2**32 - 2),
            "How long a session outlives its connection at most; also what an MQTT 3.1.1 client without "
            "clean session gets.",
            when="devices stay away longer than a week, or sessions of lost devices hold the disk",
        ),
    )
    max_queued_messages: int = field(
        default=0,
        metadata=option(
            Count(0, 1_000_000_000),
            "Messages that may wait for one session or shared subscription; what is too much is dropped. "
            "0 = as many as there are, on the disk.",
            when="old messages are of no use to a device that was away",
        ),
    )
    max_queued_bytes: int = field(
        default=0,
        metadata=option(
            Bytes(0, 2**60),
            "Bytes of the payloads that may wait for one session or shared subscription. With it every "
            "message that waits costs 32 bytes of memory. 0 = any number.",
            when="old messages are of no use to a device that was away",
        ),
    )
    max_lag_bytes: int = field(
        default=128 * MIB,
        metadata=option(
            Bytes(0, 2**60),
            "How far a connected session with subscriptions of QoS 0 only may lag behind, in bytes of log, "
            "within a segment. Above it the oldest messages are dropped, so that a client that does not read "
            "cannot fill the disk. 0 = any number.",
            when="subscribers of QoS 0 lose messages in bursts (raise)",
        ),
    )
    queue_full: Literal["drop-oldest", "drop-newest", "disconnect"] = field(
        default="drop-oldest",
        metadata=option(
            Choice(("drop-oldest", "drop-newest", "disconnect")),
            "What is dropped at max_queued_messages and max_queued_bytes; with drop-newest every message "
            'that waits costs 32 bytes of memory. "disconnect" = the oldest, and a client that is connected '
            "and loses messages by it is disconnected (0x97), so that it knows.",
            when="a device must notice that it lost messages, or the oldest ones count most",
        ),
    )
    queue_qos0_messages: bool = field(
        default=False,
        metadata=option(
            Switch(),
            "Messages of QoS 0 wait for sessions that are away too, and for groups of which all members are, "
            "until a restart.",
            when="you move from a Mosquitto or EMQX that had it on",
        ),
    )
    shared_strategy: Literal["round-robin", "random", "sticky", "hash-topic", "hash-clientid"] = field(
        default="round-robin",
        metadata=option(
            Choice(SHARED_STRATEGIES),
            'Which connected member of a shared subscription gets the next message. "random" = drawn for '
            'each run of messages; "sticky" = all go to the member that came first, until it is gone; '
            '"hash-topic" = each topic has its member, "hash-clientid" = each publisher.',
            when="messages of a topic or a publisher must reach the same member",
        ),
    )
    shared_strategy_of: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Pairs(SHARED_STRATEGIES, "GROUP"),
            "Groups of shared subscriptions with another strategy.",
            when="one group needs another strategy",
        ),
    )
    dead_letter_topic: str = field(
        default="",
        metadata=option(
            Text("a topic"),
            "The topic that messages dropped at max_queued_messages or max_queued_bytes are published to; "
            '"" = none.',
            when="you want to see what was dropped",
        ),
    )
    max_connect_rate: int = field(
        default=0,
        metadata=option(
            Count(0, 1_000_000_000),
            "CONNECTs per second, of all clients; more are refused (0x9F). 0 = no limit.",
            when="a storm of reconnects must not slow down those who are connected",
        ),
    )
    max_message_rate: int = field(
        default=0,
        metadata=option(
            Count(0, 1_000_000_000),
            "Messages per second that one client may publish, with bursts of two seconds' worth. MQTT 5 "
            "clients above it are disconnected (0x96), others are read more slowly. 0 = no limit.",
            when="one device could publish as much as all others",
        ),
    )
    max_byte_rate: int = field(
        default=0,
        metadata=option(
            Count(0, 1_000_000_000),
            "Bytes per second that one client may send, likewise. 0 = no limit.",
            when="one device could publish as much as all others",
        ),
    )
    response_information: str = field(
        default="",
        metadata=option(
            Text("a topic"),
            "What an MQTT 5 client is told that asks for response information, as the beginning of its "
            'response topics; {client_id} stands for its client id. "" = nothing.',
            when="MQTT 5 clients ask where answers shall go",
        ),
    )
    server_reference: str = field(
        default="",
        metadata=option(
            Text("a server reference"),
            'Other servers, such as "host2:1883 host3:1883": when the gateway stops, MQTT 5 clients are sent '
            'there (0x9C) instead of being told that it stops (0x8B). "" = none.',
            when="another server takes over while this one is stopped",
        ),
    )
    sys_interval_s: float = field(
        default=10.0,
        metadata=option(
            Seconds(0, 86400),
            "How often the figures under $SYS are brought up to date and, where they changed, published. "
            "0 = there is no $SYS.",
            when="nobody reads $SYS (0), or figures must be newer",
        ),
    )
    acl_file: str = field(
        default="",
        metadata=option(
            Text("a path"),
            "A file of access rights per topic, in the syntax of Mosquitto's acl_file; what it does not "
            "allow is denied, by whichever protocol, also to who has the permissions. Read at the start. "
            '"" = none.',
            when="you have Mosquitto's file, or rights depend on the user name or client id",
        ),
    )
    amqtt_config: str = field(
        default="",
        metadata=option(
            Text("a path"),
            "amqtt's configuration file (YAML), whose authentication and topic plugins authorize clients; "
            'needs penstock[amqtt]. Not together with acl_file. "" = none.',
            when="you have plugins of amqtt",
        ),
    )
    amqtt_user: str = field(
        default="",
        metadata=option(
            Text("a name"),
            "The user whose rights clients have that an authentication plugin of amqtt lets in; "
            '"" = auth.default_user.',
            when="clients of such plugins shall have other rights than the default user",
        ),
    )
    keepalive_max_s: int = field(
        default=0,
        metadata=option(
            WholeSeconds(0, 65535),
            "The longest keep-alive granted: MQTT 5 clients that ask for more or for none get this. "
            "0 = whatever the client asks.",
            when="dead devices must be noticed sooner",
        ),
    )
