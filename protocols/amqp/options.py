"""Options of the AMQP front end, with the names of the configuration's section `amqp`."""

from __future__ import annotations

from typing import Final, Literal

from penstock.lazy_dataclass import dataclass

__all__ = ["FRAME_MIN", "NEGOTIATION_FRAME_MAX", "AmqpOptions"]

FRAME_MIN: Final = 4096
"""The smallest frame_max a client may ask for (AMQP 0-9-1: every peer takes frames of 4096 bytes)."""

NEGOTIATION_FRAME_MAX: Final = 8192
"""The largest frame before tune-ok: room for a token as a password, and what RabbitMQ allows since 4.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpOptions:
    """Limits offered to clients; sizes in bytes, times in seconds."""

    frame_max: int = 131072
    channel_max: int = 2047
    heartbeat_s: int = 60
    max_message_bytes: int = 128 << 20
    allow_anonymous: Literal["loopback"] | bool = False
    """Whether peers may be the default user without a password: those of this machine, or all."""
    cluster_name: str = "penstock"
    """The name of the gateway: other brokers tell by it where a message has been."""
