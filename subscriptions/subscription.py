"""A named subscription to a stream: messages are taken from it and settled, and the stream keeps them.

Its kind says who gets what: exclusive and shared as other queues, failover and key-shared by modules of their
own.

A paused one hands out nothing to anybody until it is resumed; a durable one stays paused over a restart, by a
row in the table `paused` (key = its number, 8 bytes big-endian).

A queue whose only membership is the stream's feed, from a position on. Unlike other queues it can go back:
`seek` begins anew with a fresh cursor, and what was delivered before is void. What the stream's retention
drops is gone for its subscriptions, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from penstock.subscriptions._cursor import Cursor
from penstock.subscriptions.dispatch import Kind, Pause
from penstock.subscriptions.failover import Failover
from penstock.subscriptions.key_shared import KeyShared
from penstock.subscriptions.limits import NO_RULES, Rules
from penstock.subscriptions.outlet import Outlet
from penstock.subscriptions.queue import Queue

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.subscriptions._keys import KeyShares
    from penstock.subscriptions.choosing import Range
    from penstock.subscriptions.stream import Stream

__all__ = ["Subscription", "Taker"]


PAUSED: Final = "paused"


class Taker(Outlet, Protocol):
    """A consumer of a subscription."""

    name: str
    """Of the consumer, for choices among several; equal names are fine."""
    ranges: list[Range]
    """The slots it wants of a sticky subscription."""
    keys: KeyShares | None
    """Set by a key-shared subscription: to be told of what is settled."""

    def void(self) -> None:
        """What it holds is void: settling it does nothing."""

    def told(self, active: bool) -> None:
        """Whether it is the active one of a failover subscription."""

    def slots(self, cursor: Cursor) -> Buffer:
        """The slots (`_keys.slot`) of the keys of the items of the last take: u16 each."""


class Sharing(Protocol):
    """How a kind of its own shares out."""

    def changed(self) -> None:
        """Consumers came or went."""

    def share_out(self, budget: int) -> Pause:
        """Hand out at most so many messages; why it stopped."""

    def void(self) -> None:
        """The cursor is another."""

    def close(self) -> None:
        """The subscription is deleted."""


class Subscription(Queue):
    """See the module. Made by `Queues`, then `begin` or `resume`."""

    __slots__ = ("_rules", "_sharing", "paused", "stream")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.stream: Stream
        self._rules = NO_RULES
        self.paused = False
        """It hands out nothing."""
        self._sharing: Sharing | None = None
        if self.kind is Kind.FAILOVER:
            self._sharing = Failover(self)
        elif self.kind is Kind.KEY_SHARED:
            self._sharing = KeyShared(self, sticky=self.arguments.get("x-sticky") is True)

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

        What is out is void: acknowledging it does nothing.
        """
        former, rules = self.cursor, self._rules
        self._unwatch()
        super().apply(NO_RULES)
        former.queue = None
        former.is_kept = False
        fresh = Cursor(self.log)
        fresh.queue = self
        fresh.is_kept = self.durable
        fresh.scheduled = former.scheduled
        fresh.join(self.stream.feed, position)
        self.cursor = fresh
        super().apply(rules)
        if self._sharing is not None:
            self._sharing.void()
        for taker in self.takers:
            taker.void()
        self.wake()
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

    # Consumers

    @property
    def takers(self) -> list[Taker]:
        """Its consumers."""
        return cast("list[Taker]", self.outlets)

    def attach(self, outlet: Outlet, *, exclusive: bool = False) -> None:
        """As of `Queue`; `outlet` is a `Taker`. Raises ConsumerRefused, too, when its slots are another's."""
        if isinstance(self._sharing, KeyShared):
            self._sharing.admit(cast("Taker", outlet))
        super().attach(outlet, exclusive=exclusive)
        if self._sharing is not None:
            self._sharing.changed()

    def detach(self, outlet: Outlet, *, requeue: bool = False) -> None:
        """As of `Queue`; what it held was given back before."""
        super().detach(outlet, requeue=requeue)
        if self._sharing is not None and not self.deleted:
            self._sharing.changed()

    def put_in_front(self, taker: Taker) -> None:
        """It gets everything first."""
        outlets = self.outlets
        outlets.remove(taker)
        outlets.insert(0, taker)

    def share_out(self, budget: int) -> Pause:
        assert self._sharing is not None
        return self._sharing.share_out(budget)

    def delete(self) -> tuple[int, int]:
        """End it; as `Queue.delete`."""
        if self._sharing is not None:
            self._sharing.close()
        lsn = self._forget_pause()
        n, deleted = super().delete()
        return n, max(lsn, deleted)

    @property
    def lag(self) -> int:
        """Messages of the stream that are not settled here."""
        return self.cursor.ready_count() + self.cursor.outstanding
