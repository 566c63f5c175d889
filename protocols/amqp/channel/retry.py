"""Queues that let a message wait before it comes again: `x-delayed-retry-min` and its companions, in ms.

    x-delayed-retry-min          the first wait; without it nothing waits
    x-delayed-retry-max          the longest wait
    x-delayed-retry-multiplier   absent: the waits grow linearly (min, 2 min, 3 min ...); 1: they stay; else
                                 each is so many times the one before
    x-delayed-retry-type         "disabled": nothing waits

It holds for basic.nack and basic.reject with requeue; what a channel gives back as it closes, or with
basic.recover, comes again at once. A message that waits counts as unacknowledged; after a restart nothing
waits.

Source: RabbitMQ 4.3 (quorum queues) and LavinMQ (the multiplier).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.protocols.amqp.channel.channel import Channel
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["delay_ms", "retries", "watch"]

_MIN: Final = "x-delayed-retry-min"
_LONGEST_MS: Final = 2**32 - 1


def retries(arguments: Mapping[str, Any]) -> bool:
    """Whether messages of a queue with these arguments wait before they come again."""
    return _MIN in arguments and arguments.get("x-delayed-retry-type") != "disabled"


def delay_ms(arguments: Mapping[str, Any], count: int) -> int:
    """How long a message waits that was given back `count` times before."""
    least: int = arguments[_MIN]
    factor = arguments.get("x-delayed-retry-multiplier")
    most = min(arguments.get("x-delayed-retry-max", _LONGEST_MS), _LONGEST_MS)
    if factor is None:
        wait = least * (count + 1)
    else:
        wait = least * factor ** min(count, 32)  # beyond it the longest wait is reached, or the factor is 1
    return int(min(wait, most))


def watch(channel: Channel, queue: Queue) -> None:
    """The channel gets messages of this queue: those it gives back may have to wait."""
    if retries(queue.arguments):
        channel.core.give_back = lambda cursor, seq: _give_back(channel, cursor, seq)


def _give_back(channel: Channel, cursor: Cursor, seq: int) -> None:
    queue = cursor.queue
    count = cursor.retries_of(seq)
    if queue is None or count < 0 or not retries(queue.arguments):
        cursor.requeue(seq)
        return
    delay_s = delay_ms(queue.arguments, count) / 1000
    channel.session.broker.tick.after(delay_s, lambda: _come_again(cursor, seq))


def _come_again(cursor: Cursor, seq: int) -> None:
    cursor.requeue(seq)
