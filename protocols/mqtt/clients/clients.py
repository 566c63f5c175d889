"""The registry of all client sessions: how they begin and end, and their rows.

A `Client` is the session of one client id in one vhost. A connection (`Session`) works for one client at a
time; a client has one connection at most.

Sessions that outlive the connection outlive the process: see `rows`. Their subscriptions are kept by the
router. The row of received QoS 2 ids is put
with the messages it speaks of in one atomic unit; that of ids under way together with the queue's cursor
whenever it drops an id whose message must not be sent again. Changes of QoS 1 alone are put within 100 ms.
Sessions that end with their connection write nothing.

Times are seconds since the epoch by the clock that was passed in; `deadline` and `handle_deadline` replace
timers.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.collector import uncollected
from penstock.logs import fields
from penstock.protocols.mqtt.clients._registry import Registry
from penstock.protocols.mqtt.clients.backlog import Backlog
from penstock.protocols.mqtt.clients.client import Client
from penstock.protocols.mqtt.clients.lag import LagLimit
from penstock.protocols.mqtt.clients.rows import (
    OUT,
    QOS2_IN,
    SESSION,
    SessionRow,
    put_ends,
    read_ends,
    split_session_key,
)
from penstock.protocols.mqtt.codec import reasons
from penstock.protocols.mqtt.publishing.publishing import publish, ttl_of
from penstock.protocols.mqtt.publishing.sys_topics import Counts, check_reader, is_sys
from penstock.protocols.mqtt.subscriptions.shared import Shares, filter_of, is_shared
from penstock.router.authorization.identity import Identity
from penstock.router.errors import AccessRefused
from penstock.router.limits.token_buckets import Bucket
from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from penstock.protocols.mqtt.codec.packets import Will
    from penstock.protocols.mqtt.options import MqttOptions
    from penstock.protocols.mqtt.publishing.sys_topics import SysTopics
    from penstock.router.broker import Broker
    from penstock.router.policies.policies import Policy
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Client", "Clients", "permit"]

logger: Final = logging.getLogger("penstock.mqtt")

_LAZY_S: Final = 0.1
_POLICED_AT_ONCE: Final = 100
"""Sessions that changed policies are held against in one turn."""


class Clients(Registry):
    """All sessions of a broker, connected or not."""

    def __init__(self, broker: Broker, clock: Callable[[], float], options: MqttOptions) -> None:
        super().__init__(broker, clock, Client)
        self.backlog = Backlog(options)
        self.shares = Shares(self.backlog, options)
        self.lag = LagLimit(self, options.max_lag_bytes)
        self._connect_rate = options.max_connect_rate
        self._connects: Bucket | None = None
        self._disconnects = options.queue_full == "disconnect"
        self._dirty: list[Client] = []
        self.sys: SysTopics | None = None
        """The `$SYS` tree; None = off."""
        self.closed = Counts()
        """The counts of connections that are gone."""
        self.expired = 0
        """Sessions that ended by their time."""
        self._saving: Any = None
        self.on_deadline = lambda: None
        with uncollected():
            ends = read_ends(self.log.tables) if self.log.recovery.clean else {}
            for key, row in list(self.log.tables.items(SESSION)):
                self._restore(key, row, ends)
        for vhost in self.broker.vhosts.values():
            self._restore_noted(vhost)
            for client_id in vhost.sessions.client_ids():
                # Its row was not written any more when the last run ended: nobody was promised anything.
                if self.find(vhost.name, client_id) is None:
                    vhost.delete_session(client_id)
            self.shares.restored(vhost)
        broker.on_permissions_changed.append(self._permissions_changed)
        broker.end_session = self.delete
        broker.on_policies_changed.append(self._policies_changed)

    def __len__(self) -> int:
        return sum(map(len, self._all.values()))

    def __iter__(self) -> Iterator[Client]:
        return itertools.chain.from_iterable(clients.values() for clients in self._all.values())

    # Queues

    def give_queue(self, client: Client) -> None:
        """Make the session's queue, of one that has none."""
        client.take_queue(client.vhost.session_queue(client.client_id, durable=client.persistent))
        self._limit(client)

    def _limit(self, client: Client) -> None:
        policed = client.vhost.sessions.policed(client.client_id)
        if not (self.backlog.limited or policed or client.queue.cursor.has_rules):
            return

        def dropped() -> None:
            if self._disconnects and client.connection is not None:
                client.connection.force_close("more messages wait than may", reasons.QUOTA_EXCEEDED)

        self.backlog.limit(client.vhost, client.queue, dropped, policed)

    def _policies_changed(self, vhost: Vhost, changed: Sequence[Policy]) -> None:
        """Some sessions now, the rest in the next turns. New ones have the policies anyway."""
        self._police([client for client in self if client.vhost is vhost], changed)

    def _police(self, ahead: list[Client], changed: Sequence[Policy]) -> None:
        for client in ahead[-_POLICED_AT_ONCE:]:
            what = f"the session {client.client_id!r} keeps its policy"
            guarded(logger, what, self._apply_policies, client, changed)
        del ahead[-_POLICED_AT_ONCE:]
        if ahead:
            self.tick.after(0, lambda: self._police(ahead, changed))

    def _apply_policies(self, client: Client, changed: Sequence[Policy]) -> None:
        entry = client.vhost.sessions.get(client.client_id)
        if entry is not None and client.own_queue is not None and not client.ended:
            if any(policy.matches(entry.listed_name, "classic") for policy in changed):
                self._limit(client)

    def clean_up(self, client: Client) -> int:
        """A session is over that has more than its name; the LSN to wait for, or 0."""
        with self.log.unit():
            self.broker.origin_readers -= client.no_local
            self.publish_will(client)
            if client.loaded_ids is not None or client.persistent:
                client.ids.inflight.end()
            lsn = client.vhost.delete_session(client.client_id)
            for topic in list(client.shares or ()):
                lsn = max(lsn, self.shares.leave(client, topic))
            if client.persistent:
                for table in (SESSION, QOS2_IN, OUT):
                    if self.log.tables.get(table, client.key) is not None:
                        lsn = self.log.tables.delete(table, client.key)
                self.tick.schedule()
        return lsn

    def delete(self, vhost: Vhost, client_id: str) -> int:
        """An administrator ends a session, connected or not: as `end`. 0 when there is none."""
        client = self.find(vhost.name, client_id)
        if client is None:
            return 0
        if client.connection is not None:
            client.connection.force_close("an administrator ended the session")
        return self.end(client)

    # Connections

    def came_back(self, client: Client, identity: Identity, expiry_s: int) -> None:
        """A session that may have been there before has a connection."""
        before = client.grants
        client.belong(identity)
        client.expiry_s = expiry_s
        if not client.asked or client.grants != before:
            self._recheck(client)
            client.asked = True
        if not client.persistent:
            return
        with self.log.unit():  # a crash neither loses nor repeats the will
            if client.will_at is not None and client.will_at <= self._clock():
                # Its time had come; that it is still here is our delay, after a start perhaps.
                self.publish_will(client)
            client.ends_at = client.will_at = client.will = None
            self.save(client)

    def left(self, client: Client, will: Will | None) -> None:
        """A session that leaves something behind has no connection any more; see `disconnected`."""
        now = self._clock()
        with self.log.unit():  # the will goes out and the row that has it goes, or neither
            client.connection = None
            # In the unit of the scan that is under way: the messages of these ids may be in it.
            self.save_received(client)
            client.ids.received.suspend()
            client.will = will
            if will is not None and (will.delay_s == 0 or client.expiry_s == 0):
                self.publish_will(client)
            elif will is not None:
                client.will_at = now + min(will.delay_s, client.expiry_s)
                self.arm(client.will_at, client, now)
            if client.expiry_s == 0:
                self.end(client)
                return
            self.put_away(client)

    def put_away(self, client: Client) -> int:
        """The session has no connection from now on; the LSN to wait for."""
        lsn = 0 if client.will is None and client.row_expiry_s == client.expiry_s else self.save(client)
        self.save_out(client)
        self.await_end(client)
        return lsn

    def limit_connects(self, rate: int) -> None:
        """Let so many CONNECTs per second in; 0 = any number."""
        if rate != self._connect_rate:
            self._connect_rate, self._connects = rate, None

    def may_connect(self, now: float) -> bool:
        """Whether one more CONNECT is within the rate; `now` in seconds of a clock that only rises."""
        if not self._connect_rate:
            return True
        if self._connects is None:
            self._connects = Bucket(self._connect_rate, now)
        if self._connects.take(1, now):
            self._connects.take(-1, now)  # who is refused takes nothing from the others
            return False
        return True

    # Subscriptions

    def unsubscribe(self, client: Client, topic: str) -> int:
        """Take a filter out of the session; the LSN to wait for, or 0."""
        known = client.filters.remove(topic)
        self.count_no_local(client, -known.no_local)
        lsn = client.vhost.unsubscribe(client.client_id, topic).lsn
        if is_shared(topic):
            lsn = max(lsn, self.shares.leave(client, topic))
        return lsn

    def count_no_local(self, client: Client, change: int) -> None:
        """So many more, or fewer, of its subscriptions have no-local."""
        client.no_local += change
        self.broker.origin_readers += change

    def _permissions_changed(self, user: str, vhost: str) -> None:
        """Take back the subscriptions that would not be granted any more; end sessions that may not be."""
        authorizer = self.broker.authorizer
        for client in [c for c in self if c.username == user and c.vhost.name == vhost]:
            if client.grants is not None:
                continue
            if authorizer.enter(client.identity, vhost):
                self._recheck(client)
                continue
            if client.connection is not None:
                client.connection.force_close("no access to the vhost any more", reasons.NOT_AUTHORIZED)
            self.end(client)

    def may_read(self, client: Client, identity: Identity) -> bool:
        """Whether another user may have all that the session is subscribed to."""
        return not _not_permitted(client, identity)

    def _recheck(self, client: Client) -> None:
        lost = _not_permitted(client, self._asked_before(client))
        for topic in lost:
            logger.info(
                "subscription revoked",
                extra=fields(client=client.client_id, user=client.username, filter=topic),
            )
            self.unsubscribe(client, topic)
        guard = self.broker.authorizer.topic_guard
        filters = guard is not None and guard.filters
        if (lost or filters) and client.connection is not None:
            client.connection.subscriptions_changed()

    def _asked_before(self, client: Client) -> Identity:
        """The decisions of a guard that may take long, asked when the client asked."""
        guard, identity = self.broker.authorizer.topic_guard, client.identity
        return identity.with_guard(guard is None or not guard.slow)

    def publish_will(self, client: Client) -> None:
        """Publish the will that waits, if one does, with the rights its client has now."""
        will, client.will, client.will_at = client.will, None, None
        if will is not None:
            publish(
                client.vhost,
                self._asked_before(client),
                will.topic.encode(),
                will.block,
                will.payload,
                will.qos,
                will.retain,
                ttl_of(will.expiry_s),
            )

    # Time

    def time(self) -> float:
        """Seconds since the epoch, by the clock."""
        return self._clock()

    def deadline(self) -> float | None:
        """When `handle_deadline` is to be called next, by the clock; None = not at all."""
        return self._timers.next()

    def handle_deadline(self) -> None:
        """Publish the wills and end the sessions whose time has come. Then ask for `deadline` again."""
        now = self._clock()
        for client in self._timers.due(now):
            what = (
                f"the will or the end of session {client.client_id!r} failed; it is tried again at a restart"
            )
            guarded(logger, what, self._is_due, client, now)

    def _is_due(self, client: Client, now: float) -> None:
        # A client that came back left its timers behind.
        if client.ended or client.connection is not None:
            return
        if client.will_at is not None and client.will_at <= now:
            with self.log.unit():  # a crash neither loses nor repeats it
                self.publish_will(client)
                self.save(client)
        if client.ends_at is not None and client.ends_at <= now:
            self.expired += 1
            self.end(client)

    # Rows

    def save(self, client: Client) -> int:
        """Put the session's row; the LSN to wait for, 0 for one that is not persistent."""
        if not client.persistent or client.ended:
            return 0
        row = SessionRow(client.username, client.expiry_s, client.ends_at, client.will, client.will_at)
        row.grants = client.grants
        if row.will is None and client.connection is not None:
            # The process may end before the connection does: then this will is due.
            row.will = client.connection.will
        self.tick.schedule()
        client.row_expiry_s = client.expiry_s if row.will is None else -1
        client.ends_late = False
        client.row_lsn = self.log.tables.put(SESSION, client.key, row.encode())
        return client.row_lsn

    def save_received(self, client: Client) -> None:
        """Put the QoS 2 ids received, if they changed."""
        received = client.ids.received
        if client.persistent and received.changed and not client.ended:
            client.has_id_rows = True
            client.row_lsn = self.log.tables.put(QOS2_IN, client.key, received.pack())

    def save_out(self, client: Client) -> int:
        """Put the packet ids under way, if they changed, and with them what the cursor knows to be done."""
        client.dirty = False
        inflight = client.ids.inflight
        if client.persistent and inflight.changed and not client.ended:
            with self.log.unit():
                if inflight.exact_done:
                    client.queue.persist()
                    for share in (client.shares or {}).values():
                        share.queue.persist()
                client.has_id_rows = True
                client.row_lsn = self.log.tables.put(OUT, client.key, inflight.pack())
            self.tick.schedule()
        return client.row_lsn

    def mark_dirty(self, client: Client) -> None:
        """The packet ids under way changed in a way that may be put later."""
        if client.persistent and not client.dirty:
            client.dirty = True
            client.ids.inflight.will_be_saved = True
            self._dirty.append(client)
            if self._saving is None:
                self._saving = self.tick.after(_LAZY_S, self._save_dirty)

    def _save_dirty(self) -> None:
        self._saving = None
        dirty, self._dirty = self._dirty, []
        for client in dirty:
            if client.dirty:
                what = f"what session {client.client_id!r} has under way is not kept yet"
                guarded(logger, what, self.save_out, client)

    def close(self) -> None:
        """Put what is not put yet. For a clean stop, when all connections are gone and before the log
        closes.
        """
        if self._saving is not None:
            self._saving.cancel()
        self._save_dirty()
        late = [
            (client.queue.qid, client.ends_at)
            for client in self
            if client.ends_late and client.ends_at is not None
        ]
        guarded(logger, "the times at which sessions end are not kept", put_ends, self.log.tables, late)

    def _restore(self, key: bytes, value: bytes, ends: dict[int, float]) -> None:
        row = SessionRow.decode(value)
        now = self._clock()
        vhost_name, client_id = split_session_key(key)
        vhost = self.broker.vhosts.get(vhost_name)
        if row.grants is not None:
            # The rights of its token; to come back it needs a new one.
            identity: Identity | None = Identity(row.user, grants=row.grants)
        else:
            identity = self.broker.users.identity(row.user)
        queue = None if vhost is None else vhost.session_queue(client_id, durable=True)
        if vhost is None or queue is None or identity is None:
            # The vhost belongs to another worker now, or the user is gone: nobody may have what the session
            # would deliver.
            if vhost is not None:
                vhost.delete_session(client_id)
            for table in (SESSION, QOS2_IN, OUT):
                self.log.tables.delete(table, key)
            return
        client_id = queue.name  # one text for both
        client = self.restored(vhost, client_id, queue, row.expiry_s)
        client.belong(identity)
        guard = self.broker.authorizer.topic_guard
        client.asked = guard is None or guard.slow
        client.will = row.will
        if row.will is not None:
            # A client that was connected lost its connection when the process ended.
            due = row.will_at if row.will_at is not None else now + min(row.will.delay_s, row.expiry_s)
            client.will_at = due
            self.arm(due, client, now)
        client.promised = True
        client.row_expiry_s = row.expiry_s if row.will is None else -1
        # After a crash nobody knows who was connected: all sessions have all their time again.
        client.ends_late = queue.qid in ends
        ends_at = ends.get(queue.qid, row.ends_at)
        away = ends_at is not None and self.log.recovery.clean
        client.ends_at = now + client.expiry_s if ends_at is None or not away else ends_at
        self._limit(client)
        self.arm(client.ends_at, client, now)
        if not away:
            self.save(client)

    def _restore_noted(self, vhost: Vhost) -> None:
        """Shared subscriptions have groups to be members of, and no-local is counted."""
        for client_id in vhost.sessions.noted:
            client = self.find(vhost.name, client_id)
            if client is None:
                continue
            for topic, subscription in client.subscriptions.items():
                self.count_no_local(client, int(subscription.no_local))
                if is_shared(topic):
                    self.shares.restore(client, topic)
            client.rest()
        vhost.sessions.noted.clear()


def _not_permitted(client: Client, identity: Identity) -> list[str]:
    """The filters of a session that this identity may not have."""
    lost = []
    for topic in client.subscriptions:
        try:
            permit(client, topic, identity)
        except AccessRefused:
            lost.append(topic)
    return lost


def permit(client: Client, topic: str, identity: Identity) -> None:
    """Whether the session, which is this identity's, may (still) have this filter.

    Raises:
        AccessRefused: it may not.

    """
    topic_filter = filter_of(topic)
    client.vhost.sessions.permit(identity, topic_filter)
    if is_sys(topic_filter):
        check_reader(client.vhost, identity, topic_filter)
