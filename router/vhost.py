"""One virtual host: its exchanges, queues, bindings and sessions, and the routes through them.

What RabbitMQ's clients rely on is kept: redeclaring the same thing is fine, deleting or unbinding what is not
there too; names beginning with `amq.` are the broker's; exclusive queues belong to a connection and die with
it; an auto-delete queue goes with its last consumer, an auto-delete exchange with its last binding.
Permissions are decided on names before anything is looked up, so a refusal does not tell what exists.

A change of something durable is one atomic unit in the log and answers the LSN to wait for
(`Log.when_synced`) before it is promised to a peer; 0 means that nothing durable happened. Changes are in
force at once.

Source: amqp091:exchange.*, queue.*; RabbitMQ 3.10's rabbit_channel, rabbit_binding, rabbit_exchange.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.router._routes import Route, RouteTable, Scope, Topology
from penstock.router.arguments import Arguments, encode_table, same_value
from penstock.router.bindings import Bindings
from penstock.router.entries import Binding, QueueEntry
from penstock.router.errors import (
    AccessRefused,
    DefaultExchange,
    Inequivalent,
    InUse,
    InvalidArgument,
    Kind,
    NotEmpty,
    NotFound,
    Operation,
    ReservedName,
    ResourceLocked,
    SystemExchange,
    UnknownType,
)
from penstock.router.exchanges import PREDECLARED, TYPES, Exchange, Slot
from penstock.router.identity import Actor, Identity
from penstock.router.metadata import row_key
from penstock.router.names import RESERVED_PREFIX, clean_name, server_name, text, wire
from penstock.router.publishing import Published, Publishing
from penstock.router.queue_arguments import check_arguments, check_equivalent, without_effect
from penstock.router.resolve import Resolver
from penstock.router.sessions import Sessions, Subscribed, Unsubscribed

if TYPE_CHECKING:
    from penstock.router.broker import Broker
    from penstock.router.retained import Retained
    from penstock.subscriptions.queue import Queue

__all__ = ["Declared", "Deleted", "Vhost"]

logger = logging.getLogger("penstock.router")

_NO_ARGUMENTS: Final[Arguments] = {}


@dataclass(frozen=True, slots=True)
class Declared:
    """A queue, as its declaration found or made it."""

    name: str
    """Its name; made by the server when the client gave none."""
    queue: Queue
    message_count: int
    """Messages that are ready."""
    consumer_count: int
    lsn: int
    """Wait for it before it is promised; 0 when it is not durable."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a deleted queue held."""

    message_count: int
    lsn: int
    """Wait for it before it is promised; 0 when it was not durable."""


