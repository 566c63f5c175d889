"""A key-shared subscription: a key's messages go to one consumer, and to no other while it has some of them.

*auto*: the ring of `choosing.shares_of` over the consumers' names. *sticky*: each consumer says which slots
it wants; overlaps are refused, and what nobody wants waits. `_keys.pyx` has who holds what, what is parked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.subscriptions._keys import KeyShares
from penstock.subscriptions.choosing import check_ranges, shares_of
from penstock.subscriptions.dispatch import TAKE_MAX, Pause

if TYPE_CHECKING:
    from penstock.subscriptions.subscription import Subscription, Taker

__all__ = ["PARKED_MAX", "KeyShared"]

PARKED_MAX: Final = 10_000
"""Messages that wait for their key at most; then nothing more is taken until some can be given."""


class KeyShared:
    """See the module."""

    def __init__(self, subscription: Subscription, *, sticky: bool) -> None:
        self._subscription = subscription
        self._sticky = sticky
        self.keys = KeyShares(subscription.wake)
        self._numbers: dict[Taker, int] = {}
        """From 1; a consumer keeps its own."""

    def admit(self, taker: Taker) -> None:
        """Before it joins. Raises ConsumerRefused: its slots are another's."""
        if self._sticky:
            others = [one for other in self._numbers for one in other.ranges]
            check_ranges(taker.ranges, others, self._subscription.name)

    def changed(self) -> None:
        """Consumers came or went."""
        takers = self._subscription.takers
        self._numbers = {one: number for one, number in self._numbers.items() if one in takers}
        free = iter(sorted(set(range(1, len(takers) + len(self._numbers) + 1)) - set(self._numbers.values())))
        for taker in takers:
            if taker not in self._numbers:
                self._numbers[taker] = next(free)
            taker.keys = self.keys
        if not takers:
            self.keys.release_all(self._subscription.cursor)
            return
        if self._sticky:
            owned = [(first, last, self._numbers[one]) for one in takers for first, last in one.ranges]
        else:
            shares = shares_of([one.name for one in takers])
            owned = [(first, last, self._numbers[takers[at - 1]]) for first, last, at in shares]
        self.keys.set_owners(owned)
        self._subscription.wake()

    def share_out(self, budget: int) -> Pause:
        """What each may have, as far as its credit goes."""
        cursor, keys = self._subscription.cursor, self.keys
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
                return self._caught_up()
            reads = next(iter(by_number.values()))
            first = 0
            for number, count in keys.assign(cursor, reads.slots(cursor), credits):
                if not self._give(by_number[number], first, count):
                    return Pause.MORE
                first += count
            if n < wanted:
                return self._caught_up()
            budget -= n
        return Pause.MORE

    def _caught_up(self) -> Pause:
        if self.keys.parked_count:
            # Asked again, so that one whose credit is used up knows that it is waited for.
            for taker in self._numbers:
                taker.credit()
        return Pause.CAUGHT_UP

    def _give(self, taker: Taker, first: int, count: int) -> bool:
        """Let it encode its group; False: it failed, and what was left of the take went back."""
        subscription, cursor, keys = self._subscription, self._subscription.cursor, self.keys
        slots = taker.slots(cursor)
        try:
            took = keys.give(cursor, taker, first, count)
        except Exception:
            keys.ungiven(slots, first, cursor.taken - first)
            subscription.outlet_failed(taker, first, 1)
            return False
        subscription.delivered += took
        if took < count:
            keys.ungiven(slots, first + took, count - took)
        return True

    def void(self) -> None:
        """The subscription goes on elsewhere."""
        self.keys.forget()

    def close(self) -> None:
        """It is deleted."""
