"""basic.consume with `x-penstock-replay`: a queue's messages again, from a moment on, without taking any.

The argument's value is a start position (`router.queues.start_position`). Acknowledgements settle the
replay and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.router.errors import InvalidArgument
from penstock.router.queues.replays import find_replay
from penstock.router.queues.start_position import StartPosition, parse_since
from penstock.subscriptions.errors import QueueGone

if TYPE_CHECKING:
    from penstock.protocols.amqp.channel.channel import Channel
    from penstock.protocols.amqp.codec._channel import Consumer
    from penstock.protocols.amqp.codec.methods import Consume
    from penstock.router.broker import Broker
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["ARGUMENT", "Source", "source"]

ARGUMENT: Final = "x-penstock-replay"


class Source:
    """Where a consumer reads a queue's messages again."""

    def __init__(self, broker: Broker, queue: Queue, since: StartPosition) -> None:
        self._broker = broker
        self._queue = queue
        self._since = since
        self._position = 0

    def find(self, done: Callable[[bool], None]) -> None:
        """Find the position to begin with, then call `done`."""

        def found(position: int | None) -> None:
            self._position = position or 0
            done(position is not None)

        find_replay(self._broker, self._queue, self._since, found)

    def give(self, consumer: Consumer) -> None:
        """Let `consumer` be one of a replay's. Raises QueueGone."""
        queue = self._queue
        if queue.deleted:
            raise QueueGone(f"queue '{queue.name}' in vhost '{queue.vhost}' was deleted")
        consumer.queue = self._broker.queues.replay(queue, self._position)


def source(channel: Channel, queue: Queue, method: Consume) -> Source:
    """The source that basic.consume asks for. Raises InvalidArgument: the argument names no moment."""
    value = method.arguments[ARGUMENT]
    since = parse_since(value, channel.session.log.now_ms())
    if since is None:
        raise InvalidArgument("queue", queue.name, queue.vhost, ARGUMENT, value, "invalid_value")
    return Source(channel.session.broker, queue, since)
