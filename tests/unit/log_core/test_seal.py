"""A stuck queue keeps its own messages, and nothing else that was written in between."""

from __future__ import annotations

import io
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StartError
from penstock.log_core.batch._appender import Appender, Target
from penstock.log_core.batch._batch import BLOCK, PERSISTENT, RECORDS, Batch, Record
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files.layout import WAL_HEAD_BYTES, Folder
from penstock.log_core.maintenance._seal import Needs
from penstock.log_core.maintenance.sealing import samples
from penstock.log_core.segments.segment import Marks
from penstock.log_tools.inspection import verify
from penstock.log_tools.reading import Found, SegmentFile, Span, batches, segments
from penstock.subscriptions import queues
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.streams.stream import Stream
from tests.support.logs import FULL, KIB, Unsynced, open_log, settle
from tests.support.queues import Consumer
from tests.support.small_broker import Broker


def batches_of(data: bytes) -> list[Batch]:
    found = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        found.append(Batch.parse(data[at : at + size]))
        at += size
    return found


@given(
    ticks=st.lists(
        st.lists(
            st.tuples(st.sets(st.integers(1, 5), max_size=3), st.binary(max_size=40), st.integers(0, 3)),
            max_size=30,
        ),
        max_size=6,
    ),
    needed=st.sets(st.integers(0, 150)),
    spans=st.dictionaries(st.integers(1, 5), st.tuples(st.integers(0, 150), st.integers(0, 150)), max_size=3),
    room=st.sampled_from([1, 300, 1 << 20]),
)
def test_survivors_equal_a_check_of_each_record(
    ticks: list[list[tuple[set[int], bytes, int]]],
    needed: set[int],
    spans: dict[int, tuple[int, int]],
    room: int,
) -> None:
    now = 1000
    appender = Appender(lambda: now, 1, 7)
    feeds = {number: Feed(number) for number in range(1, 6)}
    data = b""
    records: list[Record] = []
    for tick in ticks:
        for ids, body, origin in tick:
            target = Target([feeds[number] for number in sorted(ids)])
            appender.append_record(0, target, b"key", b"props", body, PERSISTENT, 3, 1, 50, origin)
        if tick:
            appender.append_state(b"\1ta", b"b")
        for batch in appender.take_closed():
            data += bytes(batch)
            if batch.kind == 1:
                records += [batch.record(i) for i in range(batch.count)]
        now += 10
    needs = Needs(1, appender.next_lsn)
    for position in needed:
        needs.need(position)
    for feed, (first, last) in spans.items():
        needs.need_feed(feed, first, last)
    at = count = 0
    body = b""
    while at < len(data):
        piece, at, found, _ = needs.survivors(data, at, room)
        body += piece
        count += found
    out = batches_of(body)
    kept = [batch.record(i) for batch in out for i in range(batch.count)]
    assert kept == [
        record
        for record in records
        if record.lsn in needed
        or any(a <= record.lsn < b for f, (a, b) in spans.items() if f in record.feeds)
    ]
    assert count == len(kept)
    stays = at = 0
    while at < len(data):
        part, at = needs.staying(data, at, room)
        stays += part
    assert stays <= len(data)
    assert bool(stays) == bool(kept)
    if len(kept) == len(records):
        assert stays == sum(batch.nbytes for batch in batches_of(data) if batch.kind == RECORDS)


def test_a_damaged_batch_is_not_thrown_away() -> None:
    appender = Appender(lambda: 1, 1, 7)
    appender.append_record(0, Target([]), b"k", body=b"x" * 100)
    data = bytearray(b"".join(bytes(batch) for batch in appender.take_closed()))
    data[-20] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        Needs(1, 2).survivors(data, 0)
    data[60] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        Needs(1, 2).staying(data, 0)


def fill(broker: Broker) -> tuple[list[int], Feed]:
    """A queue that nobody consumes, with a message now and then, and one that is consumed: some MiB."""
    stuck, busy = broker.queue("stuck"), broker.queue("busy")
    lsns = []
    for _ in range(40):
        lsns += broker.publish(stuck, 1)
        broker.publish(busy, 60)
        broker.consume("busy")
    return lsns, busy


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "data")
    yield made
    made.log.close_sync()


def test_a_stuck_queue_keeps_its_own_messages_only(broker: Broker) -> None:
    lsns, _ = fill(broker)
    before = broker.bytes()
    broker.tend()
    assert before > 2 * KIB * KIB
    assert broker.bytes() < 450 * KIB, (
        "its 40 messages, heads of segments, and what is not closed or checkpointed"
    )
    assert broker.log.statistics()["segments_sealed"] > 10
    assert broker.consume("stuck") == lsns
    assert broker.log.statistics()["cold_reads"] > 0


