"""A group shared by key: a key's messages go to one consumer, and to no other while it has some of them.

*auto*: the ring of the points of the consumers' names (`choosing`). *sticky*: each consumer says which slots
it wants; overlaps are refused, and what nobody wants waits. `_keys.pyx` has who holds what, what is parked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.subscriptions._keys import KeyShares
from penstock.subscriptions.choosing import check_ranges, points_of
from penstock.subscriptions.dispatch import TAKE_MAX, Pause

if TYPE_CHECKING:
    from penstock.subscriptions._cursor import Cursor
    from penstock.subscriptions.group import Group, Taker

__all__ = ["PARKED_MAX", "KeyShared"]

PARKED_MAX: Final = 10_000
"""Messages that wait for their key at most; then nothing more is taken until some can be given."""


class KeyShared:
    """See the module."""

    def __init__(self, group: Group, *, sticky: bool) -> None:
        self._group = group
        self._sticky = sticky
        self._keys: KeyShares | None = None
        """None: nobody consumes; it is half a MiB."""
        self._numbers: dict[Taker, int] = {}
        """From 1; a consumer keeps its own."""
        self._owns = False
        """Who owns which slot is known for those that consume now."""

    def admit(self, taker: Taker) -> None:
        """Before it joins. Raises ConsumerRefused: its slots are another's."""
        if self._sticky:
            others = [one for other in self._numbers for one in other.ranges]
            check_ranges(taker.ranges, others, self._group.name)

    def changed(self) -> None:
        """Consumers came or went."""
        takers, cursor = self._group.takers, self._group.cursor
        if self._keys is None:
            if not takers:
                return
            self._keys = KeyShares(self._group.wake)
            self._keys.watch(cursor)
        there = set(takers)
        for taker, number in list(self._numbers.items()):
            if taker not in there:
                self._keys.gone(number)
                del self._numbers[taker]
        if not takers:
            self._keys.release_all(cursor)
            if not self._keys.held_count:
                self._keys.forget(cursor)
                self._keys = None
            return
        free = iter(sorted(set(range(1, len(takers) + len(self._numbers) + 1)) - set(self._numbers.values())))
        for taker in takers:
            if taker not in self._numbers:
                self._numbers[taker] = next(free)
        self._owns = False

    def _choose_owners(self, keys: KeyShares) -> None:
        """Once for all that came and went since the last turn."""
        takers = self._group.takers
        if self._sticky:
            keys.set_owners(
                [(first, last, self._numbers[one]) for one in takers for first, last in one.ranges]
            )
        else:
            # By name, so that it does not matter who came first; that sorting keeps the order of equal ones.
            named = sorted(takers, key=lambda one: one.name)
            keys.set_ring([(points_of(one.name), self._numbers[one]) for one in named])
        self._owns = True

    def abandon(self, taker: Taker) -> None:
        """What it has holds up nobody."""
        if self._keys is not None and taker in self._numbers:
            self._keys.unhold_all(self._group.cursor, self._numbers[taker])

    def share_out(self, budget: int) -> Pause:
        """What each may have, as far as its credit goes."""
        cursor, keys = self._group.cursor, self._keys
        assert keys is not None  # somebody consumes
        if not self._owns:
            self._choose_owners(keys)
        while budget > 0:
            by_number = {number: taker for taker, number in self._numbers.items()}
            credits = [0] * max(by_number, default=0)
            for number, taker in by_number.items():
                credits[number - 1] = max(taker.credit(), 0)
            if not any(credits):
                return Pause.NO_CREDIT
            released = keys.release(cursor, credits)
            wanted = min(budget, TAKE_MAX, released + PARKED_MAX - keys.parked_count)
            if wanted <= 0:
                return Pause.NO_CREDIT
            n = cursor.take(wanted)
            if n == 0:
                return self._caught_up(keys)
            reads = next(iter(by_number.values()))
            first = 0
            for number, count in keys.assign(cursor, reads.slots(cursor), credits):
                if not self._give(keys, by_number[number], first, count):
                    return Pause.MORE
                first += count
            if n < wanted:
                return self._caught_up(keys)
            budget -= n
        return Pause.MORE

    def _caught_up(self, keys: KeyShares) -> Pause:
        if keys.parked_count:
            # Asked again, so that one whose credit is used up knows that it is waited for.
            for taker in self._numbers:
                taker.credit()
        return Pause.CAUGHT_UP

    def _give(self, keys: KeyShares, taker: Taker, first: int, count: int) -> bool:
        """Let it encode its share; False: it failed, and what was left of the take went back."""
        group = self._group
        try:
            took = keys.give(group.cursor, taker, first, count)
        except Exception:
            group.outlet_failed(taker, first, 1)
            return False
        group.delivered += took
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