class Vhost:
    """See the module. Made and restored by `Broker`."""

    def __init__(self, name: str, broker: Broker, retained: Retained, mqtt_exchange: str) -> None:
        self.name = name
        self.broker = broker
        self.retained = retained
        """The retained messages of this vhost."""
        self.topology = Topology()
        self.exchanges: dict[str, Exchange] = {
            exchange: Exchange(exchange, type_, self.topology, durable=True, internal=internal)
            for exchange, (type_, internal) in PREDECLARED.items()
        }
        self.queues: dict[str, QueueEntry] = {}
        self._exclusive: dict[object, list[QueueEntry]] = {}
        self._names = Scope(self.topology, 1)
        self._resolver = Resolver(name, self.exchanges, self._names, broker.log, self._default_slot)
        self._publishing = Publishing(
            name, mqtt_exchange, broker.log, self.topology, self._resolver, broker.authorizer
        )
        self._mqtt_exchange = mqtt_exchange
        self.bindings = Bindings(name, broker.log, broker.feeds)
        self.sessions = Sessions(self)

    # Publishing

    def publisher(self, identity: Identity, enc: int) -> RouteTable:
        """The routes of a user for keys of an encoding (1 AMQP, 2 MQTT); keep it while you publish."""
        return self._publishing.table(identity, enc)

    def route(
        self, identity: Identity | None, enc: int, key: bytes, headers: Arguments | None = None
    ) -> Route:
        """The route of a key block, resolved anew; with `headers` it decides headers exchanges too.

        `identity` None is the broker itself: it may publish anywhere, to internal exchanges too.
        """
        return self._publishing.route(identity, enc, key, headers)

    def publish(
        self,
        identity: Identity | None,
        enc: int,
        key: bytes,
        props: bytes = b"",
        body: bytes = b"",
        *,
        flags: int = 0,
        priority: int = 0,
        ttl_ms: int = 0,
        origin: int = 0,
        headers: Arguments | None = None,
    ) -> Published:
        """Append one message from Python: wills, messages through a headers exchange, tests. Not for traffic.

        `headers` are those of the message, decoded, for headers exchanges. Nothing is appended when the route
        has an error. The record's retained flag is not acted on: see `retained`.
        """
        published = self._publishing.publish(
            identity,
            enc,
            key,
            props,
            body,
            flags=flags,
            priority=priority,
            ttl_ms=ttl_ms,
            origin=origin,
            headers=headers,
        )
        if published.lsn:
            self.broker.tick.schedule()
        return published

    # Exchanges

    def declare_exchange(
        self,
        name: str,
        type_: str,
        actor: Actor,
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments | None = None,
    ) -> int:
        """Make an exchange, or find that it is as declared; the LSN to wait for.

        Raises:
            UnknownType, DefaultExchange, ReservedName, AccessRefused: it cannot be made.
            InvalidArgument: `alternate-exchange` is no name.
            Inequivalent: it exists otherwise.
            NotFound: `passive`, and it does not exist.

        """
        name = clean_name(name)
        if passive:
            self._not_default(name)
            self._permit_any(actor, "exchange", name)
            if name not in self.exchanges:
                raise NotFound("exchange", name, self.name)
            return 0
        arguments = arguments or _NO_ARGUMENTS
        if type_ not in TYPES:
            raise UnknownType("exchange", type_, name, self.name)
        self._not_default(name)
        self._permit(actor, "configure", "exchange", name)
        found = self.exchanges.get(name)
        if found is not None:
            self._check_same_exchange(found, type_, durable, auto_delete, internal, arguments)
            return found.lsn
        if name.startswith(RESERVED_PREFIX):
            raise ReservedName("exchange", name, self.name)
        alternate = arguments.get("alternate-exchange")
        if alternate is not None:
            if not isinstance(alternate, str):
                raise InvalidArgument(
                    "exchange", name, self.name, "alternate-exchange", alternate, "invalid_type"
                )
            self._permit(actor, "read", "exchange", name)
            self._permit(actor, "write", "exchange", alternate)
        with self.changing():
            exchange = self._add_exchange(
                Exchange(
                    name,
                    type_,
                    self.topology,
                    durable=durable,
                    auto_delete=auto_delete,
                    internal=internal,
                    arguments=arguments,
                )
            )
            if durable:
                row = {
                    "vhost": self.name,
                    "name": name,
                    "type": type_,
                    "auto_delete": auto_delete,
                    "internal": internal,
                    "arguments": exchange.arguments,
                }
                exchange.lsn = self.broker.log.tables.put(
                    "exchange", row_key(self.name, name), encode_table(row)
                )
        return exchange.lsn

    def _add_exchange(self, exchange: Exchange) -> Exchange:
        self.exchanges[exchange.name] = exchange
        self._names.touch_all()
        return exchange

    def _check_same_exchange(
        self,
        found: Exchange,
        type_: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Arguments,
    ) -> None:
        current = {
            "type": found.type,
            "durable": found.durable,
            "auto_delete": found.auto_delete,
            "internal": found.internal,
        }
        received = {"type": type_, "durable": durable, "auto_delete": auto_delete, "internal": internal}
        for prop, value in received.items():
            if value != current[prop]:
                raise Inequivalent(
                    "exchange", found.name, self.name, prop, value, current[prop], is_property=True
                )
        alternates = arguments.get("alternate-exchange"), found.arguments.get("alternate-exchange")
        if not same_value(*alternates):
            raise Inequivalent(
                "exchange", found.name, self.name, "alternate-exchange", *alternates, is_property=False
            )

    def delete_exchange(self, name: str, actor: Actor, *, if_unused: bool = False) -> int:
        """Remove an exchange with its bindings, both ways; fine when there is none. The LSN to wait for.

        Raises:
            DefaultExchange, SystemExchange, AccessRefused: it cannot be deleted.
            InUse: `if_unused`, and something is bound to it.

        """
        name = clean_name(name)
        self._not_default(name)
        if name.startswith(RESERVED_PREFIX):
            raise SystemExchange(name, self.name)
        self._permit(actor, "configure", "exchange", name)
        exchange = self.exchanges.get(name)
        if exchange is None:
            return 0
        if if_unused and exchange.bindings:
            raise InUse("exchange", name, self.name)
        with self.changing():
            return self._remove_exchange(exchange)

    def _remove_exchange(self, exchange: Exchange) -> int:
        del self.exchanges[exchange.name]
        lsn = 0
        if exchange.durable:
            lsn = self.broker.log.tables.delete("exchange", row_key(self.name, exchange.name))
        for binding in list(exchange.bindings.values()):
            lsn = max(lsn, self.bindings.remove(binding))
        incoming = list(exchange.incoming)
        for binding in incoming:
            lsn = max(lsn, self.bindings.remove(binding))
        exchange.scope.touch_all()
        self._names.touch_all()
        return max(lsn, self._end_unbound(incoming))

    def _end_unbound(self, removed: Iterable[Binding]) -> int:
        """Auto-delete exchanges go when the last binding from them has gone."""
        lsn = 0
        for source in {binding.source for binding in removed}:
            if source.auto_delete and not source.bindings and self.exchanges.get(source.name) is source:
                lsn = max(lsn, self._remove_exchange(source))
        return lsn

    def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str,
        actor: Actor,
        arguments: Arguments | None = None,
    ) -> int:
        """Bind an exchange to an exchange; cycles are fine. The LSN to wait for.

        Raises:
            DefaultExchange, AccessRefused, NotFound, InvalidMatch, InvalidPattern: it cannot be bound.

        """
        ends = self._exchange_ends(destination, source, actor)
        with self.changing():
            binding, _ = self.bindings.add(ends[1], ends[0], routing_key, arguments or _NO_ARGUMENTS)
        return binding.lsn

    def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str,
        actor: Actor,
        arguments: Arguments | None = None,
    ) -> int:
        """Take such a binding back; fine when there is none, or one of its ends. The LSN to wait for.

        Raises:
            DefaultExchange, AccessRefused: it cannot be unbound.

        """
        try:
            target, start = self._exchange_ends(destination, source, actor)
        except NotFound:
            return 0
        return self._unbind(self.bindings.find(start, target, routing_key, arguments or _NO_ARGUMENTS))

    def _exchange_ends(self, destination: str, source: str, actor: Actor) -> tuple[Exchange, Exchange]:
        destination, source = clean_name(destination), clean_name(source)
        self._not_default(destination)
        self._not_default(source)
        self._permit(actor, "write", "exchange", destination)
        self._permit(actor, "read", "exchange", source)
        return self._exchange(destination), self._exchange(source)

    def _unbind(self, binding: Binding | None) -> int:
        if binding is None:
            return 0
        with self.changing():
            lsn = self.bindings.remove(binding)
            return max(lsn, self._end_unbound((binding,)))

    # Queues

    def declare_queue(
        self,
        name: str,
        actor: Actor,
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments | None = None,
    ) -> Declared:
        """Make a queue, or find that it is as declared. The name "" asks for one made by the server.

        Raises:
            ReservedName, AccessRefused, ServerNameRefused: it cannot be made.
            InvalidArgument, InvalidProperty, UnknownType: its arguments are impossible.
            ResourceLocked: it is exclusive to another connection, or exclusive is not as it is.
            Inequivalent: it exists otherwise.
            NotFound: `passive`, and it does not exist.

        """
        name = clean_name(name)
        if passive:
            self._permit_any(actor, "queue", name)
            return self._declared(self._entry(name, actor.owner))
        arguments = arguments or _NO_ARGUMENTS
        server_named = not name
        if server_named:
            name = server_name("amq.gen-")
        elif name.startswith(RESERVED_PREFIX):
            raise ReservedName("queue", name, self.name)
        self._permit(actor, "configure", "queue", name)
        # An exclusive queue cannot outlive its connection, whatever was asked for.
        durable = durable and not exclusive
        entry = self.queues.get(name)
        if entry is not None:
            if entry.owner is not (actor.owner if exclusive else None):
                raise ResourceLocked(name, self.name)
            for prop, received, current in (
                ("durable", durable, entry.durable),
                ("auto_delete", auto_delete, entry.auto_delete),
            ):
                if received != current:
                    raise Inequivalent("queue", name, self.name, prop, received, current, is_property=True)
            check_equivalent(entry.arguments, arguments, name, self.name)
            return self._declared(entry)
        dead_letters = arguments.get("x-dead-letter-exchange")
        if isinstance(dead_letters, str):
            self._permit(actor, "read", "queue", name)
            self._permit(actor, "write", "exchange", dead_letters)
        check_arguments(
            arguments,
            name,
            self.name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            server_named=server_named,
        )
        with self.changing():
            queue = self.broker.queues.create(
                name,
                self.name,
                durable=durable,
                owner=actor.owner if exclusive else None,
                auto_delete=auto_delete,
                arguments=dict(arguments),
            )
            entry = self._add_queue(queue, actor.owner if exclusive else None)
            if durable:
                row = {
                    "vhost": self.name,
                    "kind": "queue",
                    "name": name,
                    "qid": queue.qid,
                    "auto_delete": auto_delete,
                    "arguments": queue.arguments,
                }
                entry.lsn = self.broker.log.tables.put("queue", entry.row, encode_table(row))
        if ignored := without_effect(arguments):
            logger.warning(
                "queue %r in vhost %r: %s is kept but has no effect in this version",
                name,
                self.name,
                ", ".join(ignored),
            )
        return self._declared(entry)

    def _add_queue(self, queue: Queue, owner: object | None) -> QueueEntry:
        entry = QueueEntry(
            vhost=self,
            kind="queue",
            name=queue.name,
            queue=queue,
            durable=queue.durable,
            owner=owner,
            auto_delete=queue.auto_delete,
            arguments=queue.arguments,
            row=row_key(self.name, "queue", queue.name) if queue.durable else b"",
        )
        queue.data = entry
        self.queues[queue.name] = entry
        if owner is not None:
            self._exclusive.setdefault(owner, []).append(entry)
        self._default_exchange_slot_changed(entry)
        return entry

    def _declared(self, entry: QueueEntry) -> Declared:
        queue = entry.queue
        return Declared(entry.name, queue, queue.ready_count, queue.consumer_count, entry.lsn)

    def queue(self, name: str, actor: Actor, operation: Operation = "read") -> Queue:
        """The queue of this name, for consume, get and purge.

        Raises:
            AccessRefused, NotFound, ResourceLocked: it cannot be used by this actor.

        """
        name = clean_name(name)
        self._permit(actor, operation, "queue", name)
        return self._entry(name, actor.owner).queue

    def delete_queue(
        self, name: str, actor: Actor, *, if_unused: bool = False, if_empty: bool = False
    ) -> Deleted:
        """Remove a queue with its bindings and messages; fine when there is none.

        Raises:
            AccessRefused, ResourceLocked: it cannot be deleted by this actor.
            InUse: `if_unused`, and it has consumers.
            NotEmpty: `if_empty`, and it has ready messages.

        """
        name = clean_name(name)
        self._permit(actor, "configure", "queue", name)
        if name not in self.queues:
            return Deleted(0, 0)
        entry = self._entry(name, actor.owner)
        if if_unused and entry.queue.consumer_count:
            raise InUse("queue", name, self.name)
        if if_empty and entry.queue.ready_count:
            raise NotEmpty(name, self.name)
        return self._delete(entry)

    def _delete(self, entry: QueueEntry) -> Deleted:
        with self.changing():
            del self.queues[entry.name]
            if entry.owner is not None:
                owned = self._exclusive[entry.owner]
                owned.remove(entry)
                if not owned:
                    del self._exclusive[entry.owner]
            return Deleted(*self.remove_queue(entry))

    def remove_queue(self, entry: QueueEntry) -> tuple[int, int]:
        """End a queue that is out of its registry already: (ready messages, the LSN to wait for)."""
        count, lsn = entry.queue.delete()
        if entry.row:
            lsn = max(lsn, self.broker.log.tables.delete("queue", entry.row))
        removed = list(entry.bindings)
        for binding in removed:
            lsn = max(lsn, self.bindings.remove(binding, deleted=True))
        slot = entry.default_slot
        if slot is not None:
            self.broker.feeds.leave(slot, entry, deleted=True)
            self.exchanges[""].discard(slot)
            entry.default_slot = None
        elif entry.kind == "queue":
            self._default_exchange_slot_changed(entry)
        return count, max(lsn, self._end_unbound(removed))

    def unneeded(self, entry: QueueEntry) -> None:
        """The last consumer of an auto-delete queue has gone: so does the queue."""
        if self.queues.get(entry.name) is entry:
            self._delete(entry)

    def connection_closed(self, owner: object) -> int:
        """A connection ended: its exclusive queues go. The LSN to wait for: 0, they are not durable."""
        for entry in list(self._exclusive.get(owner, ())):
            self._delete(entry)
        return 0

    def bind_queue(
        self, queue: str, exchange: str, routing_key: str, actor: Actor, arguments: Arguments | None = None
    ) -> int:
        """Bind a queue to an exchange; the same binding again is fine. The LSN to wait for.

        Raises:
            DefaultExchange, AccessRefused, NotFound, ResourceLocked: it cannot be bound.
            InvalidMatch, InvalidPattern: the exchange cannot match that.

        """
        entry, source = self._queue_ends(queue, exchange, actor)
        with self.changing():
            binding, _ = self.bindings.add(source, entry, routing_key, arguments or _NO_ARGUMENTS)
        return binding.lsn

    def unbind_queue(
        self, queue: str, exchange: str, routing_key: str, actor: Actor, arguments: Arguments | None = None
    ) -> int:
        """Take such a binding back; what was routed by it stays. Fine when there is none. The LSN to wait
        for.

        Raises:
            DefaultExchange, AccessRefused, ResourceLocked: it cannot be unbound.

        """
        try:
            entry, source = self._queue_ends(queue, exchange, actor)
        except NotFound:
            return 0
        return self._unbind(self.bindings.find(source, entry, routing_key, arguments or _NO_ARGUMENTS))

    def _queue_ends(self, queue: str, exchange: str, actor: Actor) -> tuple[QueueEntry, Exchange]:
        queue, exchange = clean_name(queue), clean_name(exchange)
        self._not_default(exchange)
        self._permit(actor, "write", "queue", queue)
        self._permit(actor, "read", "exchange", exchange)
        source = self._exchange(exchange)
        return self._entry(queue, actor.owner), source

    # MQTT sessions

    @property
    def mqtt_exchange(self) -> Exchange:
        """The topic exchange that MQTT publishes to and subscribes on."""
        return self.exchanges[self._mqtt_exchange]

    def session_queue(self, client_id: str, *, durable: bool) -> Queue:
        """See `Sessions.queue`."""
        return self.sessions.queue(client_id, durable=durable)

    def session(self, client_id: str) -> Queue | None:
        """The queue of a session, if there is one."""
        entry = self.sessions.get(client_id)
        return None if entry is None else entry.queue

    def delete_session(self, client_id: str) -> int:
        """See `Sessions.delete`."""
        return self.sessions.delete(client_id)

    def subscribe(self, client_id: str, topic_filter: str, tag: int, identity: Identity) -> Subscribed:
        """See `Sessions.subscribe`."""
        return self.sessions.subscribe(client_id, topic_filter, tag, identity)

    def unsubscribe(self, client_id: str, topic_filter: str) -> Unsubscribed:
        """See `Sessions.unsubscribe`."""
        return self.sessions.unsubscribe(client_id, topic_filter)

    # Inside the router

    @contextmanager
    def changing(self) -> Iterator[None]:
        """What is put within is one atomic unit, and this turn's write comes."""
        with self.broker.log.unit():
            yield
        self.broker.tick.schedule()

    def permissions_changed(self) -> None:
        """Routes are resolved, and so permitted, again."""
        self.topology.renew()

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

    # At start

    def restore_exchange(self, exchange: Exchange) -> None:
        """Put back a durable exchange of the last run."""
        self._add_exchange(exchange)

    def restore_queue(self, queue: Queue) -> None:
        """Put back a durable queue of the last run."""
        self._add_queue(queue, None)

    def restore_default_slot(self, key: bytes) -> None:
        """The queue of this name had a feed in the default exchange."""
        entry = self.queues.get(text(key))
        if entry is not None:
            self._join_default_slot(entry, key, restored=True)

    def entries(self) -> list[QueueEntry]:
        """All queues and sessions."""
        return [*self.queues.values(), *self.sessions.entries.values()]

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

    def _permit_any(self, actor: Actor, kind: Kind, name: str) -> None:
        operations: tuple[Operation, ...] = ("configure", "write", "read")
        allow = self.broker.authorizer.allow
        if not any(allow(actor.identity, self.name, operation, name) for operation in operations):
            raise AccessRefused(kind, name, self.name, actor.identity.username, "configure")

    def statistics(self) -> dict[str, int]:
        """Figures of this vhost."""
        return {
            "exchanges": len(self.exchanges),
            "queues": len(self.queues),
            "sessions": len(self.sessions),
            "retained": len(self.retained),
            **self._publishing.statistics(),
        }
