"""Information about connections, for the management API and metrics; made when asked, never kept.

Numbers are totals since the connection opened; whoever wants a rate samples them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Final

from penstock.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["SIZES", "ChannelInfo", "ConnectionInfo", "ConsumerInfo", "SessionInfo", "Totals", "WindowInfo"]

SIZES: Final = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)
"""Bounds of message sizes in bytes, RabbitMQ's; the kernel `amqp._codec` has them too."""


@dataclass(slots=True)
class Totals:
    """Messages of a connection or a channel, or of all that are gone."""

    published: int = 0
    """Received from the client."""
    confirmed: int = 0
    """Of these, acknowledged to it."""
    delivered: int = 0
    """Sent to the client, redeliveries included."""
    awaiting_confirm: int = 0
    """Of those published, where the client asked for confirms; `confirmed` of them it got."""
    dropped: int = 0
    """Of those published, went nowhere; `returned` to the client instead, for they were mandatory."""
    returned: int = 0
    delivered_auto: int = 0
    """Of those delivered to consumers, without acknowledgements."""
    redelivered: int = 0
    got: int = 0
    """Of those delivered, by basic.get; `got_auto` of them without acknowledgement."""
    got_auto: int = 0
    get_empty: int = 0
    acknowledged: int = 0
    channels_opened: int = 0
    channels_closed: int = 0
    sizes: tuple[int, ...] = (0,) * 9
    """AMQP publishes by the size of their body: up to each of `SIZES`, and above."""
    size_sum: int = 0
    """Bytes of the bodies of all of them."""

    @property
    def consumed(self) -> int:
        """Delivered to consumers, with or without acknowledgements."""
        return self.delivered - self.got

    def add(self, other: Totals) -> None:
        """Count those of `other` too."""
        # Each lost connection is counted: most of its totals are 0.
        for name in _NUMBERS:
            if theirs := getattr(other, name):
                setattr(self, name, getattr(self, name) + theirs)
        if any(other.sizes):
            self.sizes = tuple(map(sum, zip(self.sizes, other.sizes, strict=True)))


_NUMBERS: Final = tuple(one.name for one in fields(Totals) if one.name != "sizes")


@dataclass(slots=True)
class ConsumerInfo:
    """Somebody who takes messages of a queue."""

    tag: str
    queue: str
    ack_required: bool
    prefetch: int
    """Messages it holds at most, 0 = no limit."""
    exclusive: bool
    active: bool
    single: bool = False
    """Its queue has one active consumer at a time."""
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class WindowInfo:
    """The deliveries that a consumer has and has not settled, to be compared with an earlier look."""

    tag: str
    """Of the consumer; of an MQTT session the id of its client."""
    channel: int
    """0: its protocol has none."""
    queue: Queue
    unacknowledged: int
    most: int
    """Messages it holds at most, 0 = no limit."""
    is_full: bool
    """It gets nothing before it settles something, or asks for more."""
    settled: int
    """Another number once it, or its channel, has settled its oldest delivery."""
    got: int
    """Another number once it got a message."""


@dataclass(slots=True)
class ChannelInfo:
    """A channel; an MQTT connection has none."""

    number: int
    confirm: bool
    transactional: bool
    prefetch: int
    global_prefetch: int
    unacknowledged: int
    unconfirmed: int
    uncommitted: int
    totals: Totals
    consumers: list[ConsumerInfo]


@dataclass(slots=True)
class SessionInfo:
    """A session of AMQP 1.0, by the names of RabbitMQ's management API. Windows count transfers."""

    channel_number: int
    handle_max: int
    next_incoming_id: int
    incoming_window: int
    next_outgoing_id: int
    remote_incoming_window: int
    remote_outgoing_window: int
    outgoing_unsettled_deliveries: int
    incoming_links: list[dict[str, object]]
    """By which the client sends."""
    outgoing_links: list[dict[str, object]]
    """By which it receives."""


@dataclass(slots=True)
class TransactionInfo:
    """An open transaction of AMQP 1.0."""

    id: str
    messages: int
    settled: int
    size: int
    """Bytes of its messages."""
    opened_ms: int
    """Since the epoch."""


@dataclass(slots=True)
class ConnectionInfo:
    """A connection whose client is logged in."""

    protocol: str
    """As RabbitMQ writes it, e.g. "AMQP 0-9-1"."""
    user: str
    vhost: str
    state: str
    """"running", "flow" (its publishes wait) or "closing"."""
    client_properties: Mapping[str, object]
    mechanism: str
    timeout_s: int
    """Heartbeat or keep-alive, 0 = none."""
    frame_max: int
    channel_max: int
    totals: Totals
    channels: list[ChannelInfo]
    client_id: str = ""
    consumers: list[ConsumerInfo] = field(default_factory=list)
    """Of the connection itself, where there are no channels."""
    sessions: list[SessionInfo] = field(default_factory=list)
    """Of AMQP 1.0."""
    transactions: list[TransactionInfo] = field(default_factory=list)
    """Of AMQP 1.0."""
