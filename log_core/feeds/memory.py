"""The memory budget of feeds: how many entries of closed segments stay in memory.

Entries of the active segment always stay. Entries of a closed segment may leave when its feed index is
durable. The oldest segments go first, a slice of feeds at a time; then reloaded entries, oldest first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.log_core.feeds._feed import Feed

if TYPE_CHECKING:
    from penstock.log_core.segments.segment import Segment

__all__ = ["FeedMemory"]

_SLICE: Final = 4096


class FeedMemory:
    """Loop thread only."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._segments: deque[Segment] = deque()
        self._at = 0  # the next feed of the first segment to spill
        self._reloaded: deque[tuple[Feed, int, int]] = deque()
        self.resident = 0
        """Bytes of entries of closed segments."""

    def closed(self, segment: Segment, nbytes: int) -> None:
        """A segment's index is durable; its feeds have `nbytes` of entries in memory."""
        self._segments.append(segment)
        self.resident += nbytes

    def reloaded(self, feed: Feed, base: int, nbytes: int) -> None:
        """A chunk came back to memory."""
        if nbytes:
            self._reloaded.append((feed, base, nbytes))
            self.resident += nbytes

    def freed(self, nbytes: int) -> None:
        """Chunks were dropped with their segment."""
        self.resident = max(0, self.resident - nbytes)

    def trim(self) -> bool:
        """Spill one slice when there is too much; True when there is more to do."""
        if self.resident <= self._limit:
            return False
        if self._segments:
            segment = self._segments[0]
            feeds = segment.feeds[self._at : self._at + _SLICE]
            for feed in feeds:
                self.freed(feed.spill(segment.base_lsn))
            self._at += _SLICE
            if self._at >= len(segment.feeds):
                self._segments.popleft()
                self._at = 0
            return True
        if self._reloaded:
            feed, base, _ = self._reloaded.popleft()
            self.freed(feed.spill(base))
            return True
        self.resident = 0  # nothing is left: capacities were counted a little higher than what was used
        return False
