"""One virtual host: its exchanges, queues, bindings and sessions, and the routes through them.

The rules that RabbitMQ's clients rely on are kept: redeclaring the same thing is fine, deleting or unbinding
what is not there too; names beginning with `amq.` are the broker's; exclusive queues belong to a connection
and die with it; an auto-delete queue goes with its last consumer, an auto-delete exchange with its last
binding. Permissions are decided on names before anything is looked up, so a refusal does not tell what
exists.

A change of something durable is one atomic unit in the log and answers the LSN to wait for
(`Log.when_synced`) before it is promised to a peer; 0 means that nothing durable happened. Changes are in
force at once.

Source: amqp091:exchange.*, queue.*; RabbitMQ 3.10's rabbit_channel, rabbit_binding, rabbit_exchange.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.router.arguments import Arguments
from penstock.router.authorization.identity import Identity
from penstock.router.exchanges.entries import SUBSCRIPTION_PREFIX, QueueEntry, session_of
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE, Exchange
from penstock.router.names import text
from penstock.router.policies.retention import Retentions
from penstock.router.publishing.direct_replies import Replies
from penstock.router.publishing.firehose import Firehose
from penstock.router.publishing.publishing import Published, Publishing
from penstock.router.publishing.resolve import Resolver
from penstock.router.queues.subscriptions import Subscriptions
from penstock.router.routes._routes import Route, RouteTable
from penstock.router.sessions.sessions import Sessions, Subscribed, Unsubscribed
from penstock.router.sessions.shared_subscriptions import Shares
from penstock.router.vhost.queue_methods import Declared, Deleted, QueueMethods
from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.router.broker import Broker
    from penstock.router.messages.retained import Retained
    from penstock.router.policies.policies import Policy, PolicyKind
    from penstock.router.queues.start_position import StartPosition
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Declared", "Deleted", "Published", "Subscribed", "Unsubscribed", "Vhost"]

logger: Final = logging.getLogger("penstock.router")

_POLICED_AT_ONCE: Final = 100
"""Queues that a changed policy is held against in one go: up to 2 ms, when it is for all of them."""


class Vhost(QueueMethods):
    """See the module. Made and restored by `Broker`."""

    def __init__(self, name: str, broker: Broker, retained: Retained, lp: int) -> None:
        super().__init__(name, broker, lp)
        self.retained = retained
        """The retained messages of this vhost."""
        self.replies = Replies()
        """Those who wait for direct replies."""
        self.sessions = Sessions(self)
        self.shares = Shares(self)
        """The queues of shared subscriptions."""
        self.subscriptions = Subscriptions(self)
        """Named subscriptions to streams."""
        self.retentions = Retentions(self)
        """The retention for replay, by policy."""
        resolver = Resolver(
            name,
            self.exchanges,
            self._names,
            broker.log,
            self._default_slot,
            self.lp,
            self.retentions,
            lambda: broker.gate.queue.cursor if self.refuses else None,
        )
        self.firehose = Firehose(self)
        self.publishing = Publishing(
            name, broker.log, self.topology, resolver, broker.authorizer, self.firehose
        )

    # Publishing

    def publisher(self, identity: Identity, enc: int) -> RouteTable:
        """The routes of a user for keys of an encoding (1 AMQP, 2 MQTT); keep it while you publish."""
        return self.publishing.table(identity, enc)

    def route(
        self,
        identity: Identity | None,
        enc: int,
        key: bytes,
        headers: Arguments | None = None,
        held: list[str] | None = None,
        copies: Sequence[bytes] = (),
    ) -> Route:
        """The route of a key block, resolved anew; with `headers` it decides headers exchanges too.

        With `held`, exchanges that delay are listed there instead of being passed. `copies` are further key
        blocks of the same exchange, which go with it from exchange to exchange: CC and BCC.

        `identity` None is the broker itself: it may publish anywhere, to internal exchanges too.
        """
        return self.publishing.route(identity, enc, key, headers, held, copies)

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
        published = self.publishing.publish(
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

    # MQTT sessions

    @property
    def mqtt_exchange(self) -> Exchange:
        """The topic exchange that MQTT publishes to and subscribes on."""
        return self.exchanges[MQTT_EXCHANGE]

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

    def replay(
        self,
        client_id: str,
        topic_filter: str,
        since: StartPosition,
        identity: Identity,
        done: Callable[[int, bool], None],
    ) -> None:
        """See `Sessions.replay`."""
        self.sessions.replay(client_id, topic_filter, since, identity, done)

    def unsubscribe(self, client_id: str, topic_filter: str) -> Unsubscribed:
        """See `Sessions.unsubscribe`."""
        return self.sessions.unsubscribe(client_id, topic_filter)

    # Subscriptions to streams

    def remove_queue(self, entry: QueueEntry) -> tuple[int, int]:
        """As in `QueueMethods`; the subscriptions of a stream go with it."""
        lsn = self.subscriptions.stream_deleted(entry.name) if entry.kind == "queue" else 0
        count, deleted = super().remove_queue(entry)
        return count, max(lsn, deleted)

    def unneeded(self, entry: QueueEntry) -> None:
        """As in `QueueMethods`; a subscription that is not durable goes with its last consumer."""
        if entry.kind == "subscription":
            self.subscriptions.remove(entry)
        else:
            super().unneeded(entry)

    # Policies

    def set_policy(self, kind: PolicyKind, policy: Policy) -> int:
        """Make or change a policy, and apply it; the LSN to wait for."""
        before = self.policies.get(kind, policy.name)
        if before == policy:
            return 0
        with self.changing():
            lsn = self.policies.put(kind, policy)
        self._policies_changed([policy] if before is None else [before, policy])
        return lsn

    def delete_policy(self, kind: PolicyKind, name: str) -> int:
        """Take a policy out that there is, and apply what counts instead; the LSN to wait for."""
        before = self.policies.get(kind, name)
        assert before is not None
        with self.changing():
            lsn = self.policies.delete(kind, name)
        self._policies_changed([before])
        return lsn

    def _policies_changed(self, changed: Sequence[Policy]) -> None:
        """Let everything that one of these is, or was, for live by what counts now."""
        self._apply_policies(list(self.queues.values()), changed)
        self.retentions.policies_changed(changed)
        for told in self.broker.on_policies_changed:
            told(self, changed)
        for exchange in self.exchanges.values():
            alternate = self.policies.alternate(exchange.name)
            if alternate != exchange.policy_alternate:
                exchange.policy_alternate = alternate
                exchange.scope.touch_all()
        self.broker.tick.schedule()

    def _apply_policies(self, ahead: list[QueueEntry], changed: Sequence[Policy]) -> None:
        """Part of it: to so many queues now, to the rest in the next turns. New ones have them anyway."""
        for entry in ahead[-_POLICED_AT_ONCE:]:
            if self.queues.get(entry.name) is entry:
                guarded(logger, f"{entry.queue!r} keeps its policy", self._apply_policy, entry, changed)
        del ahead[-_POLICED_AT_ONCE:]
        if ahead:
            self.broker.tick.after(0, lambda: self._apply_policies(ahead, changed))

    def _apply_policy(self, entry: QueueEntry, changed: Sequence[Policy]) -> None:
        type_ = str(entry.arguments.get("x-queue-type", "classic"))
        if any(policy.matches(entry.name, type_) for policy in changed):
            effective = self.policies.effective(entry.name, entry.arguments)
            if effective != entry.effective:
                self.apply(entry, effective)

    # Inside the router

    def permissions_changed(self) -> None:
        """Routes are resolved, and so permitted, again."""
        self.topology.renew()

    def clear(self) -> int:
        """Remove all that is in it, with the vhost; the LSN to wait for."""
        lsn = 0
        with self.changing():
            for entry in list(self.queues.values()):
                lsn = max(lsn, self._delete(entry).lsn)
            for client_id in self.sessions.client_ids():
                lsn = max(lsn, self.sessions.delete(client_id))
            for share in self.shares.names():
                lsn = max(lsn, self.shares.delete(share))
            for exchange in list(self.exchanges.values()):
                # An auto-delete exchange may have gone with another one.
                if exchange.name in self.exchanges:
                    lsn = max(lsn, self._remove_exchange(exchange))
            lsn = max(lsn, self.retained.clear(), self.policies.clear())
            self.retentions.clear()
        self.topology.renew()
        return lsn

    # At start

    def restore_exchange(self, exchange: Exchange) -> None:
        """Put back a durable exchange of the last run."""
        self._add_exchange(exchange)

    def restore_queue(self, queue: Queue, row: bytes) -> None:
        """Put back a durable queue of the last run, with the key of its row."""
        self._add_queue(queue, None, row)

    def restore_default_slot(self, key: bytes) -> None:
        """The queue of this name had a feed in the default exchange."""
        entry = self.queues.get(text(key))
        if entry is not None:
            self._join_default_slot(entry, key, restored=True)

    def entries(self) -> list[QueueEntry]:
        """All queues, sessions, shared subscriptions and subscriptions to streams."""
        return [
            *self.queues.values(),
            *self.sessions.entries.values(),
            *self.shares.entries.values(),
            *self.subscriptions.entries.values(),
        ]

    def listed(self, name: str) -> QueueEntry | None:
        """The queue that operators see by this name, see `QueueEntry.listed_name`; None: there is none."""
        found = [self.queues.get(name)]
        if (of_session := session_of(name)) is not None:
            found += [self.sessions.entries.get(of_session), self.shares.entries.get(of_session)]
        elif name.startswith(SUBSCRIPTION_PREFIX):
            found += [one for one in self.subscriptions.entries.values() if one.listed_name == name]
        return next((one for one in found if one is not None and one.is_listed), None)

    def statistics(self) -> dict[str, int]:
        """Figures of this vhost."""
        return {
            "exchanges": len(self.exchanges),
            "queues": len(self.queues),
            "sessions": len(self.sessions),
            "subscriptions": len(self.subscriptions),
            "retained": len(self.retained),
            **self.publishing.statistics(),
        }
