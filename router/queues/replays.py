"""Where a replay of a queue begins: its messages again, from a moment on, without taking any."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.router.queues.backfill import find_position
from penstock.router.queues.start_position import StartPosition
from penstock.subscriptions.streams.replay import Replay

if TYPE_CHECKING:
    from penstock.router.broker import Broker
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["find_replay"]


def find_replay(
    broker: Broker, queue: Queue, since: StartPosition, found: Callable[[int | None], None]
) -> None:
    """Call `found` with the position for `Queues.replay`, which may be called then; None: there is none."""
    log = broker.log

    def at(position: int | None) -> None:
        if position is None:
            found(None)
        else:
            log.when_indexed(Replay.wants(queue, position), lambda: found(position))

    find_position(log, broker.vhost(queue.vhost).lp, since, at)
