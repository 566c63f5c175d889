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
    Bytes,
    Choice,
    Count,
    Kind,
    Listen,
    Names,
    NotBuilt,
    Seconds,
    Switch,
    Text,
    WholeSeconds,
)
from penstock.config.users import User, Users

__all__ = ["Amqp", "Auth", "Config", "Http", "Log", "Management", "Metrics", "Mqtt", "Native", "Server"]

_YEAR_S: Final = 366 * 86400.0


def _option(kind: Kind, doc: str, *, secret: bool = False) -> dict[str, object]:
    """The metadata of one option; `secret` values are masked whenever they are shown."""
    return {"kind": kind, "doc": doc, "secret": secret}


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
        default=256 * MIB,
        metadata=_option(
            Bytes(MIB, 1024 * GIB),
            "Memory for the newest messages, from which consumers that keep up are served.",
        ),
    )
    read_cache_bytes: int = field(
        default=64 * MIB,
        metadata=_option(
            Bytes(MIB, 1024 * GIB),
            "Memory for older messages read back from disk, so that a consumer that catches up displaces "
            "nothing else.",
        ),
    )
    feed_cache_bytes: int = field(
        default=64 * MIB,
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
    retention_bytes: int = field(
        default=10 * GIB,
        metadata=_option(
            Bytes(0, 2**60),
            "How much consumed log is kept for replay; 0 = none. What a queue still needs is always kept.",
        ),
    )
    retention_s: float = field(
        default=86400.0,
        metadata=_option(
            Seconds(0, 100 * _YEAR_S),
            "How long consumed log is kept for replay, within retention_bytes.",
        ),
    )
    min_free_bytes: int = field(
        default=512 * MIB,
        metadata=_option(
            Bytes(0, 2**60),
            "Publishers are stopped while the file system of data_dir has less free space than this.",
        ),
    )
    max_unsynced_bytes: int = field(
        default=64 * MIB,
        metadata=_option(
            Bytes(MIB, 64 * GIB),
            "Publishers are held back while more than this waits for the disk.",
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
class Amqp(_Listener):
    """AMQP 0-9-1."""

    listen: str = field(
        default="127.0.0.1:5672", metadata=_option(Listen(), "Address for AMQP 0-9-1 clients.")
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
class Mqtt(_Listener):
    """MQTT 3.1, 3.1.1 and 5.0."""

    listen: str = field(default="127.0.0.1:1883", metadata=_option(Listen(), "Address for MQTT clients."))
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
class Http(_Listener):
    """HTTP publishing, pulling and webhooks. Not built yet."""

    listen: str = field(
        default="", metadata=_option(NotBuilt("the HTTP front end"), "Address for HTTP clients.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Management(_Listener):
    """The management API. Not built yet."""

    listen: str = field(
        default="", metadata=_option(NotBuilt("the management API"), "Address of the management API.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(_Listener):
    """Metrics for Prometheus. Not built yet."""

    listen: str = field(
        default="", metadata=_option(NotBuilt("the metrics page"), "Address of the metrics page.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Native(_Listener):
    """The native batch protocol. Not built yet."""

    listen: str = field(
        default="", metadata=_option(NotBuilt("the native protocol"), "Address for native clients.")
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
            "Further users. password_hash is base64 of a 4-byte salt and SHA-256 or SHA-512 of salt + "
            "password, as RabbitMQ's definitions export it.",
            secret=True,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration: one field per section, e.g. `config.log.segment_bytes`."""

    server: Server = field(default_factory=Server)
    log: Log = field(default_factory=Log)
    amqp: Amqp = field(default_factory=Amqp)
    mqtt: Mqtt = field(default_factory=Mqtt)
    http: Http = field(default_factory=Http)
    management: Management = field(default_factory=Management)
    metrics: Metrics = field(default_factory=Metrics)
    native: Native = field(default_factory=Native)
    auth: Auth = field(default_factory=Auth)
