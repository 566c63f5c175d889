"""A group shared by key: the messages of a key go to one consumer, and to no other while it holds some of
them.

*auto*: the points of the consumers' names form a ring (`assignment`). *sticky*: each consumer says which
slots it wants. Overlaps are refused, and slots that nobody wants wait. The kernel `_keys` knows who holds
which key, and which messages are parked.
"""

from __future__ import annotations

import bisect
import heapq
from typing import TYPE_CHECKING, Final

from penstock.subscriptions.cursor._keys import KeyShares
from penstock.subscriptions.dispatch.assignment import Ring, check_ranges
from penstock.subscriptions.dispatch.strategies import TAKE_MAX, Pause
from penstock.subscriptions.errors import ConsumerRefused

if TYPE_CHECKING:
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.dispatch.assignment import Range
    from penstock.subscriptions.queue.group import Group, GroupConsumer

__all__ = ["PARKED_MAX", "KeyShared"]

PARKED_MAX: Final = 10_000
"""Messages that wait for their key at most; then nothing more is taken until some can be given."""
CONSUMERS_MAX: Final = 60_000
"""Their numbers are of 16 bits."""


class KeyShared:
    """See the module."""

    def __init__(self, group: Group, *, sticky: bool) -> None:
        self._group = group
        self._sticky = sticky
        self._keys: KeyShares | None = None
        """None: nobody consumes; it is half a MiB."""
        self._numbers: dict[GroupConsumer, int] = {}
        """From 1; a consumer keeps its own."""
        self._takers: list[GroupConsumer | None] = [None]
        """By number."""
        self._free: list[int] = []
        """A heap of the numbers that are nobody's."""
        self._ring: Ring | None = None
        self._ranges: list[Range] = []
        """All that are taken, ascending."""
        self._leaving: set[int] = set()
        """The numbers of those that left since it was shared out last."""
        self._abandoned: set[int] = set()
        """Of these, those that what they have holds up nobody."""

    def admit(self, taker: GroupConsumer) -> None:
        """Before it joins. Raises ConsumerRefused: its slots are another's, or there are too many."""
        if self._sticky:
            check_ranges(taker.ranges, self._ranges, self._group.name)
        if len(self._numbers) + len(self._leaving) >= CONSUMERS_MAX:
            raise ConsumerRefused(
                f"{CONSUMERS_MAX} consumers share {self._group.name!r} by key, as many as there may be",
                remedy="use fewer, or a shared subscription",
            )

    def joined(self, taker: GroupConsumer) -> None:
        """It consumes from now on."""
        if self._keys is None:
            self._keys = KeyShares(self._group.wake)
            self._keys.watch(self._group.cursor)
        if self._free:
            number = heapq.heappop(self._free)
            self._takers[number] = taker
        else:
            number = len(self._takers)
            self._takers.append(taker)
        self._numbers[taker] = number
        if self._sticky:
            for first, last in taker.ranges:
                bisect.insort(self._ranges, (first, last))
                self._keys.own(first, last, number)
        else:
            if self._ring is None:
                self._ring = Ring(self._keys)
            self._ring.add(taker.name, number)

    def left(self, taker: GroupConsumer) -> None:
        """It does not any more."""
        assert self._keys is not None
        number = self._numbers.pop(taker)
        self._takers[number] = None
        self._leaving.add(number)
        if self._sticky:
            for first, last in taker.ranges:
                del self._ranges[bisect.bisect_left(self._ranges, (first, last))]
                self._keys.own(first, last, 0)
        else:
            assert self._ring is not None
            self._ring.remove(taker.name, number)
        if not self._numbers:
            self._end()

    def _end(self) -> None:
        """The last one left."""
        keys, cursor = self._keys, self._group.cursor
        assert keys is not None
        self._let_go(keys)
        keys.release_all(cursor)
        if not keys.held_count:
            keys.forget(cursor)
            self._keys = self._ring = None
            self._takers, self._free = [None], []

    def _let_go(self, keys: KeyShares) -> None:
        """Once for all that left since the last turn."""
        if self._abandoned:
            keys.unhold_all(self._group.cursor, self._abandoned)
            self._abandoned = set()
        if self._leaving:
            keys.gone(self._leaving)
            for number in self._leaving:
                heapq.heappush(self._free, number)
            self._leaving = set()

    def abandon(self, taker: GroupConsumer) -> None:
        """The messages that it has hold up nobody."""
        number = self._numbers.get(taker)
        if number is not None:
            self._abandoned.add(number)
            self._group.wake()

    def share_out(self, budget: int) -> Pause:
        """The messages that each may have, as far as its credit goes."""
        cursor, keys = self._group.cursor, self._keys
        assert keys is not None  # somebody consumes
        self._let_go(keys)
        while budget > 0:
            if not self._group.consumer_set.anybody():
                return Pause.NO_CREDIT
            released = keys.release(cursor, self._takers)
            wanted = min(budget, TAKE_MAX, released + PARKED_MAX - keys.parked_count)
            if wanted <= 0:
                return Pause.NO_CREDIT
            n = cursor.take(wanted)
            if n == 0:
                return self._caught_up(keys)
            reads = next(iter(self._numbers))
            first = 0
            for number, count in keys.assign(cursor, reads.slots(cursor), self._takers):
                taker = self._takers[number]
                assert taker is not None
                if not self._give(keys, taker, first, count):
                    return Pause.MORE
                first += count
            if n < wanted:
                return self._caught_up(keys)
            budget -= n
        return Pause.MORE

    def _caught_up(self, keys: KeyShares) -> Pause:
        if keys.parked_count:
            # Asked again, so that one whose credit is used up knows that it is waited for.
            for number in keys.parked_for():
                taker = self._takers[number]
                if taker is not None:
                    taker.credit()
        return Pause.CAUGHT_UP

    def _give(self, keys: KeyShares, taker: GroupConsumer, first: int, count: int) -> bool:
        """Let it encode its share; False: it failed, and what was left of the take went back."""
        group = self._group
        settled = group.cursor.settled
        try:
            took = keys.give(group.cursor, taker, first, count)
        except Exception:
            group.consumer_failed(taker, first, 1)
            return False
        group.delivered += took
        group.unasked += group.cursor.settled - settled
        if took < count:
            # Asked again, so that one whose output filled up on the way knows that it is waited for.
            taker.credit()
        return True

    def void(self, former: Cursor) -> None:
        """The group goes on elsewhere."""
        if self._keys is not None:
            self._keys.forget(former)
            self._keys.watch(self._group.cursor)

    def close(self) -> None:
        """It is deleted."""
        if self._keys is not None:
            self._keys.forget(self._group.cursor)
            self._keys = None
