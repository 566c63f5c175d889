"""Deliveries of one connection: the consumer of its session's queue, and the retained messages.

The kernel (`_deliver`) encodes; this decides how much, has the packet ids put, and holds back what may not be
seen before its packet id is durable.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Final

from penstock.protocols.mqtt.codec._deliver import Choice, Deliverer, SessionFastPath
from penstock.protocols.mqtt.codec._share_keys import topic_slots
from penstock.protocols.mqtt.delivery.readable import guard_of
from penstock.protocols.mqtt.delivery.replays import Replays
from penstock.protocols.mqtt.delivery.retained import RetainedDelivery
from penstock.protocols.mqtt.delivery.subscribing import choice_of_shared, choose
from penstock.protocols.mqtt.publishing.sys_topics import is_sys
from penstock.protocols.mqtt.subscriptions.shared import Member, filter_of
from penstock.protocols.properties.translate import mqtt5_from_amqp091

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Buffer

    from penstock.protocols.mqtt.clients.clients import Client, Clients
    from penstock.protocols.mqtt.codec.properties import Properties
    from penstock.protocols.mqtt.session.host import Host
    from penstock.protocols.mqtt.subscriptions.filterset import Subscription
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["Delivery"]

_COMPLETE: Final = Choice(2, False, b"")
_DELIVER_MAX: Final = 1024
"""Messages one delivery takes when no packet id limits it."""


class Delivery:
    """The output side of one connection after CONNECT: an `QueueConsumer` of its session's queue."""

    priority = 0

    def __init__(
        self,
        host: Host,
        clients: Clients,
        client: Client,
        version: int,
        properties: Properties,
        *,
        window: int,
        skip_qos0_before: int,
        send_pubrels: Callable[[list[int]], None],
        cancelled: Callable[[str], None],
    ) -> None:
        """Take up what was under way to the client.

        Args:
            host: The connection.
            clients: Where packet ids are put.
            client: The session.
            version: Of the protocol.
            properties: Of CONNECT.
            window: Messages of QoS 1 and 2 that may be under way, [1, 65535].
            skip_qos0_before: Messages of QoS 0 below this position are not for the client: it was away.
            send_pubrels: Sends PUBREL for these packet ids, whose row has been put.
            cancelled: Called when the queue is gone.

        """
        self._host = host
        self._clients = clients
        self._client = client
        self._log = clients.log
        self._send_pubrels = send_pubrels
        self._cancelled = cancelled
        deliverer = Deliverer(client.ids.inflight, host.out, version, self._choose, mqtt5_from_amqp091)
        deliverer.max_packet = properties.get("maximum_packet_size", 268_435_455)
        deliverer.alias_maximum = properties.get("topic_alias_maximum", 0)
        deliverer.origin = client.number
        deliverer.persistent = client.persistent
        deliverer.skip_qos0_before = skip_qos0_before
        self._deliverer = deliverer
        self._held: deque[tuple[int, bytes]] | None = None
        self._way: SessionFastPath | None = None
        self._qos_above_0 = False
        self._open = False
        self._members: dict[str, Member] = {}
        self._inflight = client.ids.inflight
        self.released, again, shared = self._inflight.resume(window)
        """Packet ids to send PUBREL for, before anything else."""
        client.queue.cursor.sent_until = self._inflight.resume_last
        self._shared_again = deque(shared) if shared else None
        self._loading = False
        self._retained = RetainedDelivery(client, deliverer, again)
        self._is_filtered = False
        self.replays = Replays(host, client, version, deliverer.max_packet)
        """The replays that the client reads."""
        self.subscribed()

    @property
    def delivered(self) -> int:
        """Messages sent."""
        return self._deliverer.delivered

    @property
    def delivered_bytes(self) -> int:
        """Bytes of their payloads."""
        return self._deliverer.delivered_bytes

    @property
    def skipped(self) -> int:
        """Messages that were too large for the client."""
        return self._deliverer.skipped

    def start(self) -> None:
        """CONNACK has left."""
        self._open = True
        self._client.queue.attach(self)
        queue, host = self._client.queue, self._host
        self._way = SessionFastPath(self._deliverer, queue, host.sink, self._after_delivery)
        self._way.needs_ids = self._qos_above_0
        queue.fast_path = self._way
        self._join_shares()
        self.pump_retained()
        self.pump_shared()

    def stop(self) -> None:
        """The connection is over."""
        self._open = False
        self._held = None
        if self._client.queue.fast_path is self._way:
            self._client.queue.fast_path = None
        self._client.queue.detach(self)
        self.replays.stop()
        for member in self._members.values():
            member.share.detach(member)
        self._members.clear()

    def let_go(self) -> None:
        """Break the cycles, when all is counted; it was stopped, and what comes late finds it so."""
        self._way = None
        del self._deliverer, self._retained

    def subscribed(self, added: Iterable[str] | None = None) -> None:
        """The client's subscriptions changed: these were added, or None: any, and the rights as well."""
        self._deliverer.forget_choices()
        if added is None:
            self._is_filtered = False
            self._deliverer.filter(None)
        if not self._is_filtered:
            guard = guard_of(self._client, self._client.subscriptions if added is None else added)
            if guard is not None:
                self._is_filtered = True
                self._deliverer.filter(guard)
        self._qos_above_0 = any(s.qos for s in self._client.by_tag.values())
        if self._way is not None:
            self._way.needs_ids = self._qos_above_0
        if self._open:
            self._join_shares()

    def retained(self, subscriptions: list[Subscription], begun: int) -> None:
        """Deliver what was retained under these when they began (`Retained.begin`); the rest comes as it is
        published."""
        for subscription in subscriptions:
            topic, now_ms = filter_of(subscription.topic), self._log.now_ms()
            walk = self._client.vhost.retained.match(topic, now_ms, begun)
            if self._clients.sys is not None and is_sys(topic):
                walk = chain(walk, self._clients.sys.match(topic))
            self._retained.add(subscription, walk)
        self.pump_retained()

    def credit_gained(self) -> None:
        """Packet ids are free again, or there is room for output."""
        if self._open:
            self._client.queue.credit_gained()
            for member in self._members.values():
                member.share.queue.credit_gained(member)
            self.replays.credit_gained()
            self.pump_retained()
            self.pump_shared()

    def release(self) -> None:
        """Send what waited for its packet ids to be durable. Call it when the log has synced."""
        synced = self._log.synced_lsn
        while self._held and self._held[0][0] <= synced:
            self._host.out.write(self._held.popleft()[1])

    # The consumer

    def peer(self) -> str:
        """The connection's name."""
        return self._host.name

    def credit(self) -> int:
        """Messages that may be delivered now."""
        return self.credit_at(self._qos_above_0)

    def credit_at(self, qos: int) -> int:
        """The same for messages of this QoS, or above 0 for any other."""
        if not self._open or self._host.output_capacity() <= 0:
            return 0
        if not qos:
            return _DELIVER_MAX
        return min(self._inflight.send_quota(), _DELIVER_MAX)

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        """Encode items of the cursor; how many were taken."""
        capacity = self._host.output_capacity()
        if capacity <= 0:
            return 0
        took = self._deliverer.deliver(cursor, first, step, capacity, self._log.now_ms())
        self._after_delivery()
        return took

    def _after_delivery(self) -> None:
        deliverer, client = self._deliverer, self._client
        released = deliverer.take_pubrels()
        if self._inflight.changed and client.persistent:
            if self._inflight.exact_changed:
                lsn = self._clients.save_out(client)
                if deliverer.held.size:
                    if self._held is None:
                        self._held = deque()
                    self._held.append((lsn, deliverer.held.take()))
                    self._host.await_synced(lsn)
            else:
                self._clients.mark_dirty(client)
        if released:
            self._send_pubrels(released)
        self._host.dirty()

    def cancelled(self, reason: str) -> None:
        """The queue is gone: somebody deleted it."""
        self._cancelled(reason)

    # Shared subscriptions

    def _join_shares(self) -> None:
        """Consume from the groups that the session is a member of, and from no other."""
        shares = self._client.shares or {}
        for topic in [topic for topic in self._members if topic not in shares]:
            member = self._members.pop(topic)
            member.share.detach(member)
        for topic, share in shares.items():
            choice = choice_of_shared(self._client.subscriptions[topic])
            known = self._members.get(topic)
            if known is not None and known.share is share:
                known.choice = choice
                share.queue.credit_gained(known)
                continue
            if known is not None:
                known.share.detach(known)
            member = self._members[topic] = Member(self, share, choice, self._client.client_id)
            share.attach(member)

    def deliver_shared(self, cursor: Cursor, first: int, step: int, member: Member) -> int:
        """Encode items of a group's cursor; how many were taken."""
        capacity = self._host.output_capacity()
        if capacity <= 0:
            return 0
        claims = member.share.claims or None
        took = self._deliverer.deliver(
            cursor, first, step, capacity, self._log.now_ms(), member.choice, claims
        )
        if claims is not None:
            member.share.claimed(self._deliverer.take_claimed())
        self._after_delivery()
        return took

    def topic_slots(self, cursor: Cursor) -> Buffer:
        """By their topics, for a group by hash."""
        return topic_slots(self._deliverer, cursor)

    def pump_shared(self) -> None:
        """Send again what was under way at QoS 2 when the last connection ended (mqtt5:4.8.2-4)."""
        inflight = self._inflight
        while self._shared_again and self._open and not self._loading and self._host.output_capacity() > 0:
            packet_id, lsn, cursor = self._shared_again[0]
            if not inflight.known(packet_id):
                return  # the group's cursor has not come to it since the restart: nothing could settle it
            batch = self._log.cache.get(lsn)
            if batch is None:
                self._loading = True
                self._log.load(lsn, self._loaded)
                return
            if inflight.send_quota() <= 0:
                return
            self._shared_again.popleft()
            # Unsubscribed since, but delivery was begun and is completed.
            members = self._members.values()
            choice = next((m.choice for m in members if m.share.queue.cursor is cursor), _COMPLETE)
            sent = self._deliverer.again(batch, lsn - batch.base_lsn, choice, packet_id, self._log.now_ms())
            if sent:
                inflight.resend(packet_id)
            elif inflight.abandon_shared(packet_id):
                self._clients.save_out(self._client)
                self._send_pubrels([packet_id])
            self._host.dirty()

    def _loaded(self) -> None:
        self._loading = False
        self.pump_shared()

    def _choose(self, tags: tuple[int, ...]) -> Choice | None:
        return choose(self._client, tags)

    def pump_retained(self) -> None:
        """Deliver retained messages while there is room and a packet id."""
        if self._open and self._retained.waiting:
            self._retained.pump(self._host.output_capacity, self._log.now_ms())
            self._host.dirty()
