"""What a vhost keeps of each queue and each binding; records that only `bindings` and `vhost` change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.router.arguments import Arguments
from penstock.router.exchanges import Exchange, Slot

if TYPE_CHECKING:
    from penstock.subscriptions.queue import Queue

__all__ = ["Binding", "DestinationKind", "QueueEntry"]

DestinationKind = Literal["queue", "exchange", "session"]


@dataclass(slots=True, eq=False)
class QueueEntry:
    """A declared queue, or the queue of an MQTT session."""

    kind: Literal["queue", "session"]
    name: str
    """The queue's name, or the session's client id."""
    queue: Queue
    durable: bool
    owner: object | None
    """The connection it is exclusive to, None when it is shared."""
    auto_delete: bool
    arguments: Arguments
    row: bytes
    """Its key in the table `queue`."""
    lsn: int = 0
    """Where its declaration is in the log; 0 when it is not durable."""
    bindings: dict[Binding, None] = field(default_factory=dict)
    default_slot: Slot | None = None
    """Its slot in the default exchange, from the first message to its name on."""

    def slots(self) -> list[tuple[Slot, int]]:
        """The slots it is in, each with the tag of its membership."""
        found = [(binding.slot, binding.tag) for binding in self.bindings]
        return found if self.default_slot is None else [*found, (self.default_slot, 0)]


@dataclass(slots=True, eq=False)
class Binding:
    """From an exchange to a queue, a session or another exchange."""

    source: Exchange
    destination: QueueEntry | Exchange
    identity: tuple[object, ...]
    """Its key in `source.bindings`."""
    slot: Slot
    tag: int
    """What the queue's cursor says of messages that came by it."""
    row: bytes
    """Its key in the table `binding`; empty when it is not durable."""
    lsn: int
    """Where it is in the log; 0 when it is not durable."""