@pytest.mark.parametrize("clean", [True, False])
def test_survivors_are_delivered_after_a_restart(broker: Broker, clean: bool) -> None:
    lsns, busy = fill(broker)
    broker.tend()
    broker.restart(clean=clean)
    assert broker.queues["stuck"].ready_count == len(lsns)
    assert broker.consume("stuck") == lsns
    assert broker.consume("busy") == []
    lsns = broker.publish(broker.log.feed(busy.id), 50)
    assert broker.consume("busy") == lsns


def test_one_delivery_without_acknowledgement_keeps_itself_only(broker: Broker) -> None:
    feed = broker.queue("q")
    (first,) = broker.publish(feed, 1)
    holder = Consumer(broker.queues["q"], 1)
    broker.queues["q"].attach(holder)
    broker.loop.settle()
    assert holder.got == [first]
    for _ in range(40):
        broker.publish(feed, 60)
        broker.consume("q")
    broker.tend()
    assert broker.bytes() < 450 * KIB
    holder.ack()
    broker.tend()
    assert broker.log.statistics()["first_lsn"] > first, "nobody needs anything: the segments go"


def test_records_no_longer_needed_are_removed_at_a_later_check(broker: Broker) -> None:
    lsns, _ = fill(broker)
    stuck = broker.queue("second")
    second = broker.publish(stuck, 300)
    fill_more = broker.queue("third")
    for _ in range(5):
        broker.publish(fill_more, 60)
    broker.tend()
    sealed = broker.bytes()
    assert broker.consume("second") == second
    broker.tend()
    assert broker.bytes() < sealed - 200 * 900
    assert broker.consume("stuck") == lsns


def test_a_stream_keeps_everything_of_its_own(broker: Broker) -> None:
    stream = broker.world.queues.create("s", "/", durable=True, kind=Kind.STREAM)
    assert isinstance(stream, Stream)
    kept = broker.log.new_feed(keeps=True)
    stream.begin(kept)
    busy = broker.queue("busy")
    lsns = []
    for _ in range(40):
        lsns += broker.publish(kept, 2)
        broker.publish(busy, 60)
        broker.consume("busy")
    broker.tend()
    assert broker.bytes() < 550 * KIB
    reader = stream.reader(0)
    consumer = Consumer(reader, no_ack=True)
    reader.attach(consumer)
    while len(consumer.got) < len(lsns):
        broker.loop.settle()
        settle(broker.log)
        broker.log.flush()
    assert consumer.got == lsns


class Created(Unsynced):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def create(self, path: Path) -> int:
        self.names.append(path.name)
        return super().create(path)


def test_a_fully_needed_incompressible_segment_is_not_rewritten(tmp_path: Path) -> None:
    """Not a byte of it is written; and what says that is asked for once, not each minute."""
    files = Created()
    broker = Broker(tmp_path / "data", files=files)
    feed = broker.queue("stuck")
    lsns = [lsn for _ in range(40) for lsn in broker.publish(feed, 60)]
    broker.tend()
    filled = [segment for segment in broker.log._segments.live[:-1] if segment.base_lsn <= lsns[-1]]
    assert len(filled) > 10
    assert not any(segment.sealed for segment in filled)
    assert all(segment.looked_for >= 0 for segment in filled), "each was looked at"
    assert not {segment.path.name + ".new" for segment in filled} & set(files.names)
    assert {record.lsn for record in _records(broker, lsns)} == set(lsns)
    broker.log.close_sync()


def test_of_a_large_segment_samples_are_looked_at() -> None:
    """It left the page cache long ago: 4 MiB are read of it, not 128."""
    marks = Marks()
    for offset in range(WAL_HEAD_BYTES, 128 << 20, 90_000):
        marks.add(offset, offset, 0)
    found = samples(marks, 128 << 20)
    assert len(found) == 16
    assert {place for sample in found for place in sample} <= {*marks.offsets, 128 << 20}, "whole batches"
    assert all(256 * KIB <= behind - begin < 350 * KIB for begin, behind in found)
    assert found[0][0] == WAL_HEAD_BYTES
    assert found[-1][0] > 110 << 20


@pytest.mark.parametrize(
    "places", [[], [WAL_HEAD_BYTES], [WAL_HEAD_BYTES, 70_000], [100_000, 300_000, 400_000]]
)
def test_of_a_small_segment_everything_is(places: list[int]) -> None:
    marks = Marks()
    for offset in places:
        marks.add(offset, offset, 0)
    found = samples(marks, 600_000)
    assert found[0][0] == WAL_HEAD_BYTES
    assert found[-1][1] == 600_000
    assert all(behind == begin for (_, behind), (begin, _) in pairwise(found))


class Readings(Broker):
    """Its messages are alike, as those of sensors are."""

    def body(self, size: int) -> bytes:
        return (b'{"sensor": "hall/3", "raw": "%b"}' % self.random.randbytes(90).hex().encode()).ljust(size)


