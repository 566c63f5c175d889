"""Subscriptions to the past: `$replay/<since>/<filter>`.

    $replay/-15m/sensors/#       what was published since then, and then what comes
    $replay/2024-05-01T10:00:00Z/sensors/+/temperature
    $replay/pos:1234/#

The messages have their own topics, at QoS 0 whatever was asked for, in the order of the log, without a gap or
a duplicate between history and what follows. Behind the last message of the history comes, to a 5.0 client,
an empty one with the topic `$replay/end` and the user property `penstock-replay-end`, whose value is the
filter as subscribed.

A replay is a queue of its own that is not stored (`router.queues.backfill`): it neither takes from the
session nor waits for it. It belongs to the connection: unsubscribing or disconnecting ends it, and a
resumed session must ask again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.protocols.mqtt.codec import packets, reasons
from penstock.protocols.mqtt.codec._deliver import Choice, Deliverer
from penstock.protocols.mqtt.codec._packet_ids import Inflight
from penstock.protocols.mqtt.codec.properties import encode_block
from penstock.protocols.mqtt.codec.reasons import Malformed
from penstock.protocols.mqtt.delivery.readable import guard_of
from penstock.protocols.mqtt.publishing.sys_topics import is_sys
from penstock.protocols.mqtt.subscriptions.filters import check_filter, refusal_of
from penstock.protocols.mqtt.subscriptions.shared import is_shared
from penstock.protocols.properties.translate import mqtt5_from_amqp091
from penstock.router.errors import AccessRefused, InvalidPattern
from penstock.router.names import server_name
from penstock.router.queues.start_position import StartPosition, parse_since

if TYPE_CHECKING:
    from penstock.protocols.mqtt.clients.clients import Client
    from penstock.protocols.mqtt.codec.packets import Filter
    from penstock.protocols.mqtt.session.host import Host
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["PREFIX", "Replay", "Replays", "is_replay"]

_LOG: Final = logging.getLogger("penstock.mqtt")

PREFIX: Final = "$replay/"
END_TOPIC: Final = b"$replay/end"
_DELIVER_MAX: Final = 1024
_REPLAYS_MAX: Final = 32
"""Of one connection: each searches the log."""


def is_replay(topic: str) -> bool:
    """Whether a filter asks for the past."""
    return topic.startswith(PREFIX)


class Replays:
    """Those of one connection."""

    def __init__(self, host: Host, client: Client, version: int, max_packet: int) -> None:
        self._host = host
        self._client = client
        self._version = version
        self._max_packet = max_packet
        self._all: dict[str, Replay] = {}

    def subscribe(self, line: Filter, identifier: int) -> int:
        """Begin one, anew if it is there already; the reason code for SUBACK."""
        since_text, _, topic_filter = line.topic[len(PREFIX) :].partition("/")
        vhost = self._client.vhost
        since = parse_since(since_text, vhost.broker.log.now_ms())
        try:
            check_filter(topic_filter)
        except Malformed:
            since = None
        if since is None or is_shared(topic_filter) or is_replay(topic_filter):
            return reasons.TOPIC_FILTER_INVALID
        if refusal := refusal_of(topic_filter):
            return refusal
        if is_sys(topic_filter):
            return reasons.NOT_AUTHORIZED  # its messages are nobody's history
        self.unsubscribe(line.topic)
        if len(self._all) >= _REPLAYS_MAX:
            return reasons.QUOTA_EXCEEDED
        replay = Replay(self._host, self._client, self._version, self._max_packet, line, identifier)
        try:
            replay.start(topic_filter, since)
        except AccessRefused:
            replay.stop()
            return reasons.NOT_AUTHORIZED
        except InvalidPattern:
            replay.stop()
            return reasons.TOPIC_FILTER_INVALID
        self._all[line.topic] = replay
        return 0

    def unsubscribe(self, topic: str) -> bool:
        """End one; False: there is none."""
        replay = self._all.pop(topic, None)
        if replay is not None:
            replay.stop()
        return replay is not None

    def credit_gained(self) -> None:
        """There is room for output."""
        for replay in self._all.values():
            replay.credit_gained()

    def stop(self) -> None:
        """The connection is over."""
        for topic in list(self._all):
            self.unsubscribe(topic)


class Replay:
    """One of them: a consumer of its own queue."""

    priority = 0

    def __init__(
        self, host: Host, client: Client, version: int, max_packet: int, line: Filter, identifier: int
    ) -> None:
        self._host = host
        self._vhost = client.vhost
        self._client = client
        self._identity = client.identity
        self._topic = line.topic
        self._version = version
        self._ids = encode_block({"subscription_ids": [identifier] if identifier else []})
        self._choice = Choice(0, line.retain_as_published, self._ids, None, line.no_local)
        self._no_local = line.no_local
        self._name = server_name(f"{client.client_id}/$replay/")
        self._deliverer = Deliverer(
            Inflight(), host.out, version, lambda tags: self._choice, mqtt5_from_amqp091
        )
        self._deliverer.max_packet = max_packet
        self._deliverer.origin = client.number
        self._vhost.broker.origin_readers += line.no_local
        self._queue = self._vhost.session_queue(self._name, durable=False)
        self._last = -1  # position of the last message of the history; -1: not known yet
        self._ended = version != packets.MQTT_5

    def start(self, topic_filter: str, since: StartPosition) -> None:
        """Find the history, then deliver. Raises AccessRefused, InvalidPattern."""
        self._deliverer.filter(guard_of(self._client, (topic_filter,)))
        self._queue.attach(self)
        self._vhost.replay(self._name, topic_filter, since, self._identity, self._found)

    def _found(self, last: int, ok: bool) -> None:
        self._last = last
        if not ok:
            _LOG.error("what was published under %r before cannot be read; only what comes is", self._topic)
        self._queue.wake()

    def credit_gained(self) -> None:
        self._queue.credit_gained()

    def stop(self) -> None:
        """No more of it."""
        self._queue.detach(self)
        self._vhost.delete_session(self._name)
        self._vhost.broker.origin_readers -= self._no_local

    # The consumer

    def peer(self) -> str:
        """The connection's name."""
        return self._host.name

    def credit(self) -> int:
        """Messages that may be delivered now."""
        if self._last < 0 or self._host.output_capacity() <= 0:
            return 0
        self._check_end(self._queue.cursor)
        return _DELIVER_MAX

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        """Encode items of the cursor; how many were taken."""
        capacity = self._host.output_capacity()
        if capacity <= 0:
            return 0
        now_ms = self._queue.log.now_ms()
        took = 0
        if not self._ended:
            # One by one as long as it is history: its end has a place of its own in between.
            for _, position, _, _, _ in cursor.records()[first::step]:
                if position > self._last or self._host.output_capacity() <= 0:
                    break
                took += self._deliverer.deliver(
                    cursor, first + step * took, cursor.taken_count, capacity, now_ms
                )
            self._check_end(cursor)
        if self._ended and first + step * took < cursor.taken_count and self._host.output_capacity() > 0:
            took += self._deliverer.deliver(
                cursor, first + step * took, step, self._host.output_capacity(), now_ms
            )
        self._host.dirty()
        return took

    def _check_end(self, cursor: Cursor) -> None:
        """Say that the history is over, once it is."""
        if self._ended or cursor.mark < self._last:
            return
        self._ended = True
        block = encode_block({"user_properties": [("penstock-replay-end", self._topic)]})
        self._deliverer.publish(END_TOPIC, block, b"", 0, False, self._ids, 0, False, 0)
        self._host.dirty()

    def cancelled(self, reason: str) -> None:
        """The queue is gone, by `stop`."""
