"""Delivering retained messages to a new subscription: in pages, under the client's flow control, never
dropped.

A subscription's retained messages are walked lazily, as many at a time as the connection has room and the
client packet ids for; the store says where to go on. At QoS 1 and 2 each is under way with a packet id and
is sent again with DUP on the next connection until it is acknowledged. They are not records of the log, so
over a restart of the gateway a walk begins anew at the next SUBSCRIBE; what was promised there is the
store.

Source: MQTT 5.0 sections 3.3.1.3 and 3.8.3.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.protocols.mqtt.clients.packet_ids import Retained
from penstock.protocols.mqtt.codec._deliver import Deliverer
from penstock.protocols.mqtt.delivery.subscribing import ids_of
from penstock.protocols.mqtt.subscriptions.filterset import Subscription
from penstock.protocols.properties.translate import mqtt5_from_amqp091, routing_key_of

if TYPE_CHECKING:
    from penstock.protocols.mqtt.clients.client import Client
    from penstock.router.messages.retained import RetainedMessage

__all__ = ["RetainedDelivery"]

_F_PERSISTENT = 2
_F_EXACTLY_ONCE = 512
_ENC_MQTT5 = 2


class RetainedDelivery:
    """The retained messages that one connection still has to deliver."""

    def __init__(self, client: Client, deliverer: Deliverer, again: list[tuple[int, int]]) -> None:
        """`again`: (packet id, token) of those under way when the last connection ended, in their order."""
        self._client = client
        self._ids = client.ids
        self._deliverer = deliverer
        self._again = deque(again) if again else None
        self._walks: deque[tuple[Subscription, Iterator[RetainedMessage]]] | None = None
        self._next: RetainedMessage | None = None

    @property
    def waiting(self) -> bool:
        """Something is left to deliver."""
        return bool(self._again or self._walks)

    def add(self, subscription: Subscription, walk: Iterator[RetainedMessage]) -> None:
        """Deliver what a walk finds, as long as the subscription stands."""
        if self._walks is None:
            self._walks = deque()
        self._walks.append((subscription, walk))

    def pump(self, capacity: Callable[[], int], now_ms: int) -> None:
        """Deliver while there is room (bytes) and a packet id; call again when there is more of either."""
        client, ids, deliverer = self._client, self._ids, self._deliverer
        while self._again and capacity() > 0:
            packet_id, token = self._again[0]
            kept = ids.tokens.get(token)
            if kept is None or not ids.inflight.resend(packet_id):
                if kept is not None:
                    return
                self._again.popleft()
                continue
            self._again.popleft()
            elapsed_s = (now_ms - kept.stored_ms) // 1000
            deliverer.publish(
                kept.topic, kept.block, kept.payload, kept.qos, True, kept.ids, packet_id, True, elapsed_s
            )
        while self._walks and capacity() > 0:
            subscription, walk = self._walks[0]
            if client.subscriptions.get(subscription.topic) is not subscription:
                self._walks.popleft()  # unsubscribed meanwhile
                self._next = None
                continue
            entry = self._next if self._next is not None else next(walk, None)
            self._next = None
            if entry is None:
                self._walks.popleft()
            elif not self._send(entry, subscription, now_ms):
                self._next = entry
                return

    def _send(self, entry: RetainedMessage, subscription: Subscription, now_ms: int) -> bool:
        """Deliver one, or pass over one that may not be read; False when the client's window is full."""
        packet_ids, deliverer = self._ids, self._deliverer
        if not deliverer.may_send(entry.topic):
            return True
        published = 0 if not entry.flags & _F_PERSISTENT else 2 if entry.flags & _F_EXACTLY_ONCE else 1
        qos = min(published, subscription.qos)
        ids = ids_of((subscription.identifier,))
        elapsed_s = max(now_ms - entry.stored_ms, 0) // 1000
        packet_id = 0
        if qos:
            packet_id = packet_ids.inflight.assign_retained(packet_ids.next_token, qos)
            if not packet_id:
                return False
            token = packet_ids.next_token
            packet_ids.next_token += 1
        block = entry.props if entry.enc == _ENC_MQTT5 else _translated(entry)
        sent = deliverer.publish(entry.topic, block, entry.body, qos, True, ids, packet_id, False, elapsed_s)
        if qos:
            if sent:
                kept = Retained(entry.topic, block, entry.body, qos, ids, entry.stored_ms)
                packet_ids.tokens[token] = kept
            else:
                packet_ids.inflight.give_back(packet_id)
        return True


def _translated(entry: RetainedMessage) -> bytes:
    """The properties of a message that AMQP retained."""
    key = routing_key_of(entry.topic)
    return mqtt5_from_amqp091(b"\0" + bytes((len(key),)) + key, entry.props)[1]
