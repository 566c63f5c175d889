"""The feeds of one log: their ids, which of them survive a restart, and entries that come back from disk.

A feed survives a restart if the table `feed` has its row. It also keeps its transient records if
`feed_keeps` has one. No id is used twice: the table `log` holds, in steps of a thousand, the first unused
id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.log_core.errors import Damage
from penstock.log_core.feeds._feed import Feed, drop_all_before
from penstock.log_core.feeds.memory import FeedMemory
from penstock.log_core.state.tables import KEEPS_TABLE, Tables, feed_key

if TYPE_CHECKING:
    from penstock.log_core.reading.reader import Reader
    from penstock.log_core.segments.segment import Segment, Segments

__all__ = ["Feeds"]

_LOG: Final = logging.getLogger("penstock.log")

_OWN_TABLE: Final = "log"
_BOUND: Final = b"feed_ids"
_BLOCK: Final = 1024


class Feeds:
    """Owned by one Log. Loop thread only."""

    def __init__(
        self,
        tables: Tables,
        segments: Segments,
        reader: Reader,
        post: Callable[..., None],
        cache_bytes: int,
    ) -> None:
        self._tables = tables
        self._segments = segments
        self._reader = reader
        self._post = post
        self.by_id: dict[int, Feed] = {}
        self._memory = FeedMemory(cache_bytes)

    def restored(self, feed_id: int) -> Feed:
        """A feed whose row a start found."""
        return Feed(feed_id, self, self._tables.get(KEEPS_TABLE, feed_key(feed_id)) is not None)

    def start(self, found: dict[int, Feed]) -> None:
        """Take over the feeds that a start found; the tables are complete."""
        self.by_id = found
        self._next = self._bound

    @property
    def _bound(self) -> int:
        return int.from_bytes(self._tables.get(_OWN_TABLE, _BOUND) or b"\1", "little")

    def new(self, *, keeps: bool) -> Feed:
        """See `Log.new_feed`."""
        if self._next >= self._bound:
            self._tables.put(_OWN_TABLE, _BOUND, (self._next + _BLOCK).to_bytes(8, "little"))
        feed = Feed(self._next, self, keeps)
        if keeps:
            self._tables.put(KEEPS_TABLE, feed_key(feed.id), b"")
        self._next += 1
        self.by_id[feed.id] = feed
        return feed

    def drop(self, feed: Feed) -> None:
        """See `Log.drop_feed`."""
        feed.dropped = True
        if feed.keeps:
            self._tables.delete(KEEPS_TABLE, feed_key(feed.id))
        self.by_id.pop(feed.id, None)

    # Entries in memory

    @property
    def resident_bytes(self) -> int:
        """Bytes of entries of closed segments."""
        return self._memory.resident

    def indexed(self, segment: Segment, nbytes: int) -> None:
        """A segment's feed index is durable: its `nbytes` of entries may leave memory."""
        self._memory.closed(segment, nbytes)
        self._memory.trim()

    def trim(self) -> None:
        """Let go of entries until those left are within the budget."""
        while self._memory.trim():
            pass

    def drop_before(self, feed: Feed, base: int) -> None:
        """Drop a feed's entries in segments below the one at `base`."""
        self._memory.freed(feed.drop_before(base))

    def drop_all_before(self, gone: Sequence[Segment], base: int) -> None:
        """Drop all entries in the segments `gone`, which end at `base`."""
        for segment in gone:
            self._memory.freed(drop_all_before(segment.feeds, base))

    # Entries that left memory

    def load(self, feed: Feed, index: int, callback: Callable[[], object]) -> None:
        """See `Log.load_feed`."""
        base = feed.base_of(index)
        segment = self._segments.at_base(base)
        if segment is None or feed.is_resident(index):
            self._post(callback)
            return

        def loaded(entries: bytes) -> None:
            if entries:
                self._memory.reloaded(feed, base, feed.restore_chunk(base, entries))
            else:
                feed.drop_before(base + 1)
            callback()

        self._reader.load_entries(segment, feed, loaded)

    def load_once(self, feed: Feed, index: int, callback: Callable[[bool], object]) -> None:
        """See `Log.load_feed_once`."""
        base = feed.base_of(index)
        segment = self._segments.at_base(base)
        if segment is None:
            self._post(callback, False)
            return

        def work() -> bytes | None:
            try:
                return self._reader.read_entries(segment, feed)
            except (OSError, Damage) as error:
                _LOG.error("%s: the entries of feed %d cannot be read: %s", segment.path, feed.id, error)
                return None

        def done(entries: bytes | None) -> None:
            if entries is not None:
                self._memory.reloaded(feed, base, feed.restore_chunk(base, entries))
            callback(entries is not None)

        self._reader.submit(work, done, lambda _: callback(False))

    def load_now(self, feed: Feed, index: int) -> bool:
        """See `Log.load_feed_now`."""
        base = feed.base_of(index)
        segment = self._segments.at_base(base)
        if segment is None:
            return False
        try:
            entries = self._reader.read_entries(segment, feed)
        except (OSError, Damage) as error:
            _LOG.error("%s: the entries of feed %d cannot be read: %s", segment.path, feed.id, error)
            return False
        self._memory.reloaded(feed, base, feed.restore_chunk(base, entries))
        return True

    def load_chunk(self, feed: Feed, base: int) -> bytes:
        """The entries of a feed in the segment at `base`, read at once; for `Feed.index_of`."""
        segment = self._segments.at_base(base)
        if segment is None:
            raise LookupError(f"no segment begins with LSN {base}")
        return self._reader.read_entries(segment, feed)