@pytest.mark.parametrize("clean", [True, False])
def test_survivors_are_compressed_and_read_as_before(tmp_path: Path, clean: bool) -> None:
    broker = Readings(tmp_path / "data")
    feed = broker.queue("stuck")
    lsns = [lsn for _ in range(40) for lsn in broker.publish(feed, 60)]
    bodies = {record.lsn: record.body for record in _records(broker, lsns)}
    broker.tend()
    sealed = [segment for segment in broker.log._segments.live if segment.sealed]
    assert len(sealed) > 10
    assert sum(segment.end for segment in sealed) < len(sealed) * 64 * KIB / 3, "all of it is still needed"
    broker.restart(clean=clean)
    for index in (tmp_path / "data").rglob("*.tix"):
        index.unlink()  # what lies in blocks is found by a scan, too
    broker.restart(clean=clean)
    assert {record.lsn: record.body for record in _records(broker, lsns)} == bodies
    assert broker.consume("stuck") == lsns
    broker.log.close_sync()
    assert verify(Folder(broker.path), io.StringIO()) == 0


def test_a_segment_of_several_blocks_is_scanned_as_it_was_written(tmp_path: Path) -> None:
    """As after a kill between its rewriting and its new index."""
    broker = Readings(tmp_path / "data", segment_bytes=1024 * KIB)
    feed = broker.queue("stuck")
    lsns = [lsn for _ in range(80) for lsn in broker.publish(feed, 60)]
    broker.tend()
    broker.restart(clean=False)
    sealed = next(segment for segment in broker.log._segments.live if segment.sealed)
    (read,) = [
        each
        for each in segments(Folder(broker.path))
        if isinstance(each, SegmentFile) and each.number == sealed.number
    ]
    assert len({each.offset for each in batches(read) if isinstance(each, Found)}) > 3, "blocks"
    (tmp_path / f"data/shard-000/index/{sealed.number:010}.tix").unlink()
    broker.restart(clean=False)
    assert broker.consume("stuck") == lsns
    broker.log.close_sync()
    assert verify(Folder(broker.path), io.StringIO()) == 0
    damaged = bytearray(sealed.path.read_bytes())
    damaged[WAL_HEAD_BYTES + 200] ^= 1
    sealed.path.write_bytes(damaged)
    told = io.StringIO()
    assert verify(Folder(broker.path), told) == 1, told.getvalue()
    assert f"byte {WAL_HEAD_BYTES}: blob CRC" in told.getvalue()


def test_the_tools_read_what_is_in_blocks(tmp_path: Path) -> None:
    broker = Readings(tmp_path / "data")
    feed = broker.queue("stuck")
    lsns = [lsn for _ in range(20) for lsn in broker.publish(feed, 60)]
    broker.tend()
    broker.log.close_sync()
    wanted = Span(first=lsns[100], last=lsns[200])
    found = [
        record.lsn
        for segment in segments(Folder(broker.path))
        if isinstance(segment, SegmentFile)
        for each in batches(segment, wanted)
        if isinstance(each, Found) and each.batch.kind == RECORDS
        for record in map(each.batch.record, range(each.batch.count))
        if wanted.first <= record.lsn <= wanted.last
    ]
    assert found == lsns[100:201]


def test_a_compressed_segment_is_rewritten_again(tmp_path: Path) -> None:
    broker = Readings(tmp_path / "data")
    feed, other = broker.queue("stuck"), broker.queue("other")
    kept = []
    for _ in range(40):
        kept += broker.publish(feed, 10)
        broker.publish(other, 60)
    broker.tend()
    sealed = [segment for segment in broker.log._segments.live if segment.sealed]
    assert len(sealed) > 10
    before = sum(segment.end - WAL_HEAD_BYTES for segment in sealed)
    broker.consume("other")
    broker.tend()
    assert sum(segment.end - WAL_HEAD_BYTES for segment in sealed) < before / 2
    assert broker.consume("stuck") == kept


def test_entries_missing_in_the_index_are_found_in_blocks(tmp_path: Path) -> None:
    broker = Readings(tmp_path / "data")
    feed = broker.queue("stuck")
    lsns = [lsn for _ in range(20) for lsn in broker.publish(feed, 60)]
    broker.tend()
    broker.restart()
    for index in (tmp_path / "data").rglob("*.fdx"):
        index.unlink()
    assert broker.consume("stuck") == lsns


def _records(broker: Broker, lsns: list[int]) -> list[Record]:
    found: dict[int, Record] = {}
    for lsn in lsns:
        if lsn not in found:
            segment = broker.log.segment_of(lsn)
            assert segment is not None
            for batch in broker.log.reader.read(segment, lsn):
                found.update({batch.base_lsn + i: batch.record(i) for i in range(batch.count)})
    return [found[lsn] for lsn in lsns]


