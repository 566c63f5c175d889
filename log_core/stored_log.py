"""The stored part of the log: reading what was written, finding positions in it, and how long it is kept.

This is the half of `Log` that moves no messages. `Log` derives from it and makes the parts that it works
with. Everything here runs on the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.log_core.feeds._feed import Feed
from penstock.log_core.feeds.feeds import Feeds
from penstock.log_core.history._content import Content
from penstock.log_core.history.content_search import ContentSearches, Found, Reached, SearchLimits
from penstock.log_core.history.histories import Done, Histories
from penstock.log_core.history.key_walk import Matcher
from penstock.log_core.maintenance.compaction import Compacted
from penstock.log_core.maintenance.feed_retention import RetentionFeeds
from penstock.log_core.maintenance.housekeeping import Housekeeping
from penstock.log_core.maintenance.retention import Retention
from penstock.log_core.maintenance.upkeep import stale_before
from penstock.log_core.options import LogOptions
from penstock.log_core.reading.reader import Reader
from penstock.log_core.segments.segment import Segment, Segments
from penstock.log_core.wal._writer import Writer

__all__ = ["StoredLog"]


class StoredLog(Writer):
    """See the module."""

    options: LogOptions
    retention_feeds: RetentionFeeds
    """Retention that is longer or shorter than that of its partition."""
    _clock: Callable[[], float]
    _content_searches: ContentSearches
    _feeds: Feeds
    _histories: Histories
    _housekeeping: Housekeeping
    _reader: Reader
    usual_retention: Retention
    """Of partitions that say nothing else. It may be replaced at any time."""
    _retentions: dict[int, tuple[int | None, float | None]]
    _segments: Segments

    def when_written(self, lsn: int, callback: Callable[[bool], object]) -> None:
        """Call `callback(ok)` by the next flush that finds `lsn` written; False = the log failed."""
        raise NotImplementedError

    def wall_ms(self) -> int:
        """The machine's clock, ms since the epoch; unlike `now_ms` it may be set back."""
        return int(self._clock() * 1000)

    # Reading

    def load(self, lsn: int, callback: Callable[[], object]) -> None:
        """Bring the batch with `lsn` into the cache off the loop, then call back: `cache.find` has it then.

        A batch that can no longer be read comes with kind LOST: settle and skip its records.
        """
        if lsn > self.written_lsn:
            self.when_written(lsn, lambda ok: callback())
            return
        segment = self._segments.find(lsn)
        self._reader.load(segment or self._segments.live[-1], lsn, callback)

    def load_feed(self, feed: Feed, index: int, callback: Callable[[], object]) -> None:
        """Bring the entries around `index` of a feed into memory off the loop, then call back."""
        self._feeds.load(feed, index, callback)

    def when_index(self, feed: Feed, position: int, callback: Callable[[int], object]) -> None:
        """Call back with `feed.index_of(position)`: at once, or after a read off the loop if it needs one."""
        self.when_indexed([(feed, position)], lambda: callback(feed.index_of(position)))

    def when_indexed(self, wanted: Sequence[tuple[Feed, int]], callback: Callable[[], object]) -> None:
        """Call back, perhaps at once, when `index_of` knows these positions without the disk.

        That holds until the caller returns to the loop.
        """
        for feed, position in wanted:
            index = feed.missing(position)
            if index is not None:
                self._feeds.load(feed, index, lambda: self.when_indexed(wanted, callback))
                return
        callback()

    def load_feed_once(self, feed: Feed, index: int, callback: Callable[[bool], object]) -> None:
        """As `load_feed`, tried once: False when it cannot be read, or not now."""
        self._feeds.load_once(feed, index, callback)

    def load_feed_now(self, feed: Feed, index: int) -> bool:
        """`load_feed` at once, on the calling thread: for a few chunks. False: it cannot be read."""
        return self._feeds.load_now(feed, index)

    def segment_of(self, lsn: int) -> Segment | None:
        """The segment that holds a written LSN; None when it is gone."""
        return self._segments.find(lsn)

    def segments_from(self, lsn: int) -> list[Segment]:
        """The segments with written LSNs from `lsn` on, oldest first."""
        return [segment for segment in self._segments.live if segment.next_lsn > lsn]

    @property
    def reader(self) -> Reader:
        """Reads past the cache, for the parts of the log."""
        return self._reader

    def position_for_time(self, time_ms: int) -> int:
        """The LSN of the first record kept that is not older than `time_ms`; the next LSN when there is none.

        Reads from disk, at once: the loop uses `seek_time`.
        """
        return self._reader.position_for_time(time_ms) or self.appender.next_lsn

    # Retention

    def first_lsn(self, lp: int) -> int:
        """The oldest position from which on all traffic of a partition can be replayed, but for what keepers
        let go of.
        """
        return self._housekeeping.retained.first_of(lp)

    def oldest_lsn(self, lp: int) -> int:
        """The oldest position from which on some traffic of a partition can be replayed."""
        return self.retention_feeds.first_of(lp, self.first_lsn(lp))

    def retention_of(self, lp: int) -> Retention:
        """How much traffic of a partition is kept."""
        keep_bytes, keep_s = self._retentions.get(lp, (None, None))
        usual = self.usual_retention
        return Retention(
            usual.keep_bytes if keep_bytes is None else keep_bytes,
            usual.keep_s if keep_s is None else keep_s,
        )

    def retain_traffic(self, lp: int, keep_bytes: int | None, keep_s: float | None) -> None:
        """Keep so much traffic of a partition from now on; None: as `usual_retention` says."""
        self._retentions[lp] = (keep_bytes, keep_s)

    def held_bytes(self, lp: int, since: int = 0) -> int:
        """Bytes of a partition in the segments; of `segment.OWN`: of tables, notes and delayed records.

        `since`: from this LSN on, about.
        """
        return self._housekeeping.held_bytes(lp, since)

    def held_since(self, lp: int, nbytes: int) -> int:
        """The LSN of the oldest segment such that from it on at most `nbytes` of a partition are held."""
        return self._housekeeping.held_since(lp, nbytes)

    def search(self, first: int, matcher: Matcher, done: Done, *, last: int, durable: bool) -> None:
        """Find the records at positions [first, last) that `matcher` wants; see `Histories`.

        All below `last` are appended. `done` gets a feed of them, or None, and whether it could be done.
        """

        def written(ok: bool) -> None:
            if ok:
                floor = self.first_lsn(matcher.lp)
                start = max(first, self.retention_feeds.first_of(matcher.lp, floor))
                retention_feeds = self.retention_feeds.starts(matcher.lp)
                self._histories.search(
                    start, last, matcher, done, durable=durable, floor=floor, retention_feeds=retention_feeds
                )
            else:
                done(None, False)

        self.when_written(max(last - 1, 0), written)

    def search_content(
        self,
        span: tuple[int, int],
        matcher: Matcher,
        content: Content,
        limits: SearchLimits,
        found: Found | None,
        done: Callable[[Reached | None], object],
    ) -> None:
        """Look for records by their content in the span [first, last) of LSNs; see `ContentSearches`.

        All below `last` are written, or will be soon. `done` gets None: it could not be done.
        """

        def written(ok: bool) -> None:
            if ok:
                self._content_searches.search(span, matcher, content, limits, found, done)
            else:
                done(None)

        self.when_written(max(span[1] - 1, 0), written)

    def seek_time(self, time_ms: int, callback: Callable[[int | None], object]) -> None:
        """`position_for_time` off the loop: `callback` gets the LSN; None: it could not be looked for, which
        the log lines tell of."""
        self._reader.submit(
            lambda: self.position_for_time(time_ms), callback, failed=lambda _: callback(None)
        )

    def trim(self, feed: Feed, keep_s: float | None, keep_bytes: int | None) -> None:
        """Drop the entries of a feed that keeps everything which are beyond its retention (None: no limit).

        See `upkeep.stale_before`.
        """
        self._feeds.drop_before(
            feed, stale_before(self._segments.live, feed, self.wall_ms(), keep_s, keep_bytes)
        )

    def forget_before(self, feed: Feed, base_lsn: int) -> None:
        """Drop the entries of a feed in segments below the one that begins with `base_lsn`."""
        self._feeds.drop_before(feed, base_lsn)

    def compact(self, feed: Feed, since: int, done: Callable[[Compacted], object]) -> None:
        """Find what key compaction keeps of a feed that keeps everything; see `Housekeeping.compact`."""
        self._housekeeping.compact(feed, since, done)
