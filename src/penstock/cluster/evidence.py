"""Whether the process of the owner has ended, by what its machine says: without I/O, and without a clock.

The kernel of a machine closes the connections of a process that ended, and refuses new ones. So a standby
knows that the process is gone, not slow or frozen, when all of this holds:

1. It had a connection to the owner, which told the very claim that the standby follows, for a while.
2. That connection ended.
3. Since then each try to connect again was refused, several times, for `GRACE_S`.

A machine that answers nothing, or a node that accepts and says nothing, is no evidence. A device between the
nodes may refuse in the place of the owner. Therefore the standby also wants the partition to be silent for
longer than is usual (`Rhythm`), and the owner sends a sign of life when it loses such a connection. A way
that was never there, or not for `HELD_S`, is not believed: it could end again and again.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final

__all__ = ["GRACE_S", "HELD_S", "IDLE_S", "REFUSALS_MIN", "Evidence", "Rhythm"]

GRACE_S: Final = 0.1
IDLE_S: Final = 0.75
"""An owner without other entries gives a sign of life each 0.5 s."""
HELD_S: Final = 5.0
REFUSALS_MIN: Final = 4


class Evidence:
    """About the owner of one claim. Moments are in seconds on any clock that only goes on."""

    def __init__(self, claim: int) -> None:
        """`claim`: offset of the owner's CLAIM."""
        self.claim: Final = claim
        self.lost = False
        """A connection that was believed has ended, and there is no new one."""
        self._held_since: float | None = None
        self._refusals = 0
        self._refused_first = self._refused_last = 0.0

    def reached(self, claim: int, now: float) -> None:
        """Somebody accepted a connection, and told the offset of a CLAIM."""
        self.lost = False
        self._refusals = 0
        self._held_since = now if claim == self.claim else None

    def ended(self, now: float) -> None:
        """That connection ended."""
        self.lost = self._held_since is not None and now - self._held_since >= HELD_S
        self._held_since = None
        self._refusals = 0

    def refused(self, now: float) -> None:
        """A new connection was refused."""
        if not self._refusals:
            self._refused_first = now
        self._refused_last = now
        self._refusals += 1

    def unclear(self) -> None:
        """A new connection met no answer, another error, or a silent end."""
        self._refusals = 0

    @property
    def is_gone(self) -> bool:
        """Whether the process of the owner has ended."""
        refused_s = self._refused_last - self._refused_first
        return self.lost and self._refusals >= REFUSALS_MIN and refused_s >= GRACE_S


class Rhythm:
    """How long an owner that lives is silent as a rule, by the pauses between readings that had entries."""

    _PAUSES: Final = 9
    _UNUSUAL: Final = 1.5
    """Of so many times the median."""

    def __init__(self, now: float) -> None:
        self._heard_at = now
        self._pauses: deque[float] = deque(maxlen=self._PAUSES)

    def heard(self, now: float) -> None:
        """An entry of the owner was read."""
        self._pauses.append(now - self._heard_at)
        self._heard_at = now

    @property
    def unusual_s(self) -> float:
        """A silence of so many seconds says something."""
        if len(self._pauses) < self._PAUSES:
            return IDLE_S
        return min(max(GRACE_S, self._UNUSUAL * median(self._pauses)), IDLE_S)

    def is_broken(self, now: float) -> bool:
        """Whether the owner is silent for longer than is usual."""
        return now - self._heard_at >= self.unusual_s
