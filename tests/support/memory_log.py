"""A log in memory, as far as a cursor sees one."""

from __future__ import annotations

import bisect

from penstock.log_core.batch._appender import Appender
from penstock.log_core.batch._batch import Batch
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.reading._tail import Cache


class MemoryLog:
    """The parts of a log a cursor sees; all batches are kept aside, few in the cache."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self.appender = Appender(lambda: self.ms)
        self.cache = Cache(2000, 4000)
        self.written_lsn = 0
        self.visible_lsn = 2**64 - 1
        self.batches: list[Batch] = []
        self.bases = [1]
        self.chunks: dict[tuple[int, int], bytes] = {}

    def now_ms(self) -> int:
        return self.ms

    def flush(self) -> None:
        for batch in self.appender.take_closed():
            self.batches.append(batch)
            self.cache.add(batch)
        self.appender.take_dirty()
        self.written_lsn = self.appender.next_lsn - 1

    def load(self, lsn: int) -> None:
        at = bisect.bisect_right([batch.base_lsn for batch in self.batches], lsn) - 1
        self.cache.add_run([self.batches[at]])

    def roll(self) -> None:
        """The next record begins a segment."""
        self.flush()
        if self.appender.next_lsn > self.bases[-1]:
            self.appender.roll()
            self.bases.append(self.appender.next_lsn)

    def spill(self, feed: Feed) -> None:
        """Put the feed's entries of closed segments aside."""
        for base in self.bases[:-1]:
            entries = feed.entries_at(base)
            if entries is not None:
                self.chunks[feed.id, base] = bytes(entries)
                feed.spill(base)

    def load_chunk(self, feed: Feed, base: int) -> bytes:
        return self.chunks[feed.id, base]

    def load_feed_now(self, feed: Feed, index: int) -> bool:
        base = feed.base_of(index)
        feed.restore_chunk(base, self.chunks[feed.id, base])
        return True
