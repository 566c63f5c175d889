"""Direct reply-to, the requester's side: a consumer without a queue.

A channel may have one consumer of `amq.rabbitmq.reply-to`, without acknowledgements. A request published on
the same channel with that reply-to leaves with the consumer's address instead; a reply published to the
address through the default exchange is delivered here at once.

Replies for a connection that does not take them are kept up to `BACKLOG_MAX` bytes, and then dropped: a
direct reply is delivered at most once.

Source: RabbitMQ's rabbit_channel.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.protocols.amqp.codec.errors import soft
from penstock.protocols.properties.editing import without_header
from penstock.protocols.properties.properties import SECTIONS_HEADER
from penstock.router.names import server_name, wire

if TYPE_CHECKING:
    from penstock.protocols.amqp.channel.channel import Channel
    from penstock.protocols.amqp.codec.methods import Consume

__all__ = ["BACKLOG_MAX", "ReplyConsumer", "consume"]

BACKLOG_MAX: Final = 16 << 20


class ReplyConsumer:
    """The consumer of direct replies of one channel."""

    def __init__(self, channel: Channel, tag: str) -> None:
        self.tag = tag
        self._wire_tag = wire(tag)
        self._channel = channel
        self._backlog: deque[tuple[bytes, bytes, bytes]] = deque()
        self._held = 0
        self._started = False
        self.name = channel.vhost.replies.register(self._receive)
        """Where replies are published to."""

    def start(self) -> None:
        """consume-ok has left."""
        self._started = True
        self.wake()

    def end(self) -> None:
        """No more replies."""
        self._started = False
        self._channel.vhost.replies.forget(self.name)
        self._backlog.clear()

    def _receive(self, key: bytes, props: bytes, body: bytes, sections: bool) -> None:
        if sections:
            props = without_header(props, SECTIONS_HEADER)
        size = len(key) + len(props) + len(body)
        if self._backlog and self._held + size > BACKLOG_MAX:
            return
        self._backlog.append((key, props, body))
        self._held += size
        self.wake()

    def wake(self) -> None:
        """Deliver what the connection has room for."""
        session = self._channel.session
        while self._started and self._backlog and session.output_capacity() > 0:
            key, props, body = self._backlog.popleft()
            self._held -= len(key) + len(props) + len(body)
            self._channel.core.encode_direct(self._wire_tag, key, props, body)
            session.dirty()


def consume(channel: Channel, method: Consume) -> None:
    """basic.consume of the pseudo-queue."""
    if not method.no_ack:
        raise soft(406, "reply consumer cannot acknowledge")
    if channel.replies is not None:
        raise soft(406, "reply consumer already set")
    consumer = ReplyConsumer(channel, method.consumer_tag or server_name("amq.ctag-"))
    channel.replies = consumer

    def start() -> None:
        if not method.nowait:
            channel.send("basic.consume-ok", consumer.tag)
        if channel.replies is consumer:
            consumer.start()

    channel.then(start)
