"""A group: a queue that may choose among its consumers in its own way, failover or by key.

Its kind says which (`become`). Subscriptions to streams are groups, and so are MQTT's shared
subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from penstock.subscriptions.dispatch.consumer import QueueConsumer
from penstock.subscriptions.dispatch.failover import Failover
from penstock.subscriptions.dispatch.key_shared import KeyShared
from penstock.subscriptions.dispatch.strategies import Kind, Pause
from penstock.subscriptions.queue.queue import Queue

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.dispatch.assignment import Range

__all__ = ["Group", "GroupConsumer"]


class GroupConsumer(QueueConsumer, Protocol):
    """A consumer of a group."""

    @property
    def name(self) -> str:
        """Of the consumer, for choices among several; equal names are fine."""

    @property
    def ranges(self) -> list[Range]:
        """The slots it wants of a sticky subscription."""

    def void(self) -> None:
        """The messages that it holds are void: settling them does nothing."""

    def told(self, active: bool) -> None:
        """Whether it is the active one of a failover subscription."""

    def slots(self, cursor: Cursor) -> Buffer:
        """The slots (`_keys.slot`) of the keys of the items of the last take: u16 each."""


class Sharing(Protocol):
    """How a kind of its own shares out."""

    def admit(self, taker: GroupConsumer) -> None:
        """Before it joins. Raises ConsumerRefused: it may not."""

    def joined(self, taker: GroupConsumer) -> None:
        """It consumes from now on."""

    def left(self, taker: GroupConsumer) -> None:
        """It does not any more."""

    def share_out(self, budget: int) -> Pause:
        """Hand out at most so many messages; why it stopped."""

    def abandon(self, taker: GroupConsumer) -> None:
        """Nobody waits any more for what it has."""

    def void(self, former: Cursor) -> None:
        """The cursor is another."""

    def close(self) -> None:
        """The queue is deleted."""


class Group(Queue):
    """See the module."""

    __slots__ = ("_sharing",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sharing: Sharing | None = None
        self.become(self.kind)

    def become(self, kind: Kind) -> None:
        """Share out like this from now on; nobody consumes."""
        assert not self.consumer_count
        self.kind = kind
        self._sharing = None
        if kind is Kind.FAILOVER:
            self._sharing = Failover(self)
        elif kind is Kind.KEY_SHARED:
            self._sharing = KeyShared(self, sticky=self.arguments.get("x-sticky") is True)

    @property
    def takers(self) -> list[GroupConsumer]:
        """A list of its consumers."""
        return cast("list[GroupConsumer]", self.consumers)

    def attach(self, consumer: QueueConsumer, *, exclusive: bool = False) -> None:
        """As of `Queue`; `consumer` is a `GroupConsumer`. Raises ConsumerRefused, too, for taken slots."""
        if self._sharing is not None:
            self._sharing.admit(cast("GroupConsumer", consumer))
        super().attach(consumer, exclusive=exclusive)
        if self._sharing is not None:
            self._sharing.joined(cast("GroupConsumer", consumer))

    def detach(self, consumer: QueueConsumer, *, requeue: bool = False) -> None:
        """As of `Queue`. Messages that it keeps, and settles later, hold up their keys; see `abandon`."""
        there = self.consumer_count
        super().detach(consumer, requeue=requeue)
        if self._sharing is not None and not self.deleted and self.consumer_count < there:
            self._sharing.left(cast("GroupConsumer", consumer))

    def abandon(self, taker: GroupConsumer) -> None:
        """The messages that it has, and may keep for long, hold up nobody any more."""
        if self._sharing is not None:
            self._sharing.abandon(taker)

    def put_in_front(self, taker: GroupConsumer) -> None:
        """It gets everything first."""
        self.consumer_set.active = taker

    def share_out(self, budget: int) -> Pause:
        assert self._sharing is not None
        return self._sharing.share_out(budget)

    def delete(self) -> tuple[int, int]:
        """As of `Queue`."""
        if self._sharing is not None:
            self._sharing.close()
        return super().delete()
