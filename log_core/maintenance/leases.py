"""Leases of external readers: the position from which each needs the log, and until when.

A reader renews its lease while it lives; otherwise the lease ends by itself. Leases hold back deletion and
rewriting, but only for the newest `lease_bytes` of closed segments. A reader that falls further behind
loses unread data and finds it missing. Leases are in memory. After a restart, data that retention does not
keep may go before a reader has renewed its lease. Used on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from penstock.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from penstock.log_core.segments.segment import Segment

__all__ = ["Lease", "Leases"]

_LEASES_MAX: Final = 1000
_NOBODY: Final = (1 << 64) - 1


@dataclass(slots=True)
class Lease:
    """One lease."""

    name: str
    user: str
    position: int
    """The LSN from which on the log is to be kept."""
    expires_at: float
    """Seconds, of the clock."""


class Leases:
    """See the module."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._leases: dict[str, Lease] = {}

    def acquire(self, name: str, user: str, position: int, ttl_s: float) -> bool:
        """Take or renew a lease for `ttl_s` seconds from now; False: there are 1,000 others."""
        self._expire()
        if name not in self._leases and len(self._leases) >= _LEASES_MAX:
            return False
        self._leases[name] = Lease(name, user, position, self._clock() + ttl_s)
        return True

    def release(self, name: str) -> bool:
        """Give one back; whether there was one."""
        return self._leases.pop(name, None) is not None

    def __iter__(self) -> Iterator[Lease]:
        self._expire()
        return iter(sorted(self._leases.values(), key=lambda lease: lease.name))

    def _expire(self) -> None:
        now = self._clock()
        for name in [name for name, lease in self._leases.items() if lease.expires_at <= now]:
            del self._leases[name]

    def kept_from(self, live: Sequence[Segment], lease_bytes: int) -> int:
        """An LSN: no segment that ends behind it may be deleted or rewritten; 2**64 - 1: all may."""
        self._expire()
        wanted = min((lease.position for lease in self._leases.values()), default=_NOBODY)
        if wanted == _NOBODY:
            return wanted
        total = 0
        for segment in reversed(live[:-1]):
            total += segment.end
            if total > lease_bytes:
                return max(wanted, segment.next_lsn)
            if segment.next_lsn <= wanted:
                break
        return wanted
