"""Deliveries of one connection: the consumer of its session's queue, and the retained messages.

The kernel (`_deliver`) encodes; this decides how much, has the packet ids put, and holds back what may not be
seen before its packet id is durable. The ordinary way is in `_lifecycle`; here is what few connections need.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from penstock.protocols.mqtt.codec._deliver import Choice
from penstock.protocols.mqtt.codec._share_keys import topic_slots
from penstock.protocols.mqtt.delivery._lifecycle import DeliveryLifecycle
from penstock.protocols.mqtt.delivery.readable import guard_of
from penstock.protocols.mqtt.delivery.replays import Replays
from penstock.protocols.mqtt.delivery.retained import RetainedDelivery
from penstock.protocols.mqtt.delivery.subscribing import choice_of_shared, choose
from penstock.protocols.mqtt.publishing.sys_topics import is_sys
from penstock.protocols.mqtt.subscriptions.shared import Member, filter_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

    from penstock.protocols.mqtt.subscriptions.filterset import Subscription
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["Delivery"]

_COMPLETE: Final = Choice(2, False, b"")


class Delivery(DeliveryLifecycle):
    """The output side of one connection after CONNECT: an `QueueConsumer` of its session's queue."""

    @property
    def replays(self) -> Replays:
        """The replays that the client reads."""
        if self._replays is None:
            self._replays = Replays(self._host, self._client, self._version, self._deliverer.max_packet)
        return self._replays

    def retained_again(self, again: list[tuple[int, int]]) -> RetainedDelivery:
        """Retained messages that were under way, (packet id, token), and are to be sent again."""
        return RetainedDelivery(self._client, self._deliverer, again)

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
        self._qos_above_0 = self._client.filters.most_qos() > 0
        if self._way is not None:
            self._way.needs_ids = self._qos_above_0
        if self._open and (self._members or self._client.shares):
            self._join_shares()

    def retained(self, subscriptions: list[Subscription], begun: int) -> None:
        """Deliver what was retained under these when they began (`Retained.begin`); the rest comes as it is
        published. Like any message, one is delivered when cursors would find it."""
        last = self._log.appender.next_lsn - 1
        if subscriptions and last > self._log.visible_lsn:
            self._log.when_visible(last, lambda ok: self._walk(subscriptions, begun) if ok else None)
        else:
            self._walk(subscriptions, begun)

    def _walk(self, subscriptions: list[Subscription], begun: int) -> None:
        for subscription in subscriptions:
            topic, now_ms = filter_of(subscription.topic), self._log.now_ms()
            walk = self._client.vhost.retained.match(topic, now_ms, begun)
            if self._clients.sys is not None and is_sys(topic):
                walk = chain(walk, self._clients.sys.match(topic))
            if self._retained is None:
                self._retained = self.retained_again([])
            self._retained.add(subscription, walk)
        self.pump_retained()

    # Shared subscriptions

    def _join_shares(self) -> None:
        """Consume from the groups that the session is a member of, and from no other."""
        shares = self._client.shares or {}
        if self._members is None:
            self._members = {}
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
            members = (self._members or {}).values()
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
        if self._open and self._retained is not None and self._retained.waiting:
            self._retained.pump(self._host.output_capacity, self._log.now_ms())
            self._host.dirty()
