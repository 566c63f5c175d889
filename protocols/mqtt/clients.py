"""Client sessions: what of an MQTT client outlives its connection, and the registry of all of them.

A `Client` is the session of one client id in one vhost: its queue (a cursor over the feeds of its filters),
its subscriptions with their options, the packet ids in both directions, its will, and when it ends. A
connection (`Session`) works for one client at a time; a client has one connection at most.

Sessions that outlive the connection outlive the process: see `rows`. The row of received QoS 2 ids is put
with the messages it speaks of in one atomic unit; that of ids under way together with the queue's cursor
whenever it drops an id whose message must not be sent again. Changes of QoS 1 alone are put within 100 ms.
Sessions that end with their connection write nothing.

Times are seconds since the epoch by the clock that was passed in; `deadline` and `handle_deadline` replace
timers.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.mqtt._ids import Inflight, Received
from penstock.protocols.mqtt.packets import Will
from penstock.protocols.mqtt.publishing import publish, ttl_of
from penstock.protocols.mqtt.rows import (
    FILTER,
    OUT,
    QOS2_IN,
    SESSION,
    SessionRow,
    Subscription,
    decode_subscription,
    encode_subscription,
    filter_key,
    session_key,
    split_filter_key,
    split_session_key,
)

if TYPE_CHECKING:
    from penstock.protocols.mqtt.session import Session
    from penstock.router.broker import Broker
    from penstock.router.identity import Identity
    from penstock.router.vhost import Vhost
    from penstock.subscriptions.queue import Queue

__all__ = ["Client", "Clients", "Retained"]

_LAZY_S: Final = 0.1


@dataclass(slots=True)
class Retained:
    """A retained message under way at QoS 1 or 2."""

    topic: bytes
    block: bytes
    payload: bytes
    qos: int
    ids: bytes
    stored_ms: int


@dataclass(slots=True, eq=False)
class Client:
    """The session of one client id."""

    vhost: Vhost
    client_id: str
    identity: Identity
    queue: Queue
    number: int
    """Of the session in this process, from 1: the origin of its messages, for no-local."""
    persistent: bool
    """It outlives its connection: what it promises is durable."""
    expiry_s: int = 0
    inflight: Inflight = field(default_factory=Inflight)
    received: Received = field(default_factory=Received)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    by_tag: dict[int, Subscription] = field(default_factory=dict)
    next_tag: int = 0
    connection: Session | None = None
    will: Will | None = None
    will_at: float | None = None
    """When the will of a connection that is gone is published."""
    ends_at: float | None = None
    """When the session ends, while it has no connection."""
    tokens: dict[int, Retained] = field(default_factory=dict)
    """Retained messages under way, by the token that the packet id stands for."""
    next_token: int = 1
    ended: bool = False
    row_lsn: int = 0
    """Position of the last row put for it."""
    soiled: bool = False

    @property
    def key(self) -> bytes:
        """Of its rows."""
        return session_key(self.vhost.name, self.client_id)


class Clients:
    """All sessions of a broker, connected or not."""

    def __init__(self, broker: Broker, clock: Callable[[], float]) -> None:
        self.broker = broker
        self.log = broker.log
        self.tick = broker.tick
        self._clock = clock
        self._all: dict[tuple[str, str], Client] = {}
        self._numbers = itertools.count(1)
        self._timers: list[tuple[float, int, Client]] = []
        self._order = itertools.count()
        self._soiled: list[Client] = []
        self._saving: Any = None
        self.on_deadline: Callable[[], None] = lambda: None
        """Called when `deadline` may have come nearer."""
        for key, row in list(self.log.tables.items(SESSION)):
            self._restore(key, row)
        self._restore_subscriptions()
        for vhost in self.broker.vhosts.values():
            for client_id in vhost.sessions.client_ids():
                # Its row was not written any more when the last run ended: nobody was promised anything.
                if (vhost.name, client_id) not in self._all:
                    vhost.delete_session(client_id)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Client]:
        return iter(self._all.values())

    # Finding and making

    def find(self, vhost: str, client_id: str) -> Client | None:
        """The session of a client id, if there is one."""
        return self._all.get((vhost, client_id))

    def create(self, vhost: Vhost, client_id: str, identity: Identity, expiry_s: int) -> Client:
        """A new session; the last one of that client id was ended."""
        persistent = expiry_s > 0
        queue = vhost.session_queue(client_id, durable=persistent)
        client = Client(vhost, client_id, identity, queue, next(self._numbers), persistent, expiry_s)
        client.inflight.cursors.append(queue.cursor)
        self._all[vhost.name, client_id] = client
        return client

    def end(self, client: Client) -> int:
        """The session is over: its will goes out, its queue and rows go. The LSN to wait for, or 0."""
        if client.ended:
            return 0
        client.ended = True
        del self._all[client.vhost.name, client.client_id]
        client.vhost.broker.no_local_sessions -= sum(s.no_local for s in client.subscriptions.values())
        self.publish_will(client)
        lsn = client.vhost.delete_session(client.client_id)
        if client.persistent:
            for table in (SESSION, QOS2_IN, OUT):
                if self.log.tables.get(table, client.key) is not None:
                    lsn = self.log.tables.delete(table, client.key)
            for topic in client.subscriptions:
                lsn = self.delete_subscription(client, topic)
            self.tick.schedule()
        return lsn

    # Connections

    def connected(self, client: Client, identity: Identity, expiry_s: int) -> None:
        """The session has a connection (again)."""
        client.identity = identity
        client.expiry_s = expiry_s
        client.ends_at = client.will_at = client.will = None
        if client.persistent:
            self.save(client)

    def disconnected(self, client: Client, will: Will | None) -> None:
        """The session lost its connection; `will` is to be published if it has one."""
        now = self._clock()
        client.connection = None
        # In the unit of the scan that is under way: the messages of these ids may be in it.
        self.save_received(client)
        client.received.suspend()
        client.will = will
        if will is not None and (will.delay_s == 0 or client.expiry_s == 0):
            self.publish_will(client)
        elif will is not None:
            client.will_at = now + min(will.delay_s, client.expiry_s)
            self._arm(client.will_at, client)
        if client.expiry_s == 0:
            self.end(client)
            return
        client.ends_at = now + client.expiry_s
        self._arm(client.ends_at, client)
        self.save(client)
        self.save_out(client)

    def publish_will(self, client: Client) -> None:
        """Publish the will that waits, if one does, with the rights its client has now."""
        will, client.will, client.will_at = client.will, None, None
        if will is not None:
            publish(
                client.vhost,
                client.identity,
                will.topic.encode(),
                will.block,
                will.payload,
                will.qos,
                will.retain,
                ttl_of(will.expiry_s),
            )

    # Time

    def _arm(self, at: float, client: Client) -> None:
        heapq.heappush(self._timers, (at, next(self._order), client))
        if self._timers[0][0] == at:
            self.on_deadline()

    def deadline(self) -> float | None:
        """When `handle_deadline` is to be called next, by the clock; None = not at all."""
        return self._timers[0][0] if self._timers else None

    def handle_deadline(self) -> None:
        """Publish the wills and end the sessions whose time has come. Then ask for `deadline` again."""
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            _, _, client = heapq.heappop(self._timers)
            # A client that came back left its timers behind.
            if client.ended or client.connection is not None:
                continue
            if client.will_at is not None and client.will_at <= now:
                self.publish_will(client)
                self.save(client)
            if client.ends_at is not None and client.ends_at <= now:
                self.end(client)

    # Rows

    def save(self, client: Client) -> int:
        """Put the session's row; the LSN to wait for, 0 for one that is not persistent."""
        if not client.persistent or client.ended:
            return 0
        row = SessionRow(
            client.identity.username, client.expiry_s, client.ends_at, client.will, client.will_at
        )
        if row.will is None and client.connection is not None:
            # The process may end before the connection does: then this will is due.
            row.will = client.connection.will
        self.tick.schedule()
        client.row_lsn = self.log.tables.put(SESSION, client.key, row.encode())
        return client.row_lsn

    def save_subscription(self, client: Client, subscription: Subscription) -> int:
        """Put a subscription's row; the LSN to wait for, 0 for a session that is not persistent."""
        if not client.persistent:
            return 0
        self.tick.schedule()
        key = filter_key(client.key, subscription.topic)
        return self.log.tables.put(FILTER, key, encode_subscription(subscription))

    def delete_subscription(self, client: Client, topic: str) -> int:
        """Take back a subscription's row; the LSN to wait for, or 0."""
        if not client.persistent:
            return 0
        self.tick.schedule()
        return self.log.tables.delete(FILTER, filter_key(client.key, topic))

    def save_received(self, client: Client) -> None:
        """Put the QoS 2 ids received, if they changed."""
        if client.persistent and client.received.changed and not client.ended:
            client.row_lsn = self.log.tables.put(QOS2_IN, client.key, client.received.pack())

    def save_out(self, client: Client) -> int:
        """Put the packet ids under way, if they changed, and with them what the cursor knows to be done."""
        client.soiled = False
        if client.persistent and client.inflight.changed and not client.ended:
            with self.log.unit():
                if client.inflight.exact_done:
                    client.queue.persist()
                client.row_lsn = self.log.tables.put(OUT, client.key, client.inflight.pack())
            self.tick.schedule()
        return client.row_lsn

    def soil(self, client: Client) -> None:
        """The packet ids under way changed in a way that may be put later."""
        if client.persistent and not client.soiled:
            client.soiled = True
            self._soiled.append(client)
            if self._saving is None:
                self._saving = self.tick.after(_LAZY_S, self._save_soiled)

    def _save_soiled(self) -> None:
        self._saving = None
        soiled, self._soiled = self._soiled, []
        for client in soiled:
            if client.soiled:
                self.save_out(client)

    def close(self) -> None:
        """Put what is not put yet. For a clean stop, when all connections are gone and before the log
        closes.
        """
        if self._saving is not None:
            self._saving.cancel()
        self._save_soiled()

    def _restore(self, key: bytes, value: bytes) -> None:
        row = SessionRow.decode(value)
        now = self._clock()
        vhost_name, client_id = split_session_key(key)
        vhost = self.broker.vhost(vhost_name)
        identity = self.broker.users.identity(row.user)
        queue = vhost.session_queue(client_id, durable=True)
        if identity is None:
            # The user is gone: nobody may have what the session would deliver.
            vhost.delete_session(client_id)
            for table in (SESSION, QOS2_IN, OUT):
                self.log.tables.delete(table, key)
            return
        client = Client(vhost, client_id, identity, queue, next(self._numbers), True, row.expiry_s)
        out = self.log.tables.get(OUT, key)
        if out is not None:
            client.inflight = Inflight.restore(out, queue.cursor)
        else:
            client.inflight.cursors.append(queue.cursor)
        received = self.log.tables.get(QOS2_IN, key)
        if received is not None:
            client.received = Received.restore(received)
        client.will = row.will
        if row.will is not None:
            # A client that was connected lost its connection when the process ended.
            due = row.will_at if row.will_at is not None else now + min(row.will.delay_s, row.expiry_s)
            client.will_at = due
            self._arm(due, client)
        client.ends_at = row.ends_at if row.ends_at is not None else now + client.expiry_s
        self._all[vhost.name, client_id] = client
        self._arm(client.ends_at, client)
        if row.ends_at is None:
            self.save(client)

    def _restore_subscriptions(self) -> None:
        for key, value in list(self.log.tables.items(FILTER)):
            session, topic = split_filter_key(key)
            client = self._all.get(split_session_key(session))
            if client is None:
                self.log.tables.delete(FILTER, key)
                continue
            subscription = decode_subscription(topic, value)
            client.subscriptions[topic] = subscription
            client.by_tag[subscription.tag] = subscription
            client.next_tag = max(client.next_tag, subscription.tag + 1)
            self.broker.no_local_sessions += subscription.no_local
