"""Pure choices among the consumers of a subscription, the same after a restart.

Each consumer has 100 points on a ring (consistent hashing). When one joins or leaves, only its share
changes owners. Points are hashes of names, so the order of joining does not matter.
"""

from __future__ import annotations

import bisect
import hashlib
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from penstock.subscriptions.errors import ConsumerRefused

if TYPE_CHECKING:
    from penstock.subscriptions.cursor._keys import KeyShares

__all__ = ["SLOTS", "Range", "Ring", "check_ranges", "points_of", "rank_of"]

SLOTS: Final = 65_536
_POINTS: Final = 100

Range = tuple[int, int]
"""First and last slot."""


@lru_cache(maxsize=4096)
def points_of(name: str) -> array[int]:
    """Where a consumer's points are, u16; who gets which slots by them says `KeyShares.set_point`."""
    data = name.encode("utf-8", "surrogateescape")
    return array(
        "H",
        [
            int.from_bytes(hashlib.blake2b(data, digest_size=2, salt=i.to_bytes(2, "big")).digest(), "big")
            for i in range(_POINTS)
        ],
    )


class Ring:
    """The consumer of each slot, by the consumers' points. One that comes or goes moves its own points only.

    Where several have the same point, it is the one's with the least name, of equal ones who came first.
    """

    def __init__(self, keys: KeyShares) -> None:
        self._keys = keys
        self._rows: dict[int, list[tuple[str, int, int]]] = {}
        """Of each point whose it is: name, who came first, number; ascending."""
        self._came: dict[int, int] = {}
        """By number."""
        self._count = 0

    def add(self, name: str, number: int) -> None:
        """A consumer comes."""
        self._count += 1
        self._came[number] = self._count
        one = name, self._count, number
        for point in {*points_of(name)}:
            row = self._rows.setdefault(point, [])
            bisect.insort(row, one)
            if row[0] is one:
                self._keys.set_point(point, number)

    def remove(self, name: str, number: int) -> None:
        """It goes."""
        one = name, self._came.pop(number), number
        for point in {*points_of(name)}:
            row = self._rows[point]
            at = bisect.bisect_left(row, one)
            del row[at]
            if not row:
                del self._rows[point]
                self._keys.clear_point(point)
            elif at == 0:
                self._keys.set_point(point, row[0][2])


def rank_of(consumer: str, topic: str) -> tuple[int, str]:
    """Where a consumer stands on a failover subscription's ring: the least is active, the first of equals.

    That is the one whose point follows the topic's: so the active consumers of many topics are spread over
    all of them.
    """
    start = points_of(topic)[0]
    return min((point - start) % SLOTS for point in points_of(consumer)), consumer


def check_ranges(mine: Sequence[Range], others: Sequence[Range], subscription: str) -> None:
    """Whether a sticky consumer may have these ranges, and `others`, which ascend, stay.

    Raises:
        ConsumerRefused: none at all, no range, or one that another consumer has.

    """
    checked: list[Range] = []
    for first, last in mine:
        if not 0 <= first <= last < SLOTS:
            raise ConsumerRefused(
                f"{first} to {last} is no range of slots of subscription {subscription!r}",
                remedy=f"slots are from 0 to {SLOTS - 1}",
            )
        for ranges in (others, checked):
            # The one that begins last of those that do not begin behind it.
            at = bisect.bisect_right(ranges, (last, SLOTS))
            if not at or ranges[at - 1][1] < first:
                continue
            other_first, other_last = ranges[at - 1]
            raise ConsumerRefused(
                f"slots {first} to {last} of subscription {subscription!r} overlap with those of another "
                f"consumer, {other_first} to {other_last}",
                remedy="take other slots",
            )
        bisect.insort(checked, (first, last))
    if not mine:
        raise ConsumerRefused(f"a sticky consumer of {subscription!r} has no slots", remedy="name ranges")
