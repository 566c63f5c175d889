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

from typing import TYPE_CHECKING

from penstock.router._routes import Route, RouteTable
from penstock.router.arguments import Arguments
from penstock.router.entries import QueueEntry
from penstock.router.exchanges import MQTT_EXCHANGE, Exchange
from penstock.router.identity import Identity
from penstock.router.names import text
from penstock.router.publishing import Published, Publishing
from penstock.router.queue_methods import Declared, Deleted, QueueMethods
from penstock.router.replies import Replies
from penstock.router.resolve import Resolver
from penstock.router.sessions import Sessions, Subscribed, Unsubscribed

if TYPE_CHECKING:
    from penstock.router.broker import Broker
    from penstock.router.retained import Retained
    from penstock.subscriptions.queue import Queue

__all__ = ["Declared", "Deleted", "Published", "Subscribed", "Unsubscribed", "Vhost"]


class Vhost(QueueMethods):
    """See the module. Made and restored by `Broker`."""

    def __init__(self, name: str, broker: Broker, retained: Retained) -> None:
        super().__init__(name, broker)
        self.retained = retained
        """The retained messages of this vhost."""
        self.replies = Replies()
        """Those who wait for direct replies."""
        self.sessions = Sessions(self)
        resolver = Resolver(name, self.exchanges, self._names, broker.log, self._default_slot)
        self.publishing = Publishing(name, broker.log, self.topology, resolver, broker.authorizer)

    # Publishing

    def publisher(self, identity: Identity, enc: int) -> RouteTable:
        """The routes of a user for keys of an encoding (1 AMQP, 2 MQTT); keep it while you publish."""
        return self.publishing.table(identity, enc)

    def route(
        self, identity: Identity | None, enc: int, key: bytes, headers: Arguments | None = None
    ) -> Route:
        """The route of a key block, resolved anew; with `headers` it decides headers exchanges too.

        `identity` None is the broker itself: it may publish anywhere, to internal exchanges too.
        """
        return self.publishing.route(identity, enc, key, headers)

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

    def unsubscribe(self, client_id: str, topic_filter: str) -> Unsubscribed:
        """See `Sessions.unsubscribe`."""
        return self.sessions.unsubscribe(client_id, topic_filter)

    # Inside the router

    def permissions_changed(self) -> None:
        """Routes are resolved, and so permitted, again."""
        self.topology.renew()

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

    def statistics(self) -> dict[str, int]:
        """Figures of this vhost."""
        return {
            "exchanges": len(self.exchanges),
            "queues": len(self.queues),
            "sessions": len(self.sessions),
            "retained": len(self.retained),
            **self.publishing.statistics(),
        }
