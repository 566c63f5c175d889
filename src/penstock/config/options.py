"""Every option of penstock, declared once: name, type, default, kind (range and unit) and what it does.

From these declarations come the TOML file, the environment, --set, `penstock config show|schema` and
the page docs/configuration.md. The result of reading them is one frozen, typed `Config`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from penstock.config.kinds import (
    GIB,
    KIB,
    MIB,
    Address,
    AutoBytes,
    Bytes,
    Choice,
    Count,
    Listen,
    Names,
    Networks,
    Seconds,
    Share,
    Switch,
    Text,
    WholeSeconds,
)
from penstock.config.kinds import option as _option
from penstock.config.tls_hosts import TlsHost, TlsHosts
from penstock.config.users import User, Users
from penstock.config.webhooks import Webhooks

__all__ = [
    "Amqp",
    "Auth",
    "Config",
    "Http",
    "Log",
    "Management",
    "Metrics",
    "Mqtt",
    "Native",
    "Server",
    "Tls",
]

_YEAR_S: Final = 366 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The process as a whole: its log lines, its connections, its end."""

    log_level: Literal["debug", "info", "warning", "error"] = field(
        default="info",
        metadata=_option(
            Choice(("debug", "info", "warning", "error")),
            "The least severe log line that is written. At info, a connection writes one line when it opens "
            "and one when it closes.",
        ),
    )
    log_format: Literal["text", "json"] = field(
        default="text",
        metadata=_option(
            Choice(("text", "json")),
            "How log lines are written to standard error: for people, or as JSON lines.",
        ),
    )
    output_buffer_bytes: int = field(
        default=MIB,
        metadata=_option(
            Bytes(16 * KIB, GIB),
            "High-water mark of what waits to be sent to one connection. Above it the connection's consumers "
            "get no more messages until it has drained.",
        ),
    )
    output_stuck_s: float = field(
        default=30.0,
        metadata=_option(
            Seconds(0.1, 86400),
            "A connection whose output is eight times above its mark, and that takes none of it for so long, "
            "is closed. Above eight marks it is not read either.",
        ),
    )
    buffer_budget: int | float = field(
        default=0.2,
        metadata=_option(
            Share(16 * MIB, 1024 * GIB),
            "What the buffers of all connections may hold together: a part of what the machine or its "
            "control group has, or a size. Above it the mark of each connection falls, and those who take "
            "none of their output are closed, the largest first. 0 = no limit.",
        ),
    )
    drain_timeout_s: float = field(
        default=10.0,
        metadata=_option(
            Seconds(0, 3600),
            "How long a stop waits for connections to take what is under way before it closes them.",
        ),
    )
    max_connections: int = field(
        default=0,
        metadata=_option(
            Count(0, 10_000_000),
            "Connections open at once on each listener; further ones are refused. 0 = no limit.",
        ),
    )
    max_connections_per_address: int = field(
        default=0,
        metadata=_option(
            Count(0, 10_000_000),
            "Connections open at once from one address, on all listeners together; an IPv6 address counts as "
            "its /64, loopback is not limited. 0 = no limit.",
        ),
    )
    accept_rate_per_address: int = field(
        default=1000,
        metadata=_option(
            Count(0, 10_000_000),
            "Connections per second accepted from one address, on all listeners together, with a burst of "
            "two seconds; further ones are refused. 0 = no limit.",
        ),
    )
    proxy_networks: tuple[str, ...] = field(
        default=(),
        metadata=_option(
            Networks(),
            "Where trusted proxies are: connections from there must begin with a PROXY header (version 1 or "
            "2), and count as from the address that it names. List nothing but the proxies themselves.",
        ),
    )
    memory_high_watermark: int | float = field(
        default=0.6,
        metadata=_option(
            Share(16 * MIB, 1024 * GIB),
            "Publishers are stopped while the gateway uses more memory than this: a part of what the machine "
            "or its control group has, or a size. 0 = no limit.",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log on disk: where it is, what it keeps, when it syncs."""

    data_dir: str = field(
        default="data",
        metadata=_option(
            Text("a path"),
            "The folder of the log; made when it does not exist. A relative path starts from the working "
            "folder.",
        ),
    )
    segment_bytes: int = field(
        default=64 * MIB,
        metadata=_option(
            Bytes(MIB, 2 * GIB),
            "Size of one file of the write-ahead log, which is preallocated. Space is given back file by "
            "file.",
        ),
    )
    tail_cache_bytes: int = field(
        default=128 * MIB,
        metadata=_option(
            Bytes(MIB, 1024 * GIB),
            "Memory for the newest messages, from which consumers that keep up are served.",
        ),
    )
    read_cache_bytes: int = field(
        default=48 * MIB,
        metadata=_option(
            Bytes(MIB, 1024 * GIB),
            "Memory for older messages read back from disk, so that a consumer that catches up displaces "
            "nothing else.",
        ),
    )
    feed_cache_bytes: int = field(
        default=32 * MIB,
        metadata=_option(
            Bytes(MIB, 1024 * GIB),
            "Memory for the lists of positions in older files of the log; the rest is read from disk.",
        ),
    )
    fsync: Literal["group", "never"] = field(
        default="group",
        metadata=_option(
            Choice(("group", "never")),
            '"group": a confirm of a durable message waits until the disk has it; one sync serves all '
            'that wait. "never": nothing is synced and a power cut loses confirmed messages; for tests '
            "and benchmarks only.",
        ),
    )
    checkpoint_bytes: int = field(
        default=256 * MIB,
        metadata=_option(
            Bytes(MIB, 1024 * GIB),
            "After this much log a snapshot of all state is written, which bounds what a restart must read.",
        ),
    )
    traffic_retention_bytes: int = field(
        default=10 * GIB,
        metadata=_option(
            Bytes(0, 2**60),
            "How much of what each vhost published is kept for replay, what is acknowledged by all included; "
            "0 = none. A vhost may have a limit of its own. What a queue still needs is always kept.",
        ),
    )
    traffic_retention_s: float = field(
        default=86400.0,
        metadata=_option(
            Seconds(0, 100 * _YEAR_S),
            "How long what was published is kept for replay, within traffic_retention_bytes.",
        ),
    )
    lease_bytes: int = field(
        default=10 * GIB,
        metadata=_option(
            Bytes(0, 2**60),
            "How much of the log beyond that is kept for readers of the log itself (Spark) that say what "
            "they still need; 0 = nothing.",
        ),
    )
    compression_level: int = field(
        default=1,
        metadata=_option(
            Count(0, 19),
            "Level of zstd for what is kept longer than that; 0 = it is not compressed.",
        ),
    )
    min_free_bytes: int | Literal["auto"] = field(
        default="auto",
        metadata=_option(
            AutoBytes(0, 2**60),
            "Publishers are stopped while the file system of data_dir has less free space than this. "
            '"auto": 5 % of the file system, at least 2 GB and at most 50 GB, but never more than 10 %.',
        ),
    )
    max_unsynced_bytes: int = field(
        default=64 * MIB,
        metadata=_option(
            Bytes(MIB, 64 * GIB),
            "Publishers are held back while more than this waits for the disk.",
        ),
    )
    scrub_bytes_per_s: int = field(
        default=8 * MIB,
        metadata=_option(
            Bytes(0, 1024 * GIB),
            "How fast closed files of the log are read again in the background, to find what the disk has "
            "lost before it is needed; 0 = never.",
        ),
    )
    scrub_each_s: float = field(
        default=7 * 86400.0,
        metadata=_option(
            Seconds(60, 100 * _YEAR_S),
            "How often each closed file of the log is read again. A restart begins anew.",
        ),
    )
    salvage: bool = field(
        default=False,
        metadata=_option(
            Switch(),
            "Start on a log that is damaged in the middle: what can be read is kept, what cannot is fenced "
            "off and listed. Without it such a log is refused.",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listener:
    """What every front end has."""

    listen: str = field(default="", metadata=_option(Listen(), ""))

    @property
    def address(self) -> Address | None:
        """`listen` taken apart; None = off."""
        return Address.parse(self.listen) if self.listen else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _TlsListener(_Listener):
    """What a front end with TLS has."""

    tls_listen: str = field(default="", metadata=_option(Listen(), ""))

    @property
    def tls_address(self) -> Address | None:
        """`tls_listen` taken apart; None = off."""
        return Address.parse(self.tls_listen) if self.tls_listen else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS of all listeners; a listener is made one by its own address, such as amqp.tls_listen."""

    cert_file: str = field(
        default="",
        metadata=_option(
            Text("a path"),
            "PEM file with the certificate of this server, followed by those of the CAs between it and the "
            "root. Files are read again when they change, and on SIGHUP; new connections get the new ones.",
        ),
    )
    key_file: str = field(
        default="",
        metadata=_option(Text("a path"), 'PEM file with the private key; "" = the key is in cert_file, too.'),
    )
    key_password: str = field(
        default="",
        metadata=_option(Text(), "Password of the private key, when it is encrypted.", secret=True),
    )
    ca_file: str = field(
        default="",
        metadata=_option(
            Text("a path"), "PEM file with the certificates of the CAs that may sign client certificates."
        ),
    )
    verify_client: Literal["none", "optional", "required"] = field(
        default="none",
        metadata=_option(
            Choice(("none", "optional", "required")),
            "Whether clients are asked for a certificate, and refused without one. One that is shown must be "
            "valid and signed by a CA in ca_file.",
        ),
    )
    cert_login_from: Literal["distinguished_name", "common_name", "san_dns", "san_email", "san_uri"] = field(
        default="distinguished_name",
        metadata=_option(
            Choice(("distinguished_name", "common_name", "san_dns", "san_email", "san_uri")),
            "Which part of a client certificate is the user name for SASL EXTERNAL and mqtt.cert_login; as "
            'RabbitMQ\'s ssl_cert_login_from. A distinguished name is written as "O=plant,CN=pump".',
        ),
    )
    min_version: Literal["1.2", "1.3"] = field(
        default="1.2", metadata=_option(Choice(("1.2", "1.3")), "The oldest version of TLS spoken.")
    )
    ciphers: str = field(
        default="",
        metadata=_option(Text("an OpenSSL cipher list"), 'Ciphers of TLS 1.2; "" = OpenSSL\'s default.'),
    )
    hosts: tuple[TlsHost, ...] = field(
        default=(),
        metadata=_option(
            TlsHosts(),
            'Further certificates, for clients that ask for this name (SNI); "*.example.org" is any one '
            "label. Other clients get cert_file.",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Amqp(_TlsListener):
    """AMQP 0-9-1."""

    listen: str = field(
        default="127.0.0.1:5672", metadata=_option(Listen(), "Address for AMQP 0-9-1 clients.")
    )
    tls_listen: str = field(
        default="",
        metadata=_option(
            Listen(), "Address for AMQP 0-9-1 clients with TLS, usually port 5671; needs tls.cert_file."
        ),
    )
    frame_max: int = field(
        default=128 * KIB,
        metadata=_option(
            Bytes(4 * KIB, 16 * MIB),
            "The largest frame offered to clients, who may ask for less.",
        ),
    )
    channel_max: int = field(
        default=2047,
        metadata=_option(Count(1, 65535), "The most channels per connection offered to clients."),
    )
    heartbeat_s: int = field(
        default=60,
        metadata=_option(
            WholeSeconds(0, 65535),
            "Heartbeat interval offered to clients; 0 = none. A connection silent for two of them is closed.",
        ),
    )
    max_message_bytes: int = field(
        default=128 * MIB,
        metadata=_option(Bytes(KIB, 512 * MIB), "The largest message body accepted."),
    )
    handshake_timeout_s: float = field(
        default=10.0,
        metadata=_option(
            Seconds(0.1, 3600), "A connection that is not logged in and open after this time is closed."
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mqtt(_TlsListener):
    """MQTT 3.1, 3.1.1 and 5.0."""

    listen: str = field(default="127.0.0.1:1883", metadata=_option(Listen(), "Address for MQTT clients."))
    unix_listen: str = field(
        default="",
        metadata=_option(
            Text("a path"),
            "Path of a socket in the file system for MQTT clients on this machine, who count as from "
            '127.0.0.1; its folder says who may connect. "" = off.',
        ),
    )
    tls_listen: str = field(
        default="",
        metadata=_option(
            Listen(), "Address for MQTT clients with TLS, usually port 8883; needs tls.cert_file."
        ),
    )
    ws_listen: str = field(
        default="",
        metadata=_option(Listen(), "Address for MQTT clients over WebSocket, as browsers are."),
    )
    wss_listen: str = field(
        default="",
        metadata=_option(Listen(), "Address for MQTT clients over WebSocket with TLS; needs tls.cert_file."),
    )
    ws_paths: tuple[str, ...] = field(
        default=("/mqtt", "/ws"),
        metadata=_option(Names(), 'Paths at which WebSocket clients may connect; "*" = any.'),
    )
    ws_origins: tuple[str, ...] = field(
        default=(),
        metadata=_option(
            Names(),
            'Origins of pages whose scripts may connect over WebSocket, such as "https://example.org"; '
            "empty = any. Clients that send no Origin are no browsers and may always connect.",
        ),
    )
    cert_login: bool = field(
        default=False,
        metadata=_option(
            Switch(),
            "A client with a verified certificate and without a user name is the user that the certificate "
            "names (tls.cert_login_from).",
        ),
    )
    allow_anonymous: Literal["loopback"] | bool = field(
        default="loopback",
        metadata=_option(
            Choice(("loopback",), switch=True),
            'Who may connect without a user name, as auth.default_user: "loopback" = peers on this machine, '
            "true = everybody, false = nobody.",
        ),
    )
    max_packet_bytes: int = field(
        default=MIB,
        metadata=_option(Bytes(KIB, 268_435_455), "The largest packet accepted; told to MQTT 5 clients."),
    )
    receive_maximum: int = field(
        default=1000,
        metadata=_option(
            Count(1, 65535),
            "QoS 1 and 2 messages a client may have under way to the gateway; told to MQTT 5 clients.",
        ),
    )
    max_inflight: int = field(
        default=4096,
        metadata=_option(
            Count(1, 65535),
            "QoS 1 and 2 messages under way to a client before it acknowledges; a client may ask for less.",
        ),
    )
    topic_alias_maximum: int = field(
        default=64,
        metadata=_option(Count(0, 65535), "Topic aliases an MQTT 5 client may set; 0 = none."),
    )
    session_expiry_max_s: int = field(
        default=604800,
        metadata=_option(
            WholeSeconds(0, 2**32 - 2),
            "How long a session outlives its connection at most; also what an MQTT 3.1.1 client without "
            "clean session gets.",
        ),
    )
    max_topic_levels: int = field(
        default=128,
        metadata=_option(Count(1, 65535), "Levels in a topic name or filter."),
    )
    max_queued_messages: int = field(
        default=0,
        metadata=_option(
            Count(0, 1_000_000_000),
            "Messages that may wait for one session or shared subscription; what is too much is dropped. "
            "0 = as many as there are, on the disk.",
        ),
    )
    max_queued_bytes: int = field(
        default=0,
        metadata=_option(
            Bytes(0, 2**60),
            "Bytes of the payloads that may wait for one session or shared subscription. With it every "
            "message that waits costs 32 bytes of memory. 0 = any number.",
        ),
    )
    queue_full: Literal["drop-oldest", "drop-newest", "disconnect"] = field(
        default="drop-oldest",
        metadata=_option(
            Choice(("drop-oldest", "drop-newest", "disconnect")),
            "What is dropped at max_queued_messages and max_queued_bytes; with drop-newest every message "
            'that waits costs 32 bytes of memory. "disconnect" = the oldest, and a client that is connected '
            "and loses messages by it is disconnected (0x97), so that it knows.",
        ),
    )
    queue_qos0_messages: bool = field(
        default=False,
        metadata=_option(
            Switch(),
            "Messages of QoS 0 wait for sessions that are away too, and for groups of which all members are, "
            "until a restart.",
        ),
    )
    dead_letter_topic: str = field(
        default="",
        metadata=_option(
            Text("a topic"),
            "The topic that messages dropped at max_queued_messages or max_queued_bytes are published to; "
            '"" = none.',
        ),
    )
    max_connect_rate: int = field(
        default=0,
        metadata=_option(
            Count(0, 1_000_000_000),
            "CONNECTs per second, of all clients; more are refused (0x9F). 0 = no limit.",
        ),
    )
    max_message_rate: int = field(
        default=0,
        metadata=_option(
            Count(0, 1_000_000_000),
            "Messages per second that one client may publish, with bursts of two seconds' worth. MQTT 5 "
            "clients above it are disconnected (0x96), others are read more slowly. 0 = no limit.",
        ),
    )
    max_byte_rate: int = field(
        default=0,
        metadata=_option(
            Count(0, 1_000_000_000), "Bytes per second that one client may send, likewise. 0 = no limit."
        ),
    )
    response_information: str = field(
        default="",
        metadata=_option(
            Text("a topic"),
            "What an MQTT 5 client is told that asks for response information, as the beginning of its "
            'response topics; {client_id} stands for its client id. "" = nothing.',
        ),
    )
    server_reference: str = field(
        default="",
        metadata=_option(
            Text("a server reference"),
            'Other servers, such as "host2:1883 host3:1883": when the gateway stops, MQTT 5 clients are sent '
            'there (0x9C) instead of being told that it stops (0x8B). "" = none.',
        ),
    )
    sys_interval_s: float = field(
        default=10.0,
        metadata=_option(
            Seconds(0, 86400),
            "How often the figures under $SYS are brought up to date and, where they changed, published. "
            "0 = there is no $SYS.",
        ),
    )
    acl_file: str = field(
        default="",
        metadata=_option(
            Text("a path"),
            "A file of access rights per topic, in the syntax of Mosquitto's acl_file; what it does not "
            'allow is denied, also to who has the permissions. Read at the start. "" = none.',
        ),
    )
    amqtt_config: str = field(
        default="",
        metadata=_option(
            Text("a path"),
            "amqtt's configuration file (YAML), whose authentication and topic plugins authorize clients; "
            'needs penstock[amqtt]. Not together with acl_file. "" = none.',
        ),
    )
    amqtt_user: str = field(
        default="",
        metadata=_option(
            Text("a name"),
            "The user whose rights clients have that an authentication plugin of amqtt lets in; "
            '"" = auth.default_user.',
        ),
    )
    connect_timeout_s: float = field(
        default=10.0,
        metadata=_option(
            Seconds(0.1, 3600), "A connection that has not sent CONNECT after this time is closed."
        ),
    )
    keepalive_max_s: int = field(
        default=0,
        metadata=_option(
            WholeSeconds(0, 65535),
            "The longest keep-alive granted: MQTT 5 clients that ask for more or for none get this. "
            "0 = whatever the client asks.",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Http(_TlsListener):
    """Publishing, pulling and live tails over HTTP; see docs/http.md."""

    listen: str = field(
        default="", metadata=_option(Listen(), "Address for HTTP clients, for example 127.0.0.1:15680.")
    )
    tls_listen: str = field(
        default="",
        metadata=_option(Listen(), "Address for HTTP clients with TLS; needs tls.cert_file."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Management(_TlsListener):
    """The management API, RabbitMQ's; see docs/management.md."""

    listen: str = field(
        default="",
        metadata=_option(Listen(), "Address of the management API; RabbitMQ's port is 15672."),
    )
    tls_listen: str = field(
        default="",
        metadata=_option(
            Listen(), "Address of the management API with TLS, usually port 15671; needs tls.cert_file."
        ),
    )
    load_definitions: str = field(
        default="",
        metadata=_option(
            Text("a path"),
            "A definitions.json, RabbitMQ's or our own, that is imported at each start, before clients can "
            "connect. New data then gets no default user if it brings users of its own.",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(_Listener):
    """Metrics for Prometheus; see docs/management.md."""

    listen: str = field(
        default="",
        metadata=_option(
            Listen(),
            "Address of the metrics pages; RabbitMQ's port is 15692. Clients on this machine need no login.",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Native(_TlsListener):
    """The native batch protocol, which the Python SDK speaks; see docs/protocols/native.md."""

    listen: str = field(
        default="",
        metadata=_option(Listen(), "Address for native clients; the SDK's default port is 15690."),
    )
    tls_listen: str = field(
        default="",
        metadata=_option(
            Listen(), "Address for native clients with TLS, by default port 15691; needs tls.cert_file."
        ),
    )
    max_frame_bytes: int = field(
        default=16 * MIB,
        metadata=_option(
            Bytes(64 * KIB, GIB),
            "The largest frame taken from a client that is logged in; a batch of messages is one frame.",
        ),
    )
    max_unacked: int = field(
        default=50_000,
        metadata=_option(
            Count(1, 10_000_000),
            "Messages that one consumer may hold without acknowledging them, whatever credit it grants.",
        ),
    )
    login_timeout_s: float = field(
        default=10.0, metadata=_option(Seconds(0.1, 600), "Time that a client has to log in.")
    )
    heartbeat_s: float = field(
        default=30.0,
        metadata=_option(
            Seconds(0.1, 3600),
            "A client that was silent for so long is asked whether it is there; one that does not answer for "
            "as long again is cut off.",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """Who may log in."""

    default_user: str = field(
        default="guest",
        metadata=_option(Text("a name"), 'The user that exists without being listed in users; "" = none.'),
    )
    default_password: str = field(
        default="guest",
        metadata=_option(Text(), "The password of default_user.", secret=True),
    )
    loopback_users: tuple[str, ...] = field(
        default=("guest",),
        metadata=_option(Names(), "Users who may log in from this machine only."),
    )
    users: tuple[User, ...] = field(
        default=(),
        metadata=_option(
            Users(),
            "Further users. password_hash is base64 of a 4-byte salt and SHA-256, SHA-512 or MD5 of salt + "
            "password, as RabbitMQ's definitions export it.",
            secret=True,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration: one field per section, e.g. `config.log.segment_bytes`."""

    server: Server = field(default_factory=Server)
    log: Log = field(default_factory=Log)
    tls: Tls = field(default_factory=Tls)
    amqp: Amqp = field(default_factory=Amqp)
    mqtt: Mqtt = field(default_factory=Mqtt)
    http: Http = field(default_factory=Http)
    webhooks: Webhooks = field(default_factory=Webhooks)
    management: Management = field(default_factory=Management)
    metrics: Metrics = field(default_factory=Metrics)
    native: Native = field(default_factory=Native)
    auth: Auth = field(default_factory=Auth)
