"""The methods of a vhost that declare, delete, bind and unbind queues. See `vhost`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.router.arguments import Arguments, encode_table
from penstock.router.dead_letters import bury_of
from penstock.router.entries import QueueEntry
from penstock.router.errors import (
    Inequivalent,
    InUse,
    NotEmpty,
    NotFound,
    Operation,
    ReservedName,
    ResourceLocked,
)
from penstock.router.exchange_methods import NO_ARGUMENTS, ExchangeMethods
from penstock.router.exchanges import Exchange
from penstock.router.identity import Actor
from penstock.router.metadata import row_key
from penstock.router.names import RESERVED_PREFIX, clean_name, server_name
from penstock.router.queue_arguments import check_arguments, check_equivalent, without_effect
from penstock.subscriptions.dispatch import Kind

if TYPE_CHECKING:
    from penstock.subscriptions.queue import Queue

__all__ = ["Declared", "Deleted", "QueueMethods", "dispatch_kind"]

logger = logging.getLogger("penstock.router")


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


def dispatch_kind(arguments: Arguments) -> Kind:
    """Who gets the messages of a queue with these arguments."""
    if arguments.get("x-single-active-consumer") is not True:
        return Kind.SHARED
    # RabbitMQ's classic queues do not look at the priorities here.
    return Kind.PREFERRED if arguments.get("x-queue-type") == "quorum" else Kind.SINGLE


class QueueMethods(ExchangeMethods):
    """See the module."""

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
        arguments = arguments or NO_ARGUMENTS
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
                kind=dispatch_kind(arguments),
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
        ttl_ms = queue.arguments.get("x-message-ttl")
        if ttl_ms is not None:
            queue.cursor.ttl_ms = ttl_ms
        self.queues[queue.name] = entry
        if owner is not None:
            self._exclusive.setdefault(owner, []).append(entry)
        self._default_exchange_slot_changed(entry)
        self._limit(entry)
        return entry

    def _limit(self, entry: QueueEntry) -> None:
        """Give the queue the rules that its arguments ask for."""
        bury = bury_of(self, entry)
        max_length = entry.arguments.get("x-max-length")
        if entry.arguments.get("x-overflow", "drop-head") != "drop-head":
            max_length = None
        assert max_length is None or isinstance(max_length, int)  # checked when it was declared
        if bury is not None or max_length is not None:
            entry.queue.limit(bury=bury, max_length=max_length)

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
            binding, _ = self.bindings.add(source, entry, routing_key, arguments or NO_ARGUMENTS)
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
        return self._unbind(self.bindings.find(source, entry, routing_key, arguments or NO_ARGUMENTS))

    def _queue_ends(self, queue: str, exchange: str, actor: Actor) -> tuple[QueueEntry, Exchange]:
        queue, exchange = clean_name(queue), clean_name(exchange)
        self._not_default(exchange)
        self._permit(actor, "write", "queue", queue)
        self._permit(actor, "read", "exchange", exchange)
        source = self._exchange(exchange)
        return self._entry(queue, actor.owner), source
