"""The section `amqp`: AMQP 0-9-1 and 1.0."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from penstock.config.kinds import (
    KIB,
    MIB,
    Bytes,
    Choice,
    Count,
    Listen,
    Switch,
    WholeSeconds,
    option,
)
from penstock.config.sections.listener import WS_ORIGINS, WS_PATHS, TlsListener
from penstock.lazy_dataclass import dataclass

__all__ = ["Amqp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amqp(TlsListener):
    """AMQP 0-9-1 and 1.0."""

    listen: str = field(
        default="127.0.0.1:5672",
        metadata=option(
            Listen(),
            "Address for AMQP clients, 0-9-1 and 1.0.",
            when='clients run on other machines ("0.0.0.0:5672")',
        ),
    )
    tls_listen: str = field(
        default="",
        metadata=option(
            Listen(),
            "Address for AMQP clients with TLS, usually port 5671; needs tls.cert_file.",
            when='clients use TLS ("0.0.0.0:5671")',
        ),
    )
    ws_listen: str = field(
        default="",
        metadata=option(
            Listen(),
            "Address for AMQP clients over WebSocket, with the subprotocol `amqp`.",
            when="browsers connect by AMQP 1.0",
        ),
    )
    wss_listen: str = field(
        default="",
        metadata=option(
            Listen(),
            "Address for AMQP clients over WebSocket with TLS; needs tls.cert_file.",
            when="browsers connect from pages with https",
        ),
    )
    ws_paths: tuple[str, ...] = field(
        default=("/amqp", "/ws"),
        metadata=WS_PATHS,
    )
    ws_origins: tuple[str, ...] = field(default=(), metadata=WS_ORIGINS)
    address_v1: bool = field(
        default=False,
        metadata=option(
            Switch(),
            "AMQP 1.0 links may have the addresses of RabbitMQ 3, such as /queue/NAME and /topic/KEY.",
            when="clients were written for RabbitMQ 3 and cannot be changed",
        ),
    )
    frame_max: int = field(
        default=128 * KIB,
        metadata=option(
            Bytes(4 * KIB, 16 * MIB),
            "The largest frame offered to clients, who may ask for less.",
            when="a client asks for larger frames",
        ),
    )
    channel_max: int = field(
        default=2047,
        metadata=option(
            Count(1, 65535),
            "The most channels per connection offered to clients.",
            when="one connection needs more channels, or a fault in a client opens too many",
        ),
    )
    heartbeat_s: int = field(
        default=60,
        metadata=option(
            WholeSeconds(0, 65535),
            "Heartbeat interval offered to clients; 0 = none. A connection silent for two of them is closed.",
            when="dead peers must be noticed sooner, or links are silent for longer",
        ),
    )
    max_message_bytes: int = field(
        default=128 * MIB,
        metadata=option(
            Bytes(KIB, 512 * MIB), "The largest message body accepted.", when="your messages are larger"
        ),
    )
    allow_anonymous: Literal["loopback"] | bool = field(
        default=False,
        metadata=option(
            Choice(("loopback",), switch=True),
            "Who may log in by SASL ANONYMOUS, without a name and a password, as auth.default_user: "
            '"loopback" = peers on this machine, true = everybody, false = nobody (it is not offered).',
            when="AMQP 1.0 clients come without a password",
        ),
    )
    scram: Literal["auto"] | bool = field(
        default="auto",
        metadata=option(
            Choice(("auto",), switch=True),
            'Whether AMQP 1.0 offers SASL SCRAM-SHA-256: "auto" = if each user has a password that was set '
            "here, and there is no section oauth. Clients that know it take it, and fail with a password "
            "whose hash is another broker's, or with a token.",
            when="all clients have passwords that were set here (true), or some fail to log in (false)",
        ),
    )
