"""The methods of a vhost that declare, delete, bind and unbind queues. See `vhost`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import Arguments, encode_table
from penstock.router.authorization.identity import Actor
from penstock.router.errors import (
    Inequivalent,
    InUse,
    LimitReached,
    NotEmpty,
    NotFound,
    Operation,
    ReservedName,
    ResourceLocked,
)
from penstock.router.exchanges.entries import QueueEntry
from penstock.router.exchanges.exchanges import Exchange, Slot
from penstock.router.exchanges.recent_history import hand_over
from penstock.router.limits.limits import over
from penstock.router.names import RESERVED_PREFIX, clean_name, server_name, wire
from penstock.router.queues.arguments import (
    check_arguments,
    check_equivalent,
    retention_of,
    rules_of,
)
from penstock.router.queues.backfill import (
    ARGUMENT,
    History,
    backfill,
    check_backfill,
    since_of,
    without_since,
)
from penstock.router.queues.dead_letters import bury_of
from penstock.router.queues.start_position import StartPosition
from penstock.router.rows import row_key
from penstock.router.vhost.exchange_methods import NO_ARGUMENTS, ExchangeMethods
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.queue.limits import Overflow
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Bound", "Declared", "Deleted", "QueueMethods", "dispatch_kind"]


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
    history: History | None = None
    """A new queue gets what was sent to its name before: promise nothing before this is done."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A binding, as it was found or made."""

    lsn: int
    """Wait for it before it is promised; 0 when it is not durable."""
    history: History | None
    """A new binding brings what it would have brought before: promise nothing before this is done."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The number of messages in a deleted queue."""

    message_count: int
    lsn: int
    """Wait for it before it is promised; 0 when it was not durable."""


