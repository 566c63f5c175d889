"""Replays: reading a queue's messages again, also acknowledged ones, without taking any from it.

A replay is a transient queue with a cursor on the parts of the feeds that belong to the original queue. It
begins at a position and continues with new messages. It keeps nothing of the log from being deleted:
messages that traffic retention drops before they are read are left out.

A `Follower` also gets what the queue gets by feeds that it joins later, and ends with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.queue.queue import Queue

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.subscriptions.dispatch.consumer import QueueConsumer
    from penstock.subscriptions.queues import Queues

__all__ = ["Follower", "Replay"]


class Replay(Queue):
    """Of one consumer, with which it ends."""

    __slots__ = ()

    def __init__(self, queues: Queues, queue: Queue, position: int, name: str = "") -> None:
        """First have what `wants` says in memory: see `Log.when_indexed`. `name`: in events, if it is another
        one than the queue's."""
        super().__init__(queues, 0, name or queue.name, queue.vhost, kind=Kind.EXCLUSIVE)
        for feed, tag, from_pos, to_pos in _parts(queue, position):
            self.join_part(feed, from_pos, to_pos, tag)

    @staticmethod
    def wants(queue: Queue, position: int) -> list[tuple[Feed, int]]:
        """Where in which feeds a replay of `queue` from `position` on begins and ends."""
        found = []
        for feed, _, from_pos, to_pos in _parts(queue, position):
            found += [(feed, from_pos), *([(feed, to_pos)] if to_pos is not None else [])]
        return found

    def detach(self, consumer: QueueConsumer, *, requeue: bool = False) -> None:
        """The consumer is gone, and the replay with it."""
        super().detach(consumer, requeue=requeue)
        if not self.consumer_count:
            self.delete()


class Follower(Replay):
    """A replay that joins and leaves feeds with its queue, and is deleted with it."""

    __slots__ = ("_followed",)

    def __init__(self, queues: Queues, queue: Queue, position: int) -> None:
        # Events say that a message was delivered here, and not that it was delivered from the queue.
        super().__init__(queues, queue, position, f"amq.tail-{queue.name}")
        self._followed = queue
        queues.followers.setdefault(queue, []).append(self)

    def delete(self) -> tuple[int, int]:
        """End it; as `Queue.delete`."""
        followers = self._queues.followers
        others = [one for one in followers.pop(self._followed, []) if one is not self]
        if others:
            followers[self._followed] = others
        return super().delete()


def _parts(queue: Queue, position: int) -> list[tuple[Feed, int, int, int | None]]:
    """Of each of the queue's memberships that reaches there: feed, tag, and its part from `position` on."""
    cursor = queue.cursor
    return [
        (feed, tag, max(from_pos, position), to_pos)
        for feed, (_, tag, from_pos, to_pos) in zip(cursor.feeds, cursor.memberships(), strict=True)
        if to_pos is None or to_pos > position
    ]
