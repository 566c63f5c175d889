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
from penstock.log_core.batch._batch import EXACTLY_ONCE, MQTT5, PERSISTENT, RETAIN
from penstock.protocols.http.data.publishing.destinations import Destination, Ready
from penstock.protocols.http.data.publishing.publish import Publisher
from penstock.protocols.http.server.headers import DELAY_ID, delay_name_of
from penstock.protocols.http.server.messages import HttpError, Request, Response
from penstock.protocols.http.shared.traffic import check_properties, note_published, ttl_of
from penstock.protocols.properties.translate import mqtt5_from_amqp091
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE
from penstock.router.messages.retained import RetainedMessage
from penstock.router.names import join_key_block, wire
from penstock.router.publishing.publishing import Published

if TYPE_CHECKING:
    from penstock.protocols.http.data.access import Access
    from penstock.protocols.http.data.publishing.bodies import Outgoing
    from penstock.router.routes._routes import Route

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
        way = Destination(identity, vhost, "", "", False, request.flag("mandatory"))
        way.ready = partial(self._ready, way, topic, flags)
        return await self._publisher.serve(request, way)

    def _ready(self, way: Destination, topic: bytes, flags: int, message: Outgoing) -> Ready:
        """One message, made ready. Raises HttpError."""
        properties = check_properties(message.properties, way.identity)
        name = None
        if DELAY_ID in (properties.get("headers") or {}):
            properties["headers"] = dict(properties["headers"])
            vhost = way.vhost
            name = delay_name_of(properties["headers"], vhost.name, vhost.mqtt_exchange.name)
        try:
            _, block = mqtt5_from_amqp091(_ANY_KEY, self._access.messages.encode_properties(properties))
        except PenstockError as error:
            raise self._access.app.translate(error) from error
        ttl_ms = ttl_of(properties.get("expiration"))
        return _ToTopic(self._access, way, topic, flags, block, ttl_ms, message, name)


class _ToTopic:
    """A message that goes to a topic, as its encoding has it."""

    plain: tuple[int, bytes] | None = None

    def __init__(
        self,
        access: Access,
        way: Destination,
        topic: bytes,
        flags: int,
        block: bytes,
        ttl_ms: int,
        message: Outgoing,
        delay_name: bytes | None,
    ) -> None:
        self._access = access
        self._way = way
        self._topic = topic
        self._flags = flags
        self._block = block
        self._ttl_ms = ttl_ms
        self._body = message.body
        self._due_ms = message.due_ms
        self._delay_name = delay_name
        self.size = len(message.body)
        self.waits = message.due_ms > 0

    def route(self) -> Route:
        route = self._way.vhost.route(self._way.identity, MQTT5, self._topic, {})
        if route.error is not None:
            assert isinstance(route.error, PenstockError)
            raise self._access.app.translate(route.error) from route.error
        if self._way.mandatory and not route.routed:
            raise HttpError(422, "unroutable", "no subscription matches the topic")
        return route

    def append_to(self, route: Route) -> int:
        raise AssertionError("not plain")

    def append(self) -> Published:
        if self._delay_name is None:
            return self._append()
        self.route()  # what is refused takes no other one's name
        broker = self._way.vhost.broker
        with broker.log.unit():
            broker.delayed.cancel_named(self._way.vhost, self._way.identity, self._delay_name)
            return self._append()

    def _append(self) -> Published:
        vhost, ttl_ms, flags = self._way.vhost, self._ttl_ms, self._flags
        try:
            if self._due_ms:
                route = self.route()
                lsn = vhost.broker.delayed.schedule(
                    vhost.name,
                    self._due_ms,
                    MQTT5,
                    self._topic,
                    self._block,
                    self._body,
                    flags=flags,
                    ttl_ms=ttl_ms,
                    name=self._delay_name,
                )
                return Published(lsn, route, waits=True)
            published = vhost.publish(
                self._way.identity, MQTT5, self._topic, self._block, self._body, flags=flags, ttl_ms=ttl_ms
            )
            if published.route.error is not None:
                raise published.route.error
        except PenstockError as error:
            raise self._access.app.translate(error) from error
        if published.refused:
            return published
        self._access.messages.published += 1
        vhost.broker.rates.charge(self._way.identity.username, vhost.name, 1, len(self._body))
        note_published(vhost, self._way.identity, published.lsn)
        if not flags & RETAIN:
            return published
        now_ms = vhost.broker.log.now_ms()
        retained = RetainedMessage(
            topic=self._topic,
            enc=MQTT5,
            props=self._block,
            body=self._body,
            flags=flags & ~RETAIN,
            priority=0,
            stored_ms=now_ms,
            expires_ms=now_ms + ttl_ms if ttl_ms else 0,
        )
        return Published(max(published.lsn, vhost.retained.set(retained)), published.route)


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
