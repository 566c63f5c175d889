"""POST .../mqtt/messages?topic=T: publish as an MQTT 5 client does, to a topic.

    ?topic=a/b      without wildcards; topics under $ are the gateway's own
    ?qos=0 | 1 | 2  whether the message is kept for sessions that are away: 0 is not (1 unless said otherwise)
    ?retain=true    it becomes the topic's retained message; an empty body removes that

Properties become those of MQTT 5 by the total function that all AMQP messages go through: headers are user
properties, `reply_to` the response topic, `ttl_ms` the expiry interval.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError
from penstock.log_core._batch import EXACTLY_ONCE, MQTT5, PERSISTENT, RETAIN
from penstock.protocols.http.data.publish import Publisher, Way
from penstock.protocols.http.messages import HttpError, Request, Response
from penstock.protocols.http.traffic import check_properties, ttl_of
from penstock.protocols.translate import mqtt5_from_amqp091
from penstock.router.exchanges import MQTT_EXCHANGE
from penstock.router.names import join_key_block, wire
from penstock.router.publishing import Published
from penstock.router.retained import RetainedMessage

if TYPE_CHECKING:
    from penstock.protocols.http.data.access import Access
    from penstock.protocols.http.data.bodies import Outgoing
    from penstock.router.identity import Identity
    from penstock.router.vhost import Vhost

__all__ = ["TopicPublisher"]

_FLAGS: Final = {"0": 0, "1": PERSISTENT, "2": PERSISTENT | EXACTLY_ONCE}
_TOPIC_MAX: Final = 65_535
_ANY_KEY: Final = join_key_block(MQTT_EXCHANGE, "topic")
"""The translation of properties wants a key; the topic is said apart, so that dots in it stay dots."""


class TopicPublisher:
    """The handler."""

    def __init__(self, access: Access, publisher: Publisher) -> None:
        self._access = access
        self._publisher = publisher

    async def publish(self, request: Request) -> Response:
        """Publish to the topic of the query."""
        access = self._access
        vhost, identity = access.vhost(request), access.identity(request)
        topic = _topic_of(request.parameter("topic"))
        flags = _FLAGS.get(request.parameter("qos", "1"))
        if flags is None:
            raise HttpError(400, "bad_field", "qos is 0, 1 or 2")
        if request.flag("retain"):
            flags |= RETAIN
        mandatory = request.flag("mandatory")
        append = partial(self._append, vhost, identity, topic, flags, mandatory)
        return await self._publisher.serve(request, Way(identity, vhost, "", "", True, mandatory, append))

    def _append(
        self, vhost: Vhost, identity: Identity, topic: bytes, flags: int, mandatory: bool, message: Outgoing
    ) -> Published:
        """Append one message. Raises HttpError."""
        access = self._access
        properties = check_properties(message.properties, identity)
        try:
            _, block = mqtt5_from_amqp091(_ANY_KEY, access.messages.encode_properties(properties))
            ttl_ms = ttl_of(properties.get("expiration"))
            route = vhost.route(identity, MQTT5, topic, {})
            if route.error is not None:
                raise route.error
            if mandatory and not route.routed:
                raise HttpError(422, "unroutable", "no subscription matches the topic")
            if message.due_ms:
                lsn = vhost.broker.delayed.schedule(
                    vhost.name, message.due_ms, MQTT5, topic, block, message.body, flags=flags, ttl_ms=ttl_ms
                )
                return Published(lsn, route)
            published = vhost.publish(identity, MQTT5, topic, block, message.body, flags=flags, ttl_ms=ttl_ms)
            if published.route.error is not None:
                raise published.route.error
        except PenstockError as error:
            raise access.app.translate(error) from error
        if published.refused:
            raise HttpError(422, "queue_full", "a session or queue that it was to go to is full")
        access.messages.published += 1
        if flags & RETAIN:
            now_ms = vhost.broker.log.now_ms()
            retained = RetainedMessage(
                topic=topic,
                enc=MQTT5,
                props=block,
                body=message.body,
                flags=flags & ~RETAIN,
                priority=0,
                stored_ms=now_ms,
                expires_ms=now_ms + ttl_ms if ttl_ms else 0,
            )
            return Published(max(published.lsn, vhost.retained.set(retained)), published.route)
        return published


def _topic_of(text: str) -> bytes:
    """A topic that may be published to. Raises HttpError."""
    topic = wire(text)
    if not topic:
        raise HttpError(400, "bad_field", "topic: the query has to name the topic, as ?topic=a/b")
    if len(topic) > _TOPIC_MAX or b"+" in topic or b"#" in topic:
        raise HttpError(
            400, "bad_field", f"topic: without the wildcards + and #, and at most {_TOPIC_MAX} bytes"
        )
    if topic.startswith(b"$"):
        raise HttpError(403, "access_refused", "topics under $ are the gateway's own")
    return topic
