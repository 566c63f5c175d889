"""A stream keeps what retention wants; its offsets stay, whatever segments go and however often it starts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.state.tables import FEED_TABLE, feed_key
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.errors import ConsumerRefused, NotForStreams
from penstock.subscriptions.streams.stream import Stream
from tests.support.logs import KIB, append, files_made, fill, held_readers, open_log, settle
from tests.support.queues import Clock, Consumer, Loop, World


class Streams:
    """One stream over a log of small segments, and what a broker does for it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.open()

    def open(self) -> None:
        self.log = open_log(self.path, clock=self.clock)
        self.loop = Loop()
        self.world = World(self.log, self.loop)
        self.log.low_water = self.world.queues.low_water
        rows = dict(self.log.tables.items(FEED_TABLE))
        kept = self.log.tables.items("queue_of_test")
        if kept:
            ((key, value),) = kept
            stream = self.world.queues.restore(int.from_bytes(value, "big"), "s", "/", kind=Kind.STREAM)
            feed = self.log.feed(int.from_bytes(key, "big"))
            assert feed.keeps and feed_key(feed.id) in rows
        else:
            stream = self.world.queues.create("s", "/", durable=True, kind=Kind.STREAM)
            feed = self.log.new_feed(keeps=True)
            self.log.tables.put(FEED_TABLE, feed_key(feed.id), b"row")
            self.log.tables.put("queue_of_test", feed_key(feed.id), stream.qid.to_bytes(8, "big"))
        assert isinstance(stream, Stream)
        stream.begin(feed)
        self.stream = stream

    def restart(self) -> None:
        self.world.queues.close()
        self.log.flush()
        settle(self.log)
        self.log.close_sync()
        self.open()

    def fill(self, nbytes: int, flags: int = PERSISTENT) -> int:
        """Publish about that much; how many messages."""
        before = self.stream.feed.end
        fill(self.log, self.stream.feed, nbytes) if flags else None
        return self.stream.feed.end - before

    def tend(self) -> None:
        settle(self.log)
        for _ in range(4):
            self.log.tend(1 << 40)
            settle(self.log)
            self.log._upkeep.pool.submit(lambda: None).result()

    def read(self, offset: int, count: int) -> list[int]:
        """Positions of what a consumer that begins at `offset` gets."""
        reader = self.stream.reader(offset)
        consumer = Consumer(reader, count, no_ack=True)
        consumer.left = count
        reader.attach(consumer)
        count = min(count, self.stream.next_offset - max(offset, self.stream.first_offset))
        end = time.monotonic() + 60
        while len(consumer.got) < count and time.monotonic() < end:
            self.loop.settle()
            settle(self.log)
        reader.detach(consumer)
        return consumer.got[:count]


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    made = Streams(tmp_path / "data", Clock())
    yield made
    made.log.close_sync()


def test_without_limits_everything_stays(streams: Streams) -> None:
    count = streams.fill(600 * KIB)
    streams.tend()
    assert (streams.stream.first_offset, streams.stream.next_offset) == (0, count)
    assert streams.stream.ready_count == count


def test_records_past_their_age_go_with_their_segment(streams: Streams) -> None:
    streams.stream.retain(3600.0, None)
    old = streams.fill(600 * KIB)
    streams.clock.now += 3000
    new = streams.fill(600 * KIB)
    streams.tend()
    assert streams.stream.first_offset == 0
    streams.clock.now += 700
    streams.tend()
    first = streams.stream.first_offset
    assert old - 200 < first <= old
    assert streams.stream.next_offset == old + new
    assert streams.log.statistics()["first_lsn"] > 1, "the segments are deleted"


def test_records_over_the_byte_limit_go_with_their_segment(streams: Streams) -> None:
    streams.stream.retain(None, 200 * KIB)
    count = streams.fill(900 * KIB)
    streams.tend()
    kept = (count - streams.stream.first_offset) * 408  # key, properties and body of one message
    assert 100 * KIB < kept < 200 * KIB + 64 * KIB + 1


def test_offsets_survive_restarts_while_segments_go(streams: Streams) -> None:
    streams.stream.retain(None, 200 * KIB)
    total = 0
    for _ in range(3):
        total += streams.fill(900 * KIB)
        last = streams.stream.feed.positions(streams.stream.feed.end - 1, 1)
        streams.tend()
        streams.restart()
        streams.stream.retain(None, 200 * KIB)
        assert streams.stream.next_offset == total
        assert 0 < streams.stream.first_offset < total
        assert streams.read(total - 1, 1) == last


def test_a_consumer_before_what_is_kept_begins_with_the_first_message_kept(streams: Streams) -> None:
    streams.stream.retain(None, 200 * KIB)
    streams.fill(900 * KIB)
    streams.tend()
    first = streams.stream.first_offset
    assert first > 0
    assert streams.read(0, 50) == streams.read(first, 50)


def test_reads_from_any_offset_return_the_published_records(streams: Streams) -> None:
    positions = fill(streams.log, streams.stream.feed, 700 * KIB)
    settle(streams.log)
    for offset in (0, 1, 333, len(positions) - 5):
        assert streams.read(offset, 400) == positions[offset : offset + 400]


