"""Traffic retention: how much of the published traffic is kept for replay, for each partition of the log.

A partition is a vhost. A segment holds records of many. The traffic of each is kept as far back as its own
limits say. So a segment is

    kept whole          while every partition with records in it wants them
    thinned             when some do not: rewritten without their records, except needed ones
    beyond retention    when none does: rewritten with needed records alone, or deleted

When the disk runs short, the oldest traffic is given up (`given_up`), whatever its limits, because
publishers need the room. Needed records stay.

The position from which a partition's traffic is complete is computed from the segments each time. The only
stored fact is which partitions a rewritten segment was thinned of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.lazy_dataclass import dataclass
from penstock.log_core.segments.segment import EVERYBODY, OWN, Segment

__all__ = ["Kept", "Retention", "given_up", "kept"]


@dataclass(frozen=True, slots=True)
class Retention:
    """Of the traffic of one partition; what is within both limits is kept."""

    keep_bytes: int
    """Of the youngest closed segments: bytes of the partition's records. 0 = none."""
    keep_s: float
    """Seconds since the youngest record of the segment."""


@dataclass(frozen=True, slots=True)
class Kept:
    """From where on traffic is whole."""

    default: int
    """For partitions that are not in `first`: the base LSN of the active segment, which is always kept."""
    first: dict[int, int]
    """The base LSN of the oldest segment with wanted traffic, by partition."""
    leased: int
    """Readers from outside want everything that ends behind this LSN as it is (`leases`)."""

    def first_of(self, lp: int) -> int:
        """The LSN from which on all traffic of a partition is there."""
        return self.first.get(lp, self.default)

    @property
    def lowest(self) -> int:
        """Everything below it is beyond retention."""
        return min(self.leased, min(self.first.values(), default=self.default))

    def unwanted(self, segment: Segment) -> frozenset[int]:
        """The partitions with bytes in a closed segment whose traffic in it is not wanted."""
        assert segment.held is not None
        return frozenset(
            lp
            for lp, nbytes in segment.held.items()
            if nbytes
            and segment.next_lsn <= min(self.leased, self.lowest if lp == OWN else self.first_of(lp))
        )


def given_up(live: Sequence[Segment], short_bytes: int) -> int:
    """The LSN below which traffic gives way to a disk that lacks so many bytes.

    The rest of a segment that is thinned of all traffic is needed, and does not count.
    """
    below = live[0].base_lsn
    for segment in live[:-1]:
        if short_bytes <= 0:
            break
        below = segment.next_lsn
        if EVERYBODY not in segment.thinned and not (segment.held or {}).keys() <= segment.thinned | {OWN}:
            short_bytes -= segment.end
    return below


def kept(
    live: Sequence[Segment],
    now_ms: int,
    retention_of: Callable[[int], Retention],
    leased: int,
    given_up: int = 0,
) -> Kept:
    """The segments of these that retention wants, the last one active; `leased`: see `Kept`;
    `given_up`: an LSN, no traffic of segments below it.

    While it is not known whose bytes are in one of them, everything is wanted.
    """
    if any(segment.held is None for segment in live):
        return Kept(live[0].base_lsn, {}, leased)
    first: dict[int, int] = {}
    totals: dict[int, int] = {}
    over: set[int] = {OWN}
    for segment in reversed(live[:-1]):
        over |= segment.thinned
        if EVERYBODY in over or segment.next_lsn <= given_up:
            break
        assert segment.held is not None
        for lp, nbytes in segment.held.items():
            if lp in over or not nbytes:
                continue
            retention = retention_of(lp)
            totals[lp] = totals.get(lp, 0) + nbytes
            if totals[lp] > retention.keep_bytes or now_ms - segment.max_ts > retention.keep_s * 1000:
                over.add(lp)
            else:
                first[lp] = segment.base_lsn
    return Kept(live[-1].base_lsn, first, leased)
