"""How much waits for one session (`mqtt.max_queued_messages` and `_bytes`, or what policies of its vhost
say), and what happens to the rest.

Without a limit a session lags on the log as far as retention goes, and that costs nothing here. With one, its
queue (or that of a shared subscription) drops the oldest messages, or the newest (`mqtt.queue_full`), which
are counted, logged, and published to `mqtt.dead_letter_topic` if there is one, with the session's client id
and the topic as user properties.

Of a policy `max-length`, `max-length-bytes`, `message-ttl` and `overflow` hold for sessions; the lower number
counts. Nothing refuses what is published, so `reject-publish` drops the newest.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.logs import fields
from penstock.protocols.mqtt.codec.properties import encode_block
from penstock.protocols.mqtt.publishing.publishing import ENC_MQTT5
from penstock.protocols.properties.translate import mqtt5_from_amqp091
from penstock.router.arguments import Arguments
from penstock.subscriptions.queue.limits import NO_RULES, Overflow, Rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log_core.batch._batch import Record
    from penstock.protocols.mqtt.options import MqttOptions
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Backlog"]

_NO_POLICY: Final[Arguments] = {}

logger: Final = logging.getLogger("penstock.mqtt")

_CARRIED: Final = 2 | 512
"""Flags of a record that its dead letter keeps: persistent, exactly once."""


def _lower(option: int, policed: object) -> int | None:
    """The lower one of an option, 0 = none, and what a policy says; None: neither says anything."""
    if not isinstance(policed, int):
        return option or None
    return min(option, policed) if option else policed


class Backlog:
    """The limit of all sessions."""

    def __init__(self, options: MqttOptions) -> None:
        self._options = options
        self.dropped = 0
        """Messages, ever."""

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self._options.max_queued_messages > 0 or self._options.max_queued_bytes > 0

    def limit(
        self, vhost: Vhost, queue: Queue, dropped: Callable[[], None], policed: Arguments = _NO_POLICY
    ) -> None:
        """Hold a queue to the limit, or free it when there is none; `dropped` hears of each lost message.

        `policed` is what policies say of it, as arguments of a queue.
        """
        options = self._options
        rules = Rules(
            max_length=_lower(options.max_queued_messages, policed.get("x-max-length")),
            max_bytes=_lower(options.max_queued_bytes, policed.get("x-max-length-bytes")),
            ttl_ms=_lower(0, policed.get("x-message-ttl")),
            overflow=Overflow.DROP_NEWEST
            if options.queue_full == "drop-newest" or policed.get("x-overflow", "drop-head") != "drop-head"
            else Overflow.DROP_HEAD,
        )
        if not rules.bounded:
            queue.apply(rules if rules.ttl_ms is not None else NO_RULES)
            return
        lost = 0

        def bury(record: Record, reason: str, _note: bytes) -> bool:
            nonlocal lost
            if reason != "maxlen":
                return True
            self.dropped += 1
            lost += 1
            if lost & (lost - 1) == 0:  # 1, 2, 4, 8 ...: one line per doubling is enough
                logger.warning(
                    "messages dropped: the most that may wait for a session is reached",
                    extra=fields(session=queue.name, vhost=vhost.name, dropped=lost),
                )
            if self._options.dead_letter_topic:
                self._publish(vhost, queue.name, record)
            dropped()
            return True

        queue.apply(replace(rules, bury=bury))

    def _publish(self, vhost: Vhost, session: str, record: Record) -> None:
        topic: bytes | None = record.key
        block = record.props
        if record.enc != ENC_MQTT5:
            topic, block = mqtt5_from_amqp091(record.key, record.props)
        if topic is None:
            return
        why = [("penstock-session", session), ("penstock-topic", topic.decode("utf-8", "replace"))]
        vhost.publish(
            None,
            ENC_MQTT5,
            self._options.dead_letter_topic.encode(),
            block + encode_block({"user_properties": why}),
            record.body,
            flags=record.flags & _CARRIED,
        )