def test_records_that_stay_can_be_read_at_every_moment(broker: Broker) -> None:
    lsns, _ = fill(broker)
    stop = threading.Event()
    missed: list[int] = []
    reads = 0

    def read() -> None:
        nonlocal reads
        rng = random.Random(2)
        while not stop.is_set():
            lsn = rng.choice(lsns)
            segment = broker.log.segment_of(lsn)
            assert segment is not None
            batches = broker.log.reader.read(segment, lsn)
            reads += 1
            if not any(batch.base_lsn <= lsn < batch.base_lsn + batch.count for batch in batches):
                missed.append(lsn)

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        broker.tend()
        stop.set()
        for reader in readers:
            reader.result()
    assert broker.log.statistics()["segments_sealed"] > 10
    assert reads > 10
    assert missed == []


class FullForSeals(Unsynced):
    """No room for a rewritten segment, until there is."""

    full = True

    def write_all(self, fd: int, data: bytes, offset: int) -> None:
        name = os.readlink(f"/proc/self/fd/{fd}")
        if self.full and name.endswith(".wal.new"):
            super().write_all(fd, data[: len(data) // 2], offset)
            raise FULL
        super().write_all(fd, data, offset)


def test_a_full_disk_leaves_the_segments_as_they_were_until_there_is_room(tmp_path: Path) -> None:
    files = FullForSeals()
    broker = Broker(tmp_path / "data", files=files)
    lsns, _ = fill(broker)
    before = broker.bytes()
    broker.tend()
    assert broker.log.failed is None
    assert broker.log.statistics()["segments_sealed"] == 0
    assert not list(tmp_path.rglob("*.wal.new"))
    files.full = False
    broker.tend()
    assert broker.bytes() < before / 3
    assert broker.consume("stuck") == lsns


def test_verify_and_inspect_know_sealed_segments(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    fill(broker)
    broker.tend()
    broker.log.close_sync()
    assert verify(Folder(broker.path), sys.stdout) == 0, capsys.readouterr().out


def sealed_segment(kind: type[Broker], folder: Path) -> tuple[Broker, Path, Path]:
    """A broker whose log is closed, one of its sealed segments, and that segment's index."""
    broker = kind(folder / "data")
    fill(broker)
    broker.tend()
    sealed = [segment for segment in broker.log._segments.live if segment.sealed and segment.end > 4300]
    broker.log.close_sync()
    return broker, sealed[0].path, broker.path / f"shard-000/index/{sealed[0].number:010}.tix"


@pytest.mark.parametrize("kind", [Broker, Readings])
def test_every_flipped_byte_of_a_sealed_segment_is_found(tmp_path: Path, kind: type[Broker]) -> None:
    broker, path, index = sealed_segment(kind, tmp_path)
    good = path.read_bytes()
    assert (good[WAL_HEAD_BYTES + 17] == BLOCK) == (kind is Readings)
    index.unlink()  # so that the segment is scanned
    rng = random.Random(1)
    places = sorted({*range(4096, 4096 + 200), *(rng.randrange(len(good)) for _ in range(60)), len(good) - 1})
    for at in places:
        damaged = bytearray(good)
        damaged[at] ^= 0x20
        path.write_bytes(damaged)
        index.unlink(missing_ok=True)
        with pytest.raises(StartError):
            open_log(broker.path)
    path.write_bytes(good)
    open_log(broker.path).close_sync()


@pytest.mark.parametrize("kind", [Broker, Readings])
def test_every_cut_of_the_last_batch_of_a_sealed_segment_is_found(tmp_path: Path, kind: type[Broker]) -> None:
    broker, path, index = sealed_segment(kind, tmp_path)
    good = path.read_bytes()
    for length in range(len(good) - 96, len(good)):
        path.write_bytes(good[:length])
        index.unlink(missing_ok=True)
        with pytest.raises(StartError):
            open_log(broker.path)
    path.write_bytes(good)
    open_log(broker.path).close_sync()


def test_many_queues_are_asked_in_slices(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_SWEEP_AT_ONCE", 10)
    feeds = [broker.queue(f"q{i}") for i in range(25)]
    lsns = [broker.publish(feed, 1)[0] for feed in feeds]
    needs, alike = (Needs(1, broker.log.appender.next_lsn) for _ in range(2))
    for feed, lsn in zip(feeds, lsns, strict=True):
        alike.need_feed(feed.id, lsn, 2**64 - 1)
    done: list[bool] = []
    broker.world.queues.needs(needs, lambda: done.append(True))
    assert not done, "the loop has other things to do in between"
    broker.loop.settle()
    assert done == [True]
    assert needs.signature() == alike.signature()
