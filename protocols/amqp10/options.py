"""Options of AMQP 1.0; they are those of the configuration's section `amqp`."""

from __future__ import annotations

from typing import Final, Literal

from penstock.lazy_dataclass import dataclass

__all__ = ["CREDIT", "WINDOW", "Options"]

CREDIT: Final = 2048
"""Messages that a sender may have under way; given again when half of them came."""
WINDOW: Final = 8192
"""Transfers of a session that may be under way; given again when half of them came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Limits offered to clients; sizes in bytes, times in seconds."""

    frame_max: int = 131072
    channel_max: int = 2047
    heartbeat_s: int = 60
    max_message_bytes: int = 128 << 20
    address_v1: bool = False
    """Addresses of RabbitMQ 3 are some, too."""
    allow_anonymous: Literal["loopback"] | bool = False
    scram: Literal["auto"] | bool = "auto"
    """Whether SCRAM-SHA-256 is offered; "auto" = when each password has its keys, and none is a token."""
