"""Reading a queue's messages again, the acknowledged ones included, without taking any from it.

A replay is a queue of its own that nothing remembers, with a cursor on the parts of the feeds that belong to
the queue. It begins at a position and goes on with what comes. It keeps nothing of the log from being
deleted: what traffic retention drops before it was read is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.subscriptions.dispatch import Kind
from penstock.subscriptions.queue import Queue

if TYPE_CHECKING:
    from penstock.subscriptions.outlet import Outlet
    from penstock.subscriptions.queues import Queues

__all__ = ["Replay"]


class Replay(Queue):
    """Of one consumer, with which it ends."""

    __slots__ = ()

    def __init__(self, queues: Queues, queue: Queue, position: int) -> None:
        super().__init__(queues, 0, queue.name, queue.vhost, kind=Kind.EXCLUSIVE)
        for feed, (_, tag, from_pos, to_pos) in zip(
            queue.cursor.feeds, queue.cursor.memberships(), strict=True
        ):
            self.join_part(feed, max(from_pos, position), to_pos, tag)

    def detach(self, outlet: Outlet, *, requeue: bool = False) -> None:
        """The consumer is gone, and the replay with it."""
        super().detach(outlet, requeue=requeue)
        if not self.outlets:
            self.delete()
