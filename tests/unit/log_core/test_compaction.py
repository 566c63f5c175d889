"""A stream that compacts keeps the last message of each key, at its offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log_core.batch._appender import Appender, Target
from penstock.log_core.batch._batch import PERSISTENT, RECORDS
from penstock.log_core.batch._blocks import pack
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files.layout import Folder
from penstock.log_core.maintenance._compact import KeyMap
from penstock.log_core.maintenance.compaction import TOMBSTONES_S
from penstock.log_tools.reading import Found, SegmentFile, Span, batches, segments
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.streams.stream import Stream
from tests.support.limits import LIMIT_S
from tests.support.queues import Consumer
from tests.support.small_broker import Broker

WANTED, OTHER = 3, 4


@given(
    records=st.lists(
        st.tuples(
            st.sampled_from([b"", b"a", b"b", b"key of eight", b"key of eighu", b"k" * 100]),
            st.integers(0, 2),
            st.sampled_from([(WANTED,), (OTHER,), (OTHER, WANTED)]),
            st.sampled_from([b"", b"body"]),
        ),
        max_size=60,
    ),
    level=st.sampled_from([0, 1]),
    is_old=st.booleans(),
)
def test_marked_records_equal_a_dictionary_of_the_last_records(
    records: list[tuple[bytes, int, tuple[int, ...], bytes]], level: int, is_old: bool
) -> None:
    appender = Appender(lambda: 1000, 1, 7)
    feeds = {number: Feed(number) for number in (WANTED, OTHER)}
    last: dict[tuple[int, bytes], int] = {}
    counts: Counter[tuple[int, bytes]] = Counter()
    data = b""
    for key, enc, ids, body in records:
        target = Target([feeds[number] for number in ids])
        lsn = appender.append_record(0, target, key, b"props", body, PERSISTENT, 0, enc)
        if WANTED in ids:
            last[enc, key] = lsn
            counts[enc, key] += 1
        if lsn % 7 == 0:
            data += b"".join(map(bytes, appender.take_closed()))
    data += b"".join(map(bytes, appender.take_closed()))
    data = b"".join(piece for piece, _, _ in pack(data, level))
    keys = KeyMap(WANTED, 1000)
    keys.fill(data, 0)
    marks = keys.survivors(data, 0, 1, appender.next_lsn, 1001 if is_old else 1000)
    kept = [lsn for lsn in range(1, appender.next_lsn) if marks[(lsn - 1) // 8] >> (lsn - 1) % 8 & 1]
    assert kept == sorted(
        lsn for which, lsn in last.items() if records[lsn - 1][3] or not is_old or counts[which] > 1
    )
    assert keys.keys == len(last)


def test_more_keys_than_allowed_are_kept_whole() -> None:
    appender = Appender(lambda: 1000, 1, 7)
    target = Target([Feed(WANTED)])
    for number in range(5000):
        appender.append_record(0, target, b"%d" % (number % 2500), b"", b"body", PERSISTENT)
    data = b"".join(map(bytes, appender.take_closed()))
    keys = KeyMap(WANTED, 100)
    keys.fill(data, 0)
    assert (keys.keys, keys.full) == (100, True)
    marks = keys.survivors(data, 0, 1, 5001, 0)
    assert sum(byte.bit_count() for byte in marks) == 5000 - 100


def test_a_damaged_segment_is_not_judged() -> None:
    appender = Appender(lambda: 1000, 1, 7)
    appender.append_record(0, Target([Feed(WANTED)]), b"key", b"", b"body", PERSISTENT)
    data = bytearray(b"".join(map(bytes, appender.take_closed())))
    data[-10] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        KeyMap(WANTED, 10).fill(data, 0)


class Compacting(Broker):
    """A stream that compacts, in segments of 64 KiB that leave traffic retention at once."""

    def begin(self) -> None:
        stream = self.world.queues.create("s", "/", durable=True, kind=Kind.STREAM)
        assert isinstance(stream, Stream)
        self.stream = stream
        self.feed = self.log.new_feed(keeps=True)
        stream.begin(self.feed)
        stream.retain(None, None, compacts=True)

    def put(self, key: str, body: bytes) -> int:
        lsn = self.log.appender.append_record(
            0, self.log.target([self.feed], True), key.encode(), b"", body, PERSISTENT
        )
        self.log.flush()
        return lsn

    def read(self) -> list[int]:
        reader = self.stream.reader(0)
        consumer = Consumer(reader, no_ack=True)
        reader.attach(consumer)
        self.loop.settle()
        while consumer.got[-1:] != [self.feed.last_position]:
            assert reader.is_reading, "it stopped before the end"
            self.log._inbox.wait(LIMIT_S)
            self.loop.settle()
        reader.detach(consumer)
        return consumer.got

    def stored(self) -> list[int]:
        """The stream's records in the files."""
        return [
            record.lsn
            for segment in segments(Folder(self.path))
            if isinstance(segment, SegmentFile)
            for each in batches(segment, Span())
            if isinstance(each, Found) and each.batch.kind == RECORDS
            for record in map(each.batch.record, range(each.batch.count))
            if self.feed.id in record.feeds
        ]

    def tend_for(self, minutes: int) -> None:
        for _ in range(minutes):
            self.loop.advance(61)
            self.tend(3)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Compacting]:
    made = Compacting(tmp_path / "data")
    made.begin()
    yield made
    made.log.close_sync()


def test_the_last_message_of_each_key_stays_at_its_offset(broker: Compacting) -> None:
    last: dict[str, int] = {}
    for number in range(4000):
        key = f"key {number % 20}"
        last[key] = broker.put(key, broker.body(400))
    broker.tend(5)
    before = broker.bytes()
    offsets = broker.stream.first_offset, broker.stream.next_offset
    broker.tend_for(20)
    assert broker.bytes() < before * 2 / 3
    reads = broker.log.statistics()["cold_reads"]
    got = broker.read()
    assert broker.log.statistics()["cold_reads"] - reads < 3 * broker.log.statistics()["segments"], (
        "what was compacted away is not asked for message by message"
    )
    assert set(last.values()) <= set(got)
    assert len(got) < 2000, "segments that are not closed, or not checkpointed, are whole"
    assert got == sorted(got)
    assert (broker.stream.first_offset, broker.stream.next_offset) == offsets


def test_a_key_that_is_never_written_again_stays(broker: Compacting) -> None:
    once = broker.put("once", b"the only one")
    for number in range(1500):
        broker.put(f"key {number % 20}", broker.body(400))
    broker.tend_for(20)
    assert broker.read()[0] == once


def test_a_tombstone_goes_when_it_is_old_and_nothing_else_of_its_key_is_left(broker: Compacting) -> None:
    broker.put("gone", b"a value")
    tombstone = broker.put("gone", b"")
    for number in range(2500):
        broker.put(f"key {number % 20}", broker.body(400))
    broker.tend_for(20)
    assert broker.read()[0] == tombstone, "readers must see that the key is deleted"
    broker.clock.now += TOMBSTONES_S
    for number in range(4000):
        broker.put(f"key {number % 20}", broker.body(400))
    broker.tend_for(20)
    assert tombstone not in broker.stored()


def test_without_compaction_everything_stays(broker: Compacting) -> None:
    broker.stream.retain(None, None, compacts=False)
    lsns = [broker.put(f"key {number % 20}", broker.body(400)) for number in range(800)]
    broker.tend_for(20)
    assert broker.read() == lsns
