"""The section `amqp`: AMQP 0-9-1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from penstock.config.kinds import KIB, MIB, Bytes, Choice, Count, Listen, Seconds, WholeSeconds, option
from penstock.config.sections.listener import TlsListener

__all__ = ["Amqp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amqp(TlsListener):
    """AMQP 0-9-1."""

    listen: str = field(
        default="127.0.0.1:5672", metadata=option(Listen(), "Address for AMQP 0-9-1 clients.")
    )
    tls_listen: str = field(
        default="",
        metadata=option(
            Listen(), "Address for AMQP 0-9-1 clients with TLS, usually port 5671; needs tls.cert_file."
        ),
    )
    frame_max: int = field(
        default=128 * KIB,
        metadata=option(
            Bytes(4 * KIB, 16 * MIB),
            "The largest frame offered to clients, who may ask for less.",
        ),
    )
    channel_max: int = field(
        default=2047,
        metadata=option(Count(1, 65535), "The most channels per connection offered to clients."),
    )
    heartbeat_s: int = field(
        default=60,
        metadata=option(
            WholeSeconds(0, 65535),
            "Heartbeat interval offered to clients; 0 = none. A connection silent for two of them is closed.",
        ),
    )
    max_message_bytes: int = field(
        default=128 * MIB,
        metadata=option(Bytes(KIB, 512 * MIB), "The largest message body accepted."),
    )
    handshake_timeout_s: float = field(
        default=10.0,
        metadata=option(
            Seconds(0.1, 3600), "A connection that is not logged in and open after this time is closed."
        ),
    )
    allow_anonymous: Literal["loopback"] | bool = field(
        default=False,
        metadata=option(
            Choice(("loopback",), switch=True),
            "Who may log in by SASL ANONYMOUS, without a name and a password, as auth.default_user: "
            '"loopback" = peers on this machine, true = everybody, false = nobody (it is not offered).',
        ),
    )
