"""The scope of a search: a `Matcher` of key blocks, or the feeds of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.log_core.batch._batch import AMQP091, Record
from penstock.protocols.http.data.live.tail import pattern_of
from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.shared.rights import may_read
from penstock.router.authorization.identity import Actor
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE
from penstock.router.names import dotted, split_key_block, wire
from penstock.router.routes.topics import DottedTrie
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.router.authorization.identity import Identity
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost

__all__ = ["SCOPE_FIELDS", "SearchScope"]

SCOPE_FIELDS: Final = ("exchange", "routing_key", "topic", "queue", "stream")


class SearchScope:
    """The exchange and keys, or the queue, of a search, in the words of `Matcher`."""

    def __init__(self, broker: Broker, identity: Identity, vhost: Vhost, body: dict[str, Any]) -> None:
        """Raises HttpError 400, RoutingError."""
        self.lp = vhost.lp
        self.feeds: list[int] | None = None
        """Only what is in one of these."""
        self._broker = broker
        self._identity = identity
        self._vhost = vhost
        named = {name: body[name] for name in SCOPE_FIELDS if name in body}
        if not all(isinstance(value, str) for value in named.values()):
            raise HttpError(400, "bad_field", f"{', '.join(SCOPE_FIELDS)}: text")
        if len(named.keys() & {"routing_key", "topic"}) > 1 or len(named.keys() & {"queue", "stream"}) > 1:
            raise HttpError(400, "bad_field", "one of routing_key and topic, and one of queue and stream")
        if (queue := named.get("queue", named.get("stream"))) is not None:
            found = vhost.queue(queue, Actor(identity, object()))
            if "stream" in named and not isinstance(found, Stream):
                raise HttpError(409, "wrong_mode", f"queue '{queue}' is no stream")
            self.feeds = [feed.id for feed in found.cursor.feeds]
        self._exchange: str | None = named.get("exchange")
        if self._exchange == "amq.default":
            self._exchange = ""
        pattern: str | None = named.get("routing_key")
        if "topic" in named:
            if self._exchange not in (None, MQTT_EXCHANGE):
                raise HttpError(400, "bad_field", f"topic: messages to topics are those of {MQTT_EXCHANGE}")
            self._exchange, pattern = MQTT_EXCHANGE, pattern_of(named["topic"])
        self._pattern: DottedTrie[bool] | None = None
        if pattern is not None:
            self._pattern = DottedTrie()
            self._pattern.add(wire(pattern), lambda: True)

    def verdict(self, enc: int, key: bytes) -> int:
        """Whether messages with this key block are wanted, and for this user."""
        exchange, routing_key = (
            (split_key_block(key) or ("", b"")) if enc == AMQP091 else (MQTT_EXCHANGE, dotted(key))
        )
        if self._exchange is not None and exchange != self._exchange:
            return 0
        if self._pattern is not None and not self._pattern.match(routing_key):
            return 0
        # The right to read a queue is one to all that is in it, whichever way it came.
        return int(self.feeds is not None or may_read(self._broker, self._identity, self._vhost, enc, key))

    def is_wanted(self, record: Record) -> bool:
        """Never asked: a verdict depends on the key block alone."""
        raise NotImplementedError
