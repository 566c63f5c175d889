"""Two things in turns, so short that other work on the machine is beside both; and how sure their ratio is.

A pair of slices is one without and one with what is compared, in an order that chance decides: the machine's
moods are then those of both. Quantiles are of all values of a side together.
Its interval is that of a bootstrap over pairs (Efron): pairs are drawn with replacement, as often as there
are pairs, and 95 of 100 such draws have a ratio within it. A bar is met if all of the interval is below it,
and missed if all is above; otherwise more pairs are needed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Interval", "in_turns", "quantile", "ratio"]

_DRAWS = 400
Pair = tuple[Sequence[float], Sequence[float]]
"""The values of a slice without and of one with what is compared."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio, and where 95 of 100 draws have it."""

    ratio: float
    low: float
    high: float

    def verdict(self, bar: float) -> str:
        """Whether it is at most `bar`."""
        if self.high <= bar:
            return "met"
        return "missed" if self.low > bar else "not sure: more rounds"


def in_turns(slices: int, run: Callable[[bool], Sequence[float]]) -> list[Pair]:
    """So many pairs of what `run` finds without and with it."""
    rng, pairs = random.Random(slices), []
    for _ in range(slices):
        found: dict[bool, Sequence[float]] = {}
        for with_it in rng.sample((False, True), 2):
            found[with_it] = run(with_it)
        pairs.append((found[False], found[True]))
    return pairs


def quantile(values: Sequence[float], of: float) -> float:
    """The value below which `of` (0 to 1) of them are."""
    return sorted(values)[min(int(of * len(values)), len(values) - 1)]


def ratio(pairs: Sequence[Pair], of: float) -> Interval:
    """With it, of without: of the quantiles `of` of all values."""
    sides = [_Side(pairs, side) for side in (0, 1)]

    def one(drawn: Sequence[int]) -> float:
        counts = [0] * len(pairs)
        for number in drawn:
            counts[number] += 1
        without, with_ = (side.quantile(counts, of) for side in sides)
        return with_ / without

    rng, all_ = random.Random(len(pairs)), range(len(pairs))
    draws = sorted(one(rng.choices(all_, k=len(pairs))) for _ in range(_DRAWS))
    return Interval(one(all_), draws[_DRAWS * 25 // 1000], draws[_DRAWS * 975 // 1000])


class _Side:
    """The values of one side, the largest first, each with the number of its pair."""

    def __init__(self, pairs: Sequence[Pair], side: int) -> None:
        self._sizes = [len(pair[side]) for pair in pairs]
        self._values = sorted(
            ((value, number) for number, pair in enumerate(pairs) for value in pair[side]), reverse=True
        )

    def quantile(self, counts: Sequence[int], of: float) -> float:
        """That of all values, if each pair is there as often as `counts` says: so no draw is sorted."""
        above = (1 - of) * sum(count * size for count, size in zip(counts, self._sizes, strict=True))
        for value, number in self._values:
            above -= counts[number]
            if above < 0:
                return value
        return self._values[-1][0]
