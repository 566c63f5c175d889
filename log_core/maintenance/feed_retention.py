"""Retention feeds: feeds with a replay retention of their own.

A partition's retention (`retention`) says how long its traffic is kept. Records in a retention feed are an
exception: each is kept as long as the longest of its retention feeds says, be that shorter or longer. So a
retention feed is like a stream without readers. It releases whole segments. Replays no longer find released
records, and a rewrite of the segment drops them unless something else needs them. Released records stay
released, whatever the feed's retention becomes. A feed without a retention keeps its records as long as its
partition does.

    table `keeper`: key = feed id, 4 bytes big-endian;
    value = | partition u32 | LSN u64 |, little-endian: what lies below it was let go

The layers above decide what goes into which retention feed. Loop thread only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from penstock.lazy_dataclass import dataclass
from penstock.log_core.maintenance.upkeep import stale_before
from penstock.log_core.state.tables import FEED_TABLE, Tables, feed_key, feed_of_key

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.log_core.feeds.feeds import Feeds
    from penstock.log_core.maintenance.retention import Retention
    from penstock.log_core.segments.segment import Segment, Segments

__all__ = ["KEEPER_TABLE", "Owner", "RetentionFeeds"]

KEEPER_TABLE: Final = "keeper"
_ROW: Final = struct.Struct("<IQ")
_AT_ONCE: Final = 1000
"""RetentionFeeds whose retention is looked at in one go (some milliseconds)."""
_NOBODY: Final = (1 << 64) - 1


class Owner(Protocol):
    """Whose retention feed one is."""

    def retention(self) -> Retention:
        """How much is kept."""

    def emptied(self) -> None:
        """Called now and then while nothing is kept."""


@dataclass(slots=True)
class _RetentionFeed:
    feed: Feed
    lp: int
    start: int
    """It lets go of everything below this LSN."""
    owner: Owner | None = None
    """None: nobody said yet what it keeps; all."""


class RetentionFeeds:
    """Owned by one Log."""

    def __init__(self, tables: Tables, feeds: Feeds, segments: Segments, wall_ms: Callable[[], int]) -> None:
        self._tables = tables
        self._feeds = feeds
        self._segments = segments
        self._wall_ms = wall_ms
        self._by_id: dict[int, _RetentionFeed] = {}
        self._ahead: list[_RetentionFeed] = []
        self._found: dict[int, int] = {}  # by partition, in this round: the lowest LSN with something kept
        self._lowest: dict[int, int] = {}  # of the last whole round
        self._shortest = self._shortest_found = float("inf")
        self._complete = False

    def restore(self) -> None:
        """Take those of the last run, as a start found their feeds."""
        for key, row in list(self._tables.items(KEEPER_TABLE)):
            feed = self._feeds.by_id.get(feed_of_key(key))
            if feed is None:
                self._tables.delete(KEEPER_TABLE, key)
                continue
            lp, start = _ROW.unpack(row)
            self._by_id[feed.id] = _RetentionFeed(feed, lp, start)
            self._feeds.drop_before(feed, start)
        self._complete = not self._by_id

    # Making and ending

    def new(self, lp: int, value: bytes) -> Feed:
        """The feed of a new retention feed, durable, with `value` in its row of the table `feed`."""
        feed = self._feeds.new(keeps=True)
        self._tables.put(FEED_TABLE, feed_key(feed.id), value)
        self._by_id[feed.id] = _RetentionFeed(feed, lp, 0)
        self._put(self._by_id[feed.id])
        for lowest in (self._lowest, self._found):
            lowest[lp] = min(lowest.get(lp, _NOBODY), self._segments.live[-1].base_lsn)
        return feed

    def own(self, feed: Feed, owner: Owner) -> None:
        """Have a retention feed keep what its owner says each time it is asked."""
        self._by_id[feed.id].owner = owner

    def forget(self, feed: Feed) -> None:
        """A feed is dropped, perhaps a retention feed's."""
        if self._by_id.pop(feed.id, None) is not None:
            self._tables.delete(KEEPER_TABLE, feed_key(feed.id))

    def _put(self, retention_feed: _RetentionFeed) -> None:
        self._tables.put(
            KEEPER_TABLE, feed_key(retention_feed.feed.id), _ROW.pack(retention_feed.lp, retention_feed.start)
        )

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, feed: Feed) -> bool:
        """Whether a feed is one's."""
        return feed.id in self._by_id

    # Retention

    def tend(self) -> None:
        """Let go of what retention does not want, of some retention feeds each time."""
        if not self._ahead:
            self._found, self._shortest_found = {}, float("inf")
            self._ahead = list(self._by_id.values())
        for retention_feed in self._ahead[-_AT_ONCE:]:
            if retention_feed.feed.id not in self._by_id:
                continue
            self._let_go(retention_feed)
            if retention_feed.owner is not None and retention_feed.feed.start == retention_feed.feed.end:
                retention_feed.owner.emptied()
            # A record for a feed that is empty now comes into the active segment, or a later one.
            base = retention_feed.feed.base_of(retention_feed.feed.start) or self._segments.live[-1].base_lsn
            self._found[retention_feed.lp] = min(self._found.get(retention_feed.lp, _NOBODY), base)
        del self._ahead[-_AT_ONCE:]
        if not self._ahead:
            self._lowest, self._shortest, self._complete = self._found, self._shortest_found, True

    def _let_go(self, retention_feed: _RetentionFeed) -> None:
        if retention_feed.owner is None:
            return
        retention = retention_feed.owner.retention()
        self._shortest_found = min(self._shortest_found, retention.keep_s)
        start = stale_before(
            self._segments.live, retention_feed.feed, self._wall_ms(), retention.keep_s, retention.keep_bytes
        )
        if start > retention_feed.start:
            before, retention_feed.start = retention_feed.feed.start, start
            self._feeds.drop_before(retention_feed.feed, start)
            if retention_feed.feed.start > before:
                self._put(retention_feed)

    @property
    def low(self) -> int:
        """An LSN such that no retention feed has anything below it; 2**64 - 1: none has anything."""
        return min(self._lowest.values(), default=_NOBODY) if self._complete else 0

    def first_of(self, lp: int, floor: int) -> int:
        """The LSN of the segment from which on something of a partition may be kept for replay; `floor`: that
        from which on all is that no retention feed decides about."""
        return min(floor, self._lowest.get(lp, _NOBODY)) if self._complete else 0

    def starts(self, lp: int) -> list[tuple[int, int]]:
        """The id of each retention feed in a partition, and the LSN from which on it keeps what it has."""
        return [
            (retention_feed.feed.id, retention_feed.start)
            for retention_feed in self._by_id.values()
            if retention_feed.lp == lp
        ]

    def starts_in(self, segment: Segment) -> list[tuple[int, int]]:
        """The same of those that have, or had, something in a closed and indexed segment."""
        found = (self._by_id.get(feed_id) for feed_id in segment.kept_bytes)
        return [
            (retention_feed.feed.id, retention_feed.start)
            for retention_feed in found
            if retention_feed is not None
        ]

    def released_bytes(self, segment: Segment) -> int:
        """About how many bytes of a closed segment the retention feeds in it have released."""
        if not self._by_id:
            return 0
        found = ((self._by_id.get(feed_id), nbytes) for feed_id, nbytes in segment.kept_bytes.items())
        return sum(
            nbytes
            for retention_feed, nbytes in found
            if retention_feed and retention_feed.start >= segment.next_lsn
        )

    @property
    def shortest_s(self) -> float:
        """The shortest time that one keeps what it has; infinite: there is none."""
        return self._shortest