def dispatch_kind(arguments: Arguments) -> Kind:
    """The kind of dispatch of a queue with these arguments."""
    if not arguments:
        return Kind.SHARED
    if arguments.get("x-queue-type") == "stream":
        return Kind.STREAM
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
            LimitReached: the vhost has as many as it may have.

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
        arguments = self._with_default_type(arguments, durable=durable, auto_delete=auto_delete)
        entry = self.queues.get(name)
        if entry is not None:
            if entry.owner is not (actor.owner if exclusive else None):
                raise ResourceLocked(name, self.name)
            self._check_same(entry, arguments, durable=durable, auto_delete=auto_delete)
            return self._declared(entry)
        most = over(self.limits, "max-queues", self.queue_count)
        if most is not None:
            raise LimitReached("vhost-queues", most, vhost=self.name, name=name)
        dead_letters = arguments.get("x-dead-letter-exchange")
        if isinstance(dead_letters, str):
            self._permit(actor, "read", "queue", name)
            self._permit(actor, "write", "exchange", dead_letters)
            letters_key = arguments.get("x-dead-letter-routing-key")
            self._permit_leading(
                actor, dead_letters, wire(letters_key) if isinstance(letters_key, str) else None
            )
        check_arguments(
            arguments,
            name,
            self.name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            server_named=server_named,
        )
        since = None
        if ARGUMENT in arguments:
            since = since_of(self.name, name, arguments[ARGUMENT], self.broker.log.now_ms())
            check_backfill(self.name, name, is_stream=dispatch_kind(arguments) is Kind.STREAM, frontier=0)
        priority_max = arguments.get("x-max-priority", 0)
        assert isinstance(priority_max, int)
        with self.changing():
            queue = self.broker.queues.create(
                name,
                self.name,
                durable=durable,
                kind=dispatch_kind(arguments),
                owner=actor.owner if exclusive else None,
                auto_delete=auto_delete,
                arguments=dict(arguments) if arguments else None,  # 100,000 queues share one empty table
                priority_max=priority_max,
            )
            key = row_key(self.name, "queue", name) if durable else b""
            entry = self._add_queue(queue, actor.owner if exclusive else None, key)
            self._default_exchange_slot_changed(entry)
            if durable:
                row: dict[str, object] = {"vhost": self.name, "name": name, "qid": queue.qid}
                if auto_delete:
                    row["auto_delete"] = True
                if queue.arguments:
                    row["arguments"] = queue.arguments
                self._declared_lsn = self.broker.log.tables.put("queue", entry.row, encode_table(row))
        declared = self._declared(entry)
        if since is None:
            return declared
        with self.changing():
            self._join_default_slot(entry, wire(name))
        assert entry.default_slot is not None
        return replace(declared, history=self._history(entry, entry.default_slot, since))

    def check_queue(self, name: str, *, durable: bool, auto_delete: bool, arguments: Arguments) -> None:
        """Change nothing, and find what `declare_queue` would, of one that is not exclusive, limits apart.

        Raises:
            InvalidArgument, InvalidProperty, UnknownType: its arguments are impossible.
            ResourceLocked: it is exclusive to a connection.
            Inequivalent: it exists otherwise.

        """
        arguments = self._with_default_type(arguments, durable=durable, auto_delete=auto_delete)
        entry = self.queues.get(name)
        if entry is None:
            check_arguments(
                arguments,
                name,
                self.name,
                durable=durable,
                exclusive=False,
                auto_delete=auto_delete,
                server_named=False,
            )
        elif entry.owner is not None:
            raise ResourceLocked(name, self.name)
        else:
            self._check_same(entry, arguments, durable=durable, auto_delete=auto_delete)

    def _with_default_type(self, arguments: Arguments, *, durable: bool, auto_delete: bool) -> Arguments:
        type_ = self.metadata.default_queue_type
        if not type_ or not durable or auto_delete or "x-queue-type" in arguments:
            return arguments
        return {**arguments, "x-queue-type": type_}

    def _check_same(
        self, entry: QueueEntry, arguments: Arguments, *, durable: bool, auto_delete: bool
    ) -> None:
        """Raises Inequivalent."""
        for prop, received, current in (
            ("durable", durable, entry.durable),
            ("auto_delete", auto_delete, entry.auto_delete),
        ):
            if received != current:
                raise Inequivalent("queue", entry.name, self.name, prop, received, current)
        check_equivalent(entry.arguments, arguments, entry.name, self.name)

    def _add_queue(self, queue: Queue, owner: object | None, row: bytes) -> QueueEntry:
        entry = QueueEntry("queue", queue, row, queue.arguments)
        queue.data = entry
        if isinstance(queue, Stream):
            entry.own_feed = self.broker.feeds.of_stream(self.name, queue.name)
            queue.begin(entry.own_feed)
        self.queues[queue.name] = entry
        if owner is not None:
            self._exclusive.setdefault(owner, []).append(entry)
        effective = self.policies.effective(queue.name, queue.arguments)
        if effective or isinstance(queue, Stream):  # most queues have no rules, and a start makes all of them
            self.apply(entry, effective)
        return entry

    def apply(self, entry: QueueEntry, effective: Arguments) -> None:
        """Let the queue live by `effective`: its arguments, and what policies add to them or narrow.

        Named and typed as arguments are (`x-max-length`: an int) and valid; it holds at once, for what is in
        the queue too, and nothing is lost by it. Not persistent: the caller applies it again after a start.
        """
        entry.effective = effective
        self.times_consumers |= "x-consumer-timeout" in effective
        if isinstance(entry.queue, Stream):
            entry.queue.retain(*retention_of(effective), compacts=effective.get("x-cleanup") == "compact")
            return
        bury = bury_of(self, entry)
        rules = rules_of(effective, bury)
        entry.bury_refused = bury if rules.overflow is Overflow.REJECT_DLX else None
        if rules.refuses:
            self.broker.feeds.guard(self.name, entry)
        else:
            self.broker.feeds.unguard(self.name, entry)
        entry.queue.apply(rules)

    def _declared(self, entry: QueueEntry) -> Declared:
        queue = entry.queue
        queue.used()
        self.broker.queues.declared += 1
        # The last declaration was this one, or a later one, which is synced no sooner.
        lsn = self._declared_lsn if queue.durable else 0
        return Declared(entry.name, queue, queue.count_ready(), queue.consumer_count, lsn)

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
        if if_empty and entry.queue.count_ready():
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
        """The last consumer of an auto-delete queue has gone, or nobody used one for long enough: it goes."""
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
        return self.bind_queue_since(queue, exchange, routing_key, actor, arguments).lsn

    def bind_queue_since(
        self, queue: str, exchange: str, routing_key: str, actor: Actor, arguments: Arguments | None = None
    ) -> Bound:
        """The same, with the history that `x-penstock-backfill` asks for, here or at the queue's declaration.

        Raises:
            BackfillRefused: the moment is none, or the queue cannot go back.

        """
        entry, source = self._queue_ends(queue, exchange, actor)
        self._permit_topic(actor, source, routing_key)
        return self._bind_since(entry, source, routing_key, arguments or NO_ARGUMENTS)

    def tail_default_exchange(
        self, queue: str, pattern: str, actor: Actor, arguments: Arguments | None = None
    ) -> Bound:
        """`bind_queue_since` of a tail's queue to the default exchange, to which nothing else is bound: it
        gets the messages that go to some queue there, with routing keys that match a pattern of words.

        Raises:
            BackfillRefused: the moment is none.
            InvalidPattern: it has too many words.

        """
        entry = self._entry(queue, actor.owner)
        return self._bind_since(entry, self.exchanges[""], pattern, arguments or NO_ARGUMENTS)

    def _bind_since(
        self, entry: QueueEntry, source: Exchange, routing_key: str, arguments: Arguments
    ) -> Bound:
        asked = arguments.get(ARGUMENT)
        if asked is None and not entry.queue.cursor.frontier:
            asked = entry.arguments.get(ARGUMENT)
        since = None
        if asked is not None:
            since = since_of(self.name, entry.name, asked, self.broker.log.now_ms())
            is_stream = entry.queue.kind is Kind.STREAM
            check_backfill(self.name, entry.name, is_stream=is_stream, frontier=entry.queue.cursor.frontier)
        with self.changing():
            binding, new = self.bindings.add(source, entry, routing_key, without_since(arguments))
        if since is None or not new:
            recent = hand_over(self, source, entry) if new else 0
            return Bound(max(binding.lsn, recent), None)
        return Bound(binding.lsn, self._history(entry, binding.slot, since))

    def _history(self, entry: QueueEntry, slot: Slot, since: StartPosition) -> History:
        until = self.broker.log.appender.next_lsn
        entry.queue.hold()

        def begin(done: Callable[[bool], None]) -> None:
            backfill(self, entry, slot, 0, since, until, lambda last, ok: done(ok))

        return begin

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
        self._permit_topic(actor, source, routing_key)
        return self._unbind(
            self.bindings.find(source, entry, routing_key, without_since(arguments or NO_ARGUMENTS))
        )

    def _queue_ends(self, queue: str, exchange: str, actor: Actor) -> tuple[QueueEntry, Exchange]:
        queue, exchange = clean_name(queue), clean_name(exchange)
        self._not_default(exchange)
        self._permit(actor, "write", "queue", queue)
        self._permit(actor, "read", "exchange", exchange)
        source = self._exchange(exchange)
        return self._entry(queue, actor.owner), source
