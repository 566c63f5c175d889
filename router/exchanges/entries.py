"""The vhost's records of each queue, session and binding. Only `bindings`, `sessions` and `vhost` change
them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Literal

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import Arguments, decode_table
from penstock.router.exchanges.exchanges import Exchange, Own, Slot

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.router.sessions.filters import Filters
    from penstock.subscriptions.queue.limits import Bury
    from penstock.subscriptions.queue.queue import Queue

__all__ = [
    "SUBSCRIPTION_PREFIX",
    "Binding",
    "DestinationKind",
    "QueueEntry",
    "SessionEntry",
    "listed_session",
    "session_of",
]

DestinationKind = Literal["queue", "exchange", "session", "share"]

SUBSCRIPTION_PREFIX: Final = "subscription-"
_MQTT_PREFIX: Final = "mqtt-subscription-"
_MQTT_SUFFIX: Final = "qos1"


@dataclass(slots=True, eq=False)
class QueueEntry:
    """A declared queue, or that of an MQTT session, a shared subscription, or a subscription to a stream."""

    kind: Literal["queue", "session", "share", "subscription"]
    queue: Queue
    row: bytes
    """Its key in the table `queue`."""
    effective: Arguments
    """Its rules: its arguments, with those that policies add or narrow."""
    bury_refused: Bury | None = None
    """The handler of a message that it refuses; None: the publisher is told."""
    lsn: int = 0
    """Where the record of a durable session is in the log."""
    _bindings: dict[Binding, None] | None = None
    held: object | None = None
    """Deliveries of a consumer that went away and may come back, for the front end that holds them."""
    default_slot: Slot | None = None
    """Its slot in the default exchange, from the first message to its name on."""
    policy_names: tuple[int, str | None, str | None] | None = None
    """As lists found it: how often policies had changed, the names of its policy and its operator policy."""
    own_feed: Feed | None = None
    """Where all that is routed to it goes when it is a stream or may refuse messages, and what a subscription
    reads; else it shares those of its slots."""

    @property
    def name(self) -> str:
        """The queue's name, the session's client id, the name of the shared subscription, or STREAM/NAME of a
        subscription to a stream."""
        return self.queue.name

    @property
    def listed_name(self) -> str:
        """Its name for operators, in lists and in the patterns of policies: queues of MQTT have RabbitMQ's
        names for them, subscriptions to a stream are `subscription-STREAM/NAME`."""
        match self.kind:
            case "queue":
                return self.name
            case "subscription":
                return f"{SUBSCRIPTION_PREFIX}{self.name}"
        return listed_session(self.name)

    @property
    def durable(self) -> bool:
        """Whether it is there after a restart."""
        return self.queue.durable

    @property
    def owner(self) -> object | None:
        """The connection it is exclusive to, None when it is shared."""
        return self.queue.owner

    @property
    def is_listed(self) -> bool:
        """Whether operators see it as a queue."""
        return True

    @property
    def auto_delete(self) -> bool:
        """Whether it goes with its last consumer."""
        return self.queue.auto_delete

    @property
    def arguments(self) -> Arguments:
        """Of its declaration."""
        return self.queue.arguments

    # Bindings

    @property
    def bindings(self) -> Collection[Binding]:
        """Those that lead to it, in the order they were made in."""
        return self._bindings or ()

    def bound(self, binding: Binding) -> None:
        """One more leads to it."""
        if self._bindings is None:
            self._bindings = {}
        self._bindings[binding] = None

    def unbound(self, binding: Binding) -> None:
        """One leads to it no more."""
        assert self._bindings is not None
        del self._bindings[binding]

    def slots(self) -> list[Slot]:
        """The slots it is in, as often as it is bound by them."""
        found = [binding.slot for binding in self.bindings]
        return found if self.default_slot is None else [*found, self.default_slot]

    def reads(self) -> list[tuple[Feed, list[QueueEntry]]]:
        """The feeds that bring it what is routed to it now, each with all who read it."""
        if self.own_feed is not None:
            return [(self.own_feed, [self])]
        return [
            (slot.feed, [other for other in slot.members if other.own_feed is None])
            for slot in self.slots()
            if slot.feed is not None
        ]


@dataclass(slots=True, eq=False)
class SessionEntry(QueueEntry):
    """That of an MQTT session, which has filters instead of bindings."""

    own: tuple[Own, ...] = ()
    """Its own feeds, one for each tag that a filter only it has is subscribed with."""
    pages: int = 0
    """Bit n: there is a page n of its filters."""
    filters: Filters | None = None
    """Its filters; None while nobody asks for those of a durable session, which are in the log's tables."""

    @property
    def is_listed(self) -> bool:
        """False for a client that only publishes: as in RabbitMQ it has no queue."""
        filters = self.pages if self.filters is None else self.filters.all
        return bool(filters) or bool(self.queue.cursor.outstanding or self.queue.ready_count)


def listed_session(name: str) -> str:
    """The `listed_name` of an MQTT session, by its client id, or of a shared subscription, by its filter."""
    return f"{_MQTT_PREFIX}{name}{_MQTT_SUFFIX}"


def session_of(listed_name: str) -> str | None:
    """The client id in the `listed_name` of a session's queue; None: it is not such a name."""
    name = listed_name.removeprefix(_MQTT_PREFIX)
    if name == listed_name or not name.endswith(_MQTT_SUFFIX):
        return None
    return name.removesuffix(_MQTT_SUFFIX)


@dataclass(slots=True, eq=False)
class Binding:
    """From an exchange to a queue, a session or another exchange."""

    source: Exchange
    destination: QueueEntry | Exchange
    identity: tuple[object, ...]
    """Its key in `source.bindings`."""
    slot: Slot
    row: bytes
    """Its key in the table `binding`; empty when it is not durable."""
    lsn: int
    """Where it is in the log; 0 when it is not durable."""

    @property
    def key(self) -> str:
        """Its routing key, or the topic filter of a shared subscription."""
        return str(self.identity[2])

    @property
    def arguments(self) -> Arguments:
        """Its arguments."""
        encoded = self.identity[3]
        assert isinstance(encoded, bytes)
        return decode_table(encoded)
