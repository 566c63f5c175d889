"""The state that all methods of a vhost share: its exchanges, queues and bindings, permissions, and units of
change.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass
from penstock.router.authorization.identity import Actor
from penstock.router.errors import (
    AccessRefused,
    DefaultExchange,
    Kind,
    NotFound,
    Operation,
    ResourceLocked,
    TopicRefused,
)
from penstock.router.exchanges.bindings import Bindings
from penstock.router.exchanges.entries import QueueEntry
from penstock.router.exchanges.exchanges import PREDECLARED, Exchange, Slot
from penstock.router.limits.limits import RETENTION_BYTES, RETENTION_SECONDS, Limits, limit_of
from penstock.router.names import text, wire
from penstock.router.policies.policies import Policies
from penstock.router.routes._routes import Scope, Topology

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.log_core.batch._batch import Record
    from penstock.router.arguments import Arguments
    from penstock.router.broker import Broker
    from penstock.router.publishing.publishing import Publishing
    from penstock.router.queues.subscriptions import Subscriptions
    from penstock.router.sessions.sessions import Sessions

__all__ = ["VhostMetadata", "VhostState"]


class _Changing:
    """One unit of change. A class, since a generator would cost each connect and each declare more."""

    __slots__ = ("_unit", "_vhost")

    def __init__(self, vhost: VhostState) -> None:
        self._vhost = vhost
        self._unit = vhost.broker.log.unit()

    def __enter__(self) -> None:
        self._unit.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unit.__exit__(kind, error, trace)
        if kind is None:
            broker = self._vhost.broker
            broker.tick.schedule()
            for told in broker.on_topology_changed:
                told(self._vhost.name)


@dataclass(frozen=True, slots=True)
class VhostMetadata:
    """The metadata of a vhost."""

    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str = ""
    """Of durable queues declared without `x-queue-type`; "" = classic."""


class VhostState:
    """See the module; `Vhost` is the whole."""

    publishing: Publishing
    """The way in; for the front ends there are the vhost's `publisher`, `route` and `publish`."""
    sessions: Sessions
    """The MQTT sessions."""
    subscriptions: Subscriptions
    """Those to streams."""

    def __init__(self, name: str, broker: Broker, lp: int) -> None:
        self.name = name
        self.lp = lp
        """Its log partition: tells its records from those of other vhosts; see `partitions`."""
        self.broker = broker
        self.metadata = VhostMetadata()
        self.limits: Limits = {}
        """See `limits.VHOST_LIMITS`."""
        self.policies = Policies(name, broker.log.tables)
        self.topology = Topology()
        self.exchanges: dict[str, Exchange] = {
            exchange: Exchange(exchange, type_, self.topology, durable=True, internal=internal)
            for exchange, (type_, internal) in PREDECLARED.items()
        }
        self.queues: dict[str, QueueEntry] = {}
        self.bindings = Bindings(name, broker.log, broker.feeds)
        self.times_consumers = False
        """Some queue has, or had, an `x-consumer-timeout`: front ends look for what is out too long."""
        self._exclusive: dict[object, list[QueueEntry]] = {}
        self._names = Scope(self.topology, 1)
        self._declared_lsn = 0  # of the last durable queue

    def set_limits(self, limits: Limits) -> None:
        """Live by these limits from now on."""
        self.limits = limits
        self.broker.log.retain_traffic(
            self.lp, limit_of(limits, RETENTION_BYTES), limit_of(limits, RETENTION_SECONDS)
        )
        self.broker.quotas.limits_changed()
        self.broker.rates.limits_changed()

    @property
    def queue_count(self) -> int:
        """The number that the limit `max-queues` is for."""
        return len(self.queues) + len(self.sessions) + len(self.subscriptions)

    @property
    def full(self) -> bool:
        """Whether it is over its backlog quota: publishers to it wait."""
        return self.name in self.broker.quotas.full

    @property
    def refuses(self) -> bool:
        """Whether it is over the quota above which nothing more is taken from clients."""
        return self.name in self.broker.quotas.refusing

    def changing(self) -> AbstractContextManager[None]:
        """All that is put within is one atomic unit, written with this turn."""
        return _Changing(self)

    def headers_of(self, message: Record) -> Arguments:
        """The headers of a message, and its properties, whatever protocol it came by."""
        decode = self.broker.headers_of
        assert decode is not None, "the composition root sets it"
        return decode(message)

    def _default_slot(self, key: bytes) -> Slot | None:
        """The default exchange's slot of the queue with this name; made by the first message to it."""
        entry = self.queues.get(text(key))
        if entry is None:
            return None
        if entry.default_slot is None:
            with self.changing():
                self._join_default_slot(entry, key)
        return entry.default_slot

    def _join_default_slot(self, entry: QueueEntry, key: bytes, *, restored: bool = False) -> None:
        slot = self.exchanges[""].slot("direct", key)
        if restored:
            self.broker.feeds.take_over(self.name, slot)
        entry.default_slot = slot
        self.broker.feeds.join(self.name, slot, entry)

    def _default_exchange_slot_changed(self, entry: QueueEntry) -> None:
        self.exchanges[""].scope.touch_exact(wire(entry.name))

    def _exchange(self, name: str) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound("exchange", name, self.name)
        return exchange

    def _entry(self, name: str, owner: object) -> QueueEntry:
        entry = self.queues.get(name)
        if entry is None:
            raise NotFound("queue", name, self.name)
        if entry.owner is not None and entry.owner is not owner:
            raise ResourceLocked(name, self.name)
        return entry

    def _not_default(self, name: str) -> None:
        if name == "":
            raise DefaultExchange(self.name)

    def _permit(self, actor: Actor, operation: Operation, kind: Kind, name: str) -> None:
        if not self.broker.authorizer.allow(actor.identity, self.name, operation, name):
            raise AccessRefused(kind, name, self.name, actor.identity.username, operation)

    def _permit_topic(self, actor: Actor, source: Exchange, routing_key: str) -> None:
        """Whether a binding from `source` may have this key."""
        key = wire(routing_key)
        if source.is_topic and not self.broker.authorizer.allow_topic(
            actor.identity, self.name, "read", source.name, key
        ):
            raise TopicRefused(source.name, self.name, actor.identity.username, "read", key)

    def _permit_leading(self, actor: Actor, target: str, key: bytes | None) -> None:
        """Whether messages with this key (a binding's; None: any) may be led to the exchange `target`.

        Publishers to the sources of these bindings are not asked about the keys here.
        """
        exchange = self.exchanges.get(target)
        if exchange is not None and not exchange.is_topic:
            return
        key = b"#" if key is None else key
        if not self.broker.authorizer.allow_topic(actor.identity, self.name, "write", target, key):
            raise TopicRefused(target, self.name, actor.identity.username, "write", key)

    def _permit_any(self, actor: Actor, kind: Kind, name: str) -> None:
        operations: tuple[Operation, ...] = ("configure", "write", "read")
        allow = self.broker.authorizer.allow
        if not any(allow(actor.identity, self.name, operation, name) for operation in operations):
            raise AccessRefused(kind, name, self.name, actor.identity.username, "configure")
