"""Feeds and the cache against plain lists, over random histories."""

from __future__ import annotations

import struct
from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.log_core.batch._appender import Appender, Target
from penstock.log_core.batch._scan import Scanner, adopt_directory, encode_feeds, persistent_entries
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.reading._tail import BATCH_OVERHEAD, Cache
from penstock.log_core.segments.feed_index import ROW_BYTES

TRANSIENT = 0x80000000


class FeedModel(RuleBasedStateMachine):
    """Segments are closed, spilled, restored and dropped while positions are pushed."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[int, bytes] = {}
        self.feed = Feed(7, self)
        self.base = 1
        self.next = 1
        self.segments: dict[int, list[int]] = {}
        self.start = 0
        self.pushed: list[int] = []

    def load_chunk(self, feed: Feed, base: int) -> bytes:
        return self.stored[base]

    @rule(gap=st.integers(0, 5), transient=st.booleans())
    def push(self, gap: int, transient: bool) -> None:
        lsn = self.next + gap
        self.next = lsn + 1
        made = self.feed.append(self.base, (lsn - self.base) | (TRANSIENT if transient else 0))
        assert made == (self.base not in self.segments)
        self.segments.setdefault(self.base, []).append(lsn)
        self.pushed.append(lsn)

    @rule()
    def roll(self) -> None:
        self.base = self.next = self.next + 1

    @precondition(lambda self: any(base != self.base for base in self.segments))
    @rule(data=st.data())
    def spill(self, data: st.DataObject) -> None:
        base = data.draw(st.sampled_from([base for base in self.segments if base != self.base]))
        entries = self.feed.entries_at(base)
        if entries is not None:
            self.stored[base] = entries
        self.feed.spill(base)
        assert self.feed.entries_at(base) is None

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        base = data.draw(st.sampled_from(sorted(self.stored)))
        self.feed.restore_chunk(base, self.stored[base])

    @precondition(lambda self: self.segments)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        base = data.draw(st.sampled_from([*sorted(self.segments), self.base]))
        self.feed.drop_before(base)
        for gone in [old for old in self.segments if old < base]:
            self.start += len(self.segments.pop(gone))
            self.stored.pop(gone, None)

    @rule(position=st.integers(0, 300))
    def index_of(self, position: int) -> None:
        kept = self.pushed[self.start :]
        assert self.feed.index_of(position) == self.start + bisect_left(kept, position)

    @invariant()
    def positions_are_those_pushed(self) -> None:
        assert (self.feed.start, self.feed.end) == (self.start, len(self.pushed))
        for index in range(self.start, len(self.pushed)):
            found = self.feed.positions(index, 1)
            assert found == ([self.pushed[index]] if self.feed.is_resident(index) else [])
        run = self.feed.positions(self.start, 1000)
        assert run == self.pushed[self.start : self.start + len(run)]


TestFeed = FeedModel.TestCase


@given(st.dictionaries(st.integers(1, 50), st.lists(st.booleans(), min_size=1, max_size=30), max_size=10))
def test_a_feed_index_gives_back_the_persistent_entries(content: dict[int, list[bool]]) -> None:
    feeds = [Feed(number) for number in content]
    for feed in feeds:
        for record, persistent in enumerate(content[feed.id]):
            feed.append(100, 2 * record | (0 if persistent else TRANSIENT))
    payload, rows, _ = encode_feeds(feeds, 100)
    assert rows == len(content)
    scanner = Scanner()
    known = {number: Feed(number) for number in content if number % 3}
    for feed in known.values():
        scanner.know(feed)
    adopted = adopt_directory(scanner, payload[: rows * ROW_BYTES], 100)
    assert {feed.id for feed in adopted} == {number for number in known if any(content[number])}
    for feed in adopted:
        row = next(
            struct.unpack_from("<8I", payload, at)
            for at in range(0, rows * ROW_BYTES, ROW_BYTES)
            if struct.unpack_from("<I", payload, at)[0] == feed.id
        )
        start = rows * ROW_BYTES + 4 * row[1]
        feed.restore_chunk(100, persistent_entries(payload[start : start + 4 * row[2]]))
        expected = [100 + 2 * at for at, persistent in enumerate(content[feed.id]) if persistent]
        assert feed.positions(0, 100) == expected


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.booleans()), min_size=1, max_size=60),
    st.integers(200, 3000),
)
def test_the_tail_keeps_the_newest_batches_within_its_bytes(
    ticks: list[tuple[int, int, bool]], limit: int
) -> None:
    cache = Cache(limit, limit)
    out = Appender(lambda: 1)
    target = Target([])
    written = []
    for records, skipped, looked_at in ticks:
        out.roll()
        for _ in range(records):
            out.append_record(0, target, b"k", b"", b"x" * 20)
        [batch] = out.take_closed()
        cache.add(batch)
        written.append(batch)
        for _ in range(skipped):
            out.append_state(b"k", b"v")
        out.take_closed()
        if looked_at:
            assert cache.get(batch.base_lsn) is batch
    kept = [batch for batch in written if cache.get(batch.base_lsn) is batch]
    assert kept == written[len(written) - len(kept) :]
    assert sum(batch.nbytes + BATCH_OVERHEAD for batch in kept) == cache.tail_bytes
    assert cache.tail_bytes <= limit or len(kept) == 1
    if len(kept) < len(written):
        assert cache.tail_bytes + written[-len(kept) - 1].nbytes + BATCH_OVERHEAD > limit
    for batch in kept:
        for lsn in range(batch.base_lsn, batch.base_lsn + batch.count):
            assert cache.get(lsn) is batch
        after = batch.base_lsn + batch.count
        assert cache.get(after) in [None, *(other for other in kept if other.base_lsn == after)]
