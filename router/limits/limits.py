"""Limits of vhosts and users: RabbitMQ's, and penstock's own.

    of a vhost    max-connections   max-queues (MQTT sessions count as queues, as in RabbitMQ, and so do
                  subscriptions to streams)
                  max-backlog-bytes   max-backlog-bytes-reject   max-backlog-bytes-evict (see
                  `backlog_quotas`; absent: as the configuration has it)
                  traffic-retention-bytes   traffic-retention-seconds (absent: as the configuration has it)
                  max-message-rate   max-byte-rate (see `rate_quotas`; at least 1)
    of a user     max-connections   max-channels   max-message-rate   max-byte-rate

A limit is a number. A negative or absent one is no limit; 0 allows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.router.errors import InvalidParameter

__all__ = [
    "BACKLOG_BYTES",
    "BACKLOG_EVICT",
    "BACKLOG_REJECT",
    "BYTE_RATE",
    "MESSAGE_RATE",
    "RETENTION_BYTES",
    "RETENTION_SECONDS",
    "USER_LIMITS",
    "VHOST_LIMITS",
    "Limits",
    "check_limits",
    "limit_of",
    "over",
]

Limits = Mapping[str, int]

BACKLOG_BYTES: Final = "max-backlog-bytes"
BACKLOG_REJECT: Final = "max-backlog-bytes-reject"
BACKLOG_EVICT: Final = "max-backlog-bytes-evict"
RETENTION_BYTES: Final = "traffic-retention-bytes"
RETENTION_SECONDS: Final = "traffic-retention-seconds"
MESSAGE_RATE: Final = "max-message-rate"
BYTE_RATE: Final = "max-byte-rate"
VHOST_LIMITS: Final = (
    "max-connections",
    "max-queues",
    BACKLOG_BYTES,
    BACKLOG_REJECT,
    BACKLOG_EVICT,
    RETENTION_BYTES,
    RETENTION_SECONDS,
    MESSAGE_RATE,
    BYTE_RATE,
)
USER_LIMITS: Final = ("max-connections", "max-channels", MESSAGE_RATE, BYTE_RATE)

_LIMIT_MAX: Final = 2**53


def check_limits(limits: Mapping[str, object], known: tuple[str, ...]) -> dict[str, int]:
    """The limits, when they may be set.

    Raises:
        InvalidParameter: there is no such limit, or it is no number.

    """
    checked = {}
    for name, value in limits.items():
        if name not in known:
            raise InvalidParameter(f"Unrecognised limit {name!r}", f"use {' or '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LIMIT_MAX:
            raise InvalidParameter(
                f"{name} should be a number, actually was {value!r}", "give a whole number, -1 for no limit"
            )
        if name in (MESSAGE_RATE, BYTE_RATE) and value == 0:
            raise InvalidParameter(
                f"{name} is at least 1", "take the write permission back where nothing may be published"
            )
        checked[name] = value
    return checked


def limit_of(limits: Limits, name: str) -> int | None:
    """The limit of this name; None: there is none."""
    most = limits.get(name, -1)
    return most if most >= 0 else None


def over(limits: Limits, name: str, count: int) -> int | None:
    """The limit that forbids one more than `count`; None: there is room."""
    most = limit_of(limits, name)
    return most if most is not None and most <= count else None
