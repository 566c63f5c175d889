"""A named subscription to a stream: its messages are taken and settled, and the stream keeps them.

Its kind says which consumer gets a message: exclusive and shared work as for other queues, failover and
key-shared as a `Group`.

A paused subscription hands out nothing until it is resumed. A durable one stays paused over a restart, by
a row in the table `paused` (key = its number, 8 bytes big-endian).

It is a queue whose only membership is the stream's feed, from a position on. Unlike other queues it can go
back: `seek` begins anew with a fresh cursor, and earlier deliveries are invalid. Messages that the
stream's retention drops are gone for its subscriptions, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.queue.group import Group
from penstock.subscriptions.queue.limits import NO_RULES, Rules

if TYPE_CHECKING:
    from penstock.subscriptions.streams.stream import Stream

__all__ = ["Subscription"]


PAUSED: Final = "paused"


class Subscription(Group):
    """See the module. Made by `Queues`, then `begin` or `resume`."""

    __slots__ = ("_rules", "head_time", "paused", "stream")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.stream: Stream
        self._rules = NO_RULES
        self.paused = False
        """It hands out nothing."""
        self.head_time = 0, 0
        """A position that was its head, and when that was published, ms since the epoch; see `heads`."""

    def begin(self, stream: Stream, position: int) -> int:
        """Take what `stream` has from `position` on (1: all that is kept); the LSN to wait for."""
        self.stream = stream
        return self.join(stream.feed, position)

    def resume(self, stream: Stream) -> None:
        """The subscription of the last run; without a record of its cursor it begins with what comes."""
        self.stream = stream
        if not self.cursor.member_count:
            self.join(stream.feed)
        self.paused = self.log.tables.get(PAUSED, self._key()) is not None

    def apply(self, rules: Rules) -> None:
        self._rules = rules
        super().apply(rules)

    def seek(self, position: int) -> int:
        """Go on with `position`, forwards or backwards; the LSN to wait for, 0 when it is not durable.

        A message that is out is void: acknowledging it does nothing.
        """
        former, rules = self.cursor, self._rules
        self._unwatch()
        super().apply(NO_RULES)
        fresh = Cursor(self.log)
        fresh.succeed(former)
        fresh.join(self.stream.feed, position)
        self.cursor = fresh
        super().apply(rules)
        if self._sharing is not None:
            self._sharing.void(former)
        for taker in self.takers:
            taker.void()
        self.credit_gained()
        return self.persist()

    def pause(self) -> int:
        """Hand out nothing from now on; the LSN to wait for, 0 when it is not durable, or was paused."""
        if self.paused:
            return 0
        self.paused = True
        return self.log.tables.put(PAUSED, self._key(), b"") if self.durable else 0

    def go_on(self) -> int:
        """The end of a pause; the LSN to wait for."""
        if not self.paused:
            return 0
        self.paused = False
        self.wake()
        return self._forget_pause()

    def pump(self) -> None:
        """As of `Queue`, unless it is paused."""
        if self.paused:
            self.cursor.scheduled = False
        else:
            super().pump()

    def _forget_pause(self) -> int:
        key = self._key()
        return 0 if self.log.tables.get(PAUSED, key) is None else self.log.tables.delete(PAUSED, key)

    def _key(self) -> bytes:
        return self.qid.to_bytes(8, "big")

    def delete(self) -> tuple[int, int]:
        """End it; as `Queue.delete`."""
        lsn = self._forget_pause()
        n, deleted = super().delete()
        return n, max(lsn, deleted)

    @property
    def lag(self) -> int:
        """Messages of the stream that are not settled here."""
        return self.cursor.ready_count() + self.cursor.outstanding
