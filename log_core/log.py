"""The log of one shard, as the layers above see it (first cut: kept in memory only)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.log_core._batch import RECORDS, Appender, Target
from penstock.log_core._feed import Feed
from penstock.log_core._tail import Cache
from penstock.log_core.options import LogOptions
from penstock.log_core.tables import Tables

__all__ = ["Log", "Recovery"]

Callback = Callable[[bool], None]


@dataclass(slots=True)
class Recovery:
    clean: bool = True
    records: int = 0
    bytes: int = 0
    truncated_bytes: int = 0
    seconds: float = 0.0


class Log:
    def __init__(self, options: LogOptions, clock: Callable[[], float]) -> None:
        self.options = options
        self._clock = clock
        self.appender = Appender(lambda: int(clock() * 1000))
        self.cache = Cache(options.tail_cache_bytes, options.read_cache_bytes)
        self.feeds: dict[int, Feed] = {}
        self.tables = Tables(self.appender)
        self.recovery = Recovery()
        self.written_lsn = 0
        self.synced_lsn = 0
        self.backlog_bytes = 0
        self.failed: Exception | None = None
        self.on_pressure: list[Callable[[bool], None]] = []
        self.low_water: Callable[[], int] = lambda: 0
        self._next_feed = 1
        self._written: deque[tuple[int, Callback]] = deque()
        self._synced: deque[tuple[int, Callback]] = deque()

    @classmethod
    def open(cls, data_dir: Path, options: LogOptions, *, clock: Callable[[], float] = time.time) -> Log:
        return cls(options, clock)

    def feed(self, feed_id: int) -> Feed:
        return self.feeds[feed_id]

    def new_feed(self) -> Feed:
        feed = Feed(self._next_feed)
        self._next_feed += 1
        self.feeds[feed.id] = feed
        return feed

    def drop_feed(self, feed: Feed) -> None:
        feed.dropped = True
        del self.feeds[feed.id]

    def target(self, feeds: Sequence[Feed], durable: bool) -> Target:
        return Target(feeds, durable)

    @contextmanager
    def unit(self) -> Iterator[None]:
        self.appender.begin_unit()
        try:
            yield
        finally:
            self.appender.end_unit()

    def flush(self) -> None:
        for batch in self.appender.take_closed():
            if batch.kind == RECORDS:
                self.cache.add(batch)
        self.written_lsn = self.synced_lsn = self.appender.next_lsn - 1
        for waiting in (self._written, self._synced):
            while waiting and waiting[0][0] <= self.written_lsn:
                waiting.popleft()[1](True)

    def when_written(self, lsn: int, callback: Callback) -> None:
        self._written.append((lsn, callback))

    def when_synced(self, lsn: int, callback: Callback) -> None:
        self._synced.append((lsn, callback))

    def attach(self, call_soon_threadsafe: Callable[..., object]) -> None:
        self._call_soon = call_soon_threadsafe

    def load(self, lsn: int, callback: Callable[[], None]) -> None:
        raise LookupError(lsn)

    def load_feed(self, feed: Feed, index: int, callback: Callable[[], None]) -> None:
        raise LookupError(index)

    def take_dirty(self) -> list[Feed]:
        return self.appender.take_dirty()

    def now_ms(self) -> int:
        return self.appender.now_ms()

    async def close(self) -> None:
        self.close_sync()

    def close_sync(self) -> None:
        self.flush()

    def statistics(self) -> dict[str, int]:
        return {"written_lsn": self.written_lsn}
