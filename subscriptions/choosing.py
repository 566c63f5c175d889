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

__all__ = ["SLOTS", "Range", "active_of", "check_ranges", "points_of"]

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


def active_of(candidates: Sequence[tuple[int, str]], topic: str) -> int:
    """Which of the consumers, given as (priority, name), is the active one of a failover subscription.

    Among those of the highest priority, the one whose point follows the topic's: so the active consumers of
    many topics are spread over all of them. `candidates` is not empty.
    """
    most = max(priority for priority, _ in candidates)
    ring = sorted(
        (point, name, at)
        for at, (priority, name) in enumerate(candidates)
        if priority == most
        for point in points_of(name)
    )
    start = points_of(topic)[0]
    found = bisect.bisect_left(ring, (start,))
    return ring[found % len(ring)][2]


def check_ranges(mine: Sequence[Range], others: Sequence[Range], subscription: str) -> None:
    """Whether a sticky consumer may have these ranges.

    Raises:
        ConsumerRefused: none at all, no range, or one that another consumer has.

    """
    taken = sorted(others)
    for first, last in mine:
        if not 0 <= first <= last < SLOTS:
            raise ConsumerRefused(
                f"{first} to {last} is no range of slots of subscription {subscription!r}",
                remedy=f"slots are from 0 to {SLOTS - 1}",
            )
        for other_first, other_last in taken:
            if first <= other_last and other_first <= last:
                raise ConsumerRefused(
                    f"slots {first} to {last} of subscription {subscription!r} overlap with those of another "
                    f"consumer, {other_first} to {other_last}",
                    remedy="take other slots",
                )
        taken.append((first, last))
    if not mine:
        raise ConsumerRefused(f"a sticky consumer of {subscription!r} has no slots", remedy="name ranges")
