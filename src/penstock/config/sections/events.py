"""The section `events`: the table of what becomes of messages and connections."""

from __future__ import annotations

from dataclasses import field

from penstock.config.kinds import GIB, Bytes, Seconds, Words, option
from penstock.lazy_dataclass import dataclass

__all__ = ["EVENT_KINDS", "Events"]

EVENT_KINDS = (
    "connect",
    "disconnect",
    "subscribe",
    "unsubscribe",
    "deliver",
    "ack",
    "requeue",
    "dead_letter",
    "drop",
    "publish",
)
_YEAR_S = 366 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Events of messages and connections, kept in the log for Spark; see docs/reference/spark.md."""

    kinds: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Words(EVENT_KINDS),
            "Events that are kept. Empty: none, which costs nothing. deliver and ack are one each per "
            "message and queue, 32 bytes before compression; publish is one per read from a publisher.",
            when="you want to see the path of a message, or who connected when",
        ),
    )
    retention_bytes: int = field(
        default=GIB,
        metadata=option(
            Bytes(0, 2**60), "How much of the log the events may be.", when="you want to look further back"
        ),
    )
    retention_s: float = field(
        default=86400.0,
        metadata=option(
            Seconds(0, 100 * _YEAR_S),
            "How long events are kept, within retention_bytes.",
            when="you want to look further back, or must not keep events for so long",
        ),
    )
