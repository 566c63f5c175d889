"""Due delayed records that the disk could not deliver: they wait aside and are tried again.

Records in one bad place do not hold up others. All waiting records are tried together after 1 s, 2 s and
so on, up to a minute. Each failure is one log line, whatever their number. Each record has a row in the
log, put by `Delays.done`, so that a restart knows it although later records were published. With
`UNREAD_MAX` and more of them, all other delayed records wait, too: a disk that answers nothing costs
little memory.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.log_core.delayed._delays import DueHeap

__all__ = ["UNREAD_MAX", "DelayedRetries"]

_LOG: Final = logging.getLogger("penstock.log")
UNREAD_MAX: Final = 10_000
"""Records aside, about; each takes 32 bytes here and its row."""
_FIRST_S: Final = 1
_LONGEST_S: Final = 60


class DelayedRetries:
    """Owned by one `Delays`. Times are the machine's, ms since the epoch."""

    def __init__(self) -> None:
        self.heap = DueHeap()
        """The entries of those that wait to be tried again."""
        self._places: set[int] = set()
        """Theirs, and of those that are being tried."""
        self._wait_s = _FIRST_S
        self._since = self._again = 0

    def __len__(self) -> int:
        """Records that were put aside and have not come yet."""
        return len(self._places)

    @property
    def full(self) -> bool:
        """Whether nothing else is to be read before these are tried again."""
        return len(self.heap) >= UNREAD_MAX

    @property
    def again(self) -> int | None:
        """When to try them again; None: there are none."""
        return self._again if len(self.heap) else None

    def add(self, due: int, place: int, lsn: int, size: int, now_ms: int) -> None:
        """A record could not be read now."""
        self._places.add(place)
        if now_ms >= self._again or now_ms < self._since:
            _LOG.error(
                "a delayed record at LSN %d cannot be read now: it stays, and is tried again in %d s, "
                "with all like it; look after the disk",
                lsn,
                self._wait_s,
            )
            self._since, self._again = now_ms, now_ms + 1000 * self._wait_s
            self._wait_s = min(2 * self._wait_s, _LONGEST_S)
        self.heap.push(due, place, lsn, size)

    def take(self, now_ms: int) -> bytes:
        """The entries that are to be tried now; nothing before their time, unless the clock was set back."""
        if not len(self.heap) or self._since <= now_ms < self._again:
            return b""
        raw, self.heap = self.heap.encode(), DueHeap()
        return raw

    def came(self, place: int) -> None:
        """A record was read, or will not be."""
        if place in self._places:
            self._places.discard(place)
            if not self._places:
                _LOG.warning("the delayed records that could not be read came")
                self._wait_s, self._again = _FIRST_S, 0
