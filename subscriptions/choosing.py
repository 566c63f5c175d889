"""Who gets what among the consumers of a subscription: pure choices, the same after a restart.

A ring of 100 points per consumer (consistent hashing): when one joins or leaves, only what falls to it, or
was its, changes owners. Points are hashes of names, so nobody has to agree on an order.
"""

from __future__ import annotations

import bisect
import hashlib
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from penstock.subscriptions.errors import ConsumerRefused

__all__ = ["SLOTS", "Range", "check_ranges", "place_of", "points_of"]

SLOTS: Final = 65_536
_POINTS: Final = 100

Range = tuple[int, int]
"""First and last slot."""


@lru_cache(maxsize=4096)
def points_of(name: str) -> array[int]:
    """Where a consumer's points are, u16; who gets which slots by them says `KeyShares.set_ring`."""
    data = name.encode("utf-8", "surrogateescape")
    return array(
        "H",
        [
            int.from_bytes(hashlib.blake2b(data, digest_size=2, salt=i.to_bytes(2, "big")).digest(), "big")
            for i in range(_POINTS)
        ],
    )


def place_of(consumer: str, topic: str) -> tuple[int, str]:
    """Where a consumer stands on a failover subscription's ring: the least is active, the first of equals.

    That is the one whose point follows the topic's: so the active consumers of many topics are spread over
    all of them.
    """
    start = points_of(topic)[0]
    return min((point - start) % SLOTS for point in points_of(consumer)), consumer


def check_ranges(mine: Sequence[Range], others: Sequence[Range], subscription: str) -> None:
    """Whether a sticky consumer may have these ranges.

    Raises:
        ConsumerRefused: none at all, no range, or one that another consumer has.

    """
    taken = sorted(others)  # they do not overlap
    for first, last in mine:
        if not 0 <= first <= last < SLOTS:
            raise ConsumerRefused(
                f"{first} to {last} is no range of slots of subscription {subscription!r}",
                remedy=f"slots are from 0 to {SLOTS - 1}",
            )
        # The one that begins last of those that do not begin behind it.
        at = bisect.bisect_right(taken, (last, SLOTS))
        if at and taken[at - 1][1] >= first:
            other_first, other_last = taken[at - 1]
            raise ConsumerRefused(
                f"slots {first} to {last} of subscription {subscription!r} overlap with those of another "
                f"consumer, {other_first} to {other_last}",
                remedy="take other slots",
            )
        taken.insert(at, (first, last))
    if not mine:
        raise ConsumerRefused(f"a sticky consumer of {subscription!r} has no slots", remedy="name ranges")