def test_a_reader_sees_nothing_that_is_not_synced(streams: Streams) -> None:
    reader = streams.stream.reader(0)
    consumer = Consumer(reader, no_ack=True)
    reader.attach(consumer)
    (position,) = streams.world.publish(streams.stream.feed)
    assert streams.log.synced_lsn < position
    streams.log.flush()  # written
    reader.wake()
    streams.loop.settle()
    assert consumer.got == []
    settle(streams.log)
    streams.loop.settle()
    settle(streams.log)
    streams.loop.settle()
    assert consumer.got == [position]


def test_a_time_is_found(streams: Streams) -> None:
    streams.fill(200 * KIB)
    streams.clock.now += 100
    middle = streams.stream.next_offset
    streams.fill(200 * KIB)
    settle(streams.log)
    found: list[int] = []
    streams.stream.offset_of_time(int(streams.clock.now * 1000) - 50_000, found.append)
    streams.log._reader._pool.submit(lambda: None).result()
    while not found:
        settle(streams.log)
        streams.log.flush()
    assert found == [middle]


def test_a_named_place_is_kept_and_is_one_consumers(streams: Streams) -> None:
    streams.fill(50 * KIB)
    settle(streams.log)
    reader = streams.stream.reader(0, "mine")
    consumer = Consumer(reader, 10)
    reader.attach(consumer)
    streams.loop.settle()
    with pytest.raises(ConsumerRefused):
        streams.stream.reader(0, "mine")
    consumer.ack(7)
    streams.loop.advance(0.1)
    assert streams.stream.kept_offset("mine") == 7
    streams.restart()
    assert streams.stream.kept_offset("mine") == 7
    streams.stream.delete()
    assert not streams.log.tables.keys("stream_cursor")


def test_messages_requeued_by_a_leaving_consumer_are_not_done(streams: Streams) -> None:
    streams.fill(50 * KIB)
    settle(streams.log)
    reader = streams.stream.reader(0, "mine")
    consumer = Consumer(reader, 10)
    reader.attach(consumer)
    streams.loop.settle()
    consumer.ack(7)
    reader.detach(consumer)
    reader.cursor.requeue_all()  # as its channel does then, before the time in which places are kept is over
    streams.loop.advance(0.2)
    assert streams.stream.kept_offset("mine") == 7


def test_queue_operations_are_refused(streams: Streams) -> None:
    for operation in (lambda: streams.stream.get(lambda _: None), streams.stream.purge):
        with pytest.raises(NotForStreams):
            operation()


@pytest.mark.parametrize("crashed", [False, True])
def test_the_bytes_of_a_feed_are_those_of_its_records(tmp_path: Path, crashed: bool) -> None:
    """Also where a start found them in what a crash left."""
    log = open_log(tmp_path / "data")
    kept, other = log.new_feed(keeps=True), log.new_feed()
    for feed in (kept, other):
        log.tables.put(FEED_TABLE, feed_key(feed.id), b"")
    sizes = 0
    for size in (0, 10, 100, 5000):
        log.appender.append_record(0, log.target([kept, other], True), b"k", b"pp", bytes(size), 0)
        log.appender.append_record(0, log.target([other], True), b"k", b"pp", bytes(size), 0)
        sizes += size + 3
        log.flush()
    log.wait_synced(log.written_lsn)
    if crashed:
        copy = tmp_path / "copy"
        files_made(log)
        shutil.copytree(tmp_path / "data", copy)
    log.close_sync()
    log = open_log(copy if crashed else tmp_path / "data")
    settle(log)
    first = log._segments.live[0]
    assert first.indexed and first.kept_bytes == {kept.id: sizes}
    log.close_sync()


def test_a_feed_that_keeps_has_its_transient_records_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    kept, forgetting = log.new_feed(keeps=True), log.new_feed()
    for feed in (kept, forgetting):
        log.tables.put(FEED_TABLE, feed_key(feed.id), b"")
    target = log.target([kept, forgetting], True)
    lsns = [log.appender.append_record(0, target, body=b"x", flags=flags) for flags in (0, PERSISTENT, 0)]
    log.flush()
    log.close_sync()
    log = open_log(tmp_path)
    assert log.feed(kept.id).positions(0, 9) == [] and len(log.feed(kept.id)) == 3
    assert log.load_feed_now(log.feed(kept.id), 0)
    assert log.feed(kept.id).positions(0, 9) == lsns
    assert len(log.feed(forgetting.id)) == 1
    log.close_sync()


def test_a_place_whose_entries_left_memory_is_kept_when_a_thread_has_read_them(streams: Streams) -> None:
    log, feed = streams.log, streams.stream.feed
    other = log.new_feed()
    for _ in range(300):
        for one in (feed, other, other):  # not every record is the stream's, so that it has entries
            append(log, [one], bytes(400))
        log.flush()
    settle(log)
    reader = streams.stream.reader(0, "place")
    consumer = Consumer(reader, 50)
    reader.attach(consumer)
    while len(consumer.got) < 50:
        streams.loop.settle()
        settle(log)
    consumer.ack(20)
    with held_readers(log):
        feed.spill(feed.base_of(20))
        assert feed.missing(reader.cursor.mark + 1) is not None
        streams.loop.advance(1)
        assert streams.stream.kept_offset("place") is None
    while streams.stream.kept_offset("place") is None:
        log._inbox.wait(60)
        streams.loop.settle()
    assert streams.stream.kept_offset("place") == 20
    log.close_sync()
