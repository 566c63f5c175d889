"""A search by content finds exactly what a look at each record finds, however it is cut into pieces."""

from __future__ import annotations

import tempfile
from array import array
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log_core.batch._batch import PERSISTENT, Record
from penstock.log_core.files.layout import WAL_HEAD_BYTES
from penstock.log_core.history._content import Content
from penstock.log_core.history._history import KeyScan
from penstock.log_core.history.content_search import Reached, SearchLimits
from penstock.log_core.log import Log
from penstock.log_core.threads._pace import Pace
from tests.support.logs import open_log
from tests.support.pasts import Wanted
from tests.support.small_broker import Broker

KEYS = [b"", b"a", b"topic/1"]
WORDS = [b"", b"one", b"two", b"onetwo", b"\0\xff"]
WHOLE = SearchLimits(1 << 40, 60)
RECORD = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from(WORDS),
    st.sampled_from(WORDS),
    st.sets(st.integers(0, 2), max_size=3),
)


def look(
    log: Log,
    span: tuple[int, int],
    content: Content,
    wanted: Wanted,
    most: int = 1000,
    limits: SearchLimits = WHOLE,
) -> tuple[list[Record], Reached]:
    """The records of one search, and how far it came."""
    found: list[Record] = []
    ended: list[Reached | None] = []

    def take(record: Record) -> bool:
        if len(found) == most:
            return False
        found.append(record)
        return True

    log.search_content(span, wanted, content, limits, take, ended.append)
    log.flush()
    while not ended:
        log._inbox.wait()
    assert ended[0] is not None
    return found, ended[0]


@settings(max_examples=60)
@given(
    ticks=st.lists(st.lists(RECORD, max_size=40), max_size=10),
    keys=st.sets(st.sampled_from(KEYS)),
    properties=st.lists(st.lists(st.sampled_from(WORDS[1:]), min_size=1, max_size=2), max_size=2),
    body=st.sampled_from(WORDS),
    feeds=st.none() | st.sets(st.integers(0, 2)),
    cut=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    most=st.integers(1, 50),
)
def test_a_search_finds_what_a_look_at_each_record_finds(
    ticks: list[list[tuple[bytes, bytes, bytes, set[int]]]],
    keys: set[bytes],
    properties: list[list[bytes]],
    body: bytes,
    feeds: set[int] | None,
    cut: tuple[int, int],
    most: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(Path(folder), segment_bytes=16384)
        there = [log.new_feed(keeps=True) for _ in range(3)]
        published = []
        for tick in ticks:
            for key, props, content, places in tick:
                target = log.target([there[place] for place in sorted(places)], False)
                padded = content + bytes(90)
                lsn = log.appender.append_record(0, target, key, b"p" + props, padded)
                published.append((lsn, key, b"p" + props, padded, {there[place].id for place in places}))
            log.tables.put("t", b"k", b"v")
            log.flush()
        first, last = min(cut), min(max(cut), log.appender.next_lsn)
        ids = None if feeds is None else {there[place].id for place in feeds}
        expected = [
            lsn
            for lsn, key, props, content, places in published
            if first <= lsn < last
            and key in keys
            and all(any(word in props for word in alternatives) for alternatives in properties)
            and body in content
            and (ids is None or ids & places)
        ]
        found: list[int] = []
        while first < last:
            records, reached = look(
                log, (first, last), Content(properties, body, feeds=ids), Wanted(keys, set()), most
            )
            assert reached.lsn == last or len(records) == most, "it ends early only when it has enough"
            assert first < reached.lsn
            found += [record.lsn for record in records]
            first = reached.lsn
        assert found == expected
        log.close_sync()


def test_sealed_segments_are_searched_as_the_others(tmp_path: Path) -> None:
    """Segments that were rewritten, and compressed, with the messages of a queue that nobody reads."""
    broker = Broker(tmp_path)
    kept, busy = broker.queue("kept"), broker.queue("busy")
    published: list[tuple[int, bytes]] = []
    for number in range(40):
        lsn = broker.log.appender.append_record(
            0, broker.log.target([kept], True), b"key", b"n%d" % (number % 4), bytes(20_000), PERSISTENT
        )
        published.append((lsn, b"n%d" % (number % 4)))
        broker.publish(busy, 60)
        broker.consume("busy")
    broker.tend()
    assert broker.log.statistics()["segments_sealed"] > 10
    assert broker.bytes() < 40 * 20_000 / 2, "they are compressed"
    span, wanted = (1, broker.log.appender.next_lsn), Wanted({b"key"}, set())
    for name in (b"n0", b"n3"):
        records, reached = look(broker.log, span, Content([[name]], feeds={kept.id}), wanted)
        assert [record.lsn for record in records] == [lsn for lsn, props in published if props == name]
        assert all(len(record.body) == 20_000 for record in records)
        assert (reached.lsn, reached.damaged) == (span[1], 0)
    few, reached = look(broker.log, span, Content([[b"n0"]], feeds={kept.id}), wanted, most=3)
    assert len(few) == 3
    rest, _ = look(broker.log, (reached.lsn, span[1]), Content([[b"n0"]], feeds={kept.id}), wanted)
    assert [record.lsn for record in (*few, *rest)] == [lsn for lsn, props in published if props == b"n0"]
    assert look(broker.log, span, Content(body=b"no such text"), wanted)[0] == []
    broker.log.close_sync()


def test_times_are_those_of_records(tmp_path: Path) -> None:
    now = [1_000_000]
    log = open_log(tmp_path, clock=lambda: now[0] / 1000)
    for _ in range(5):
        log.appender.append_record(0, log.target([], False), b"a")
        log.flush()
        now[0] += 1000
    span = 1, log.appender.next_lsn
    records, _ = look(log, span, Content(since_ms=1_001_000, until_ms=1_003_000), Wanted({b"a"}, set()))
    assert [record.ts for record in records] == [1_001_000, 1_002_000]
    log.close_sync()


def test_a_search_ends_after_so_many_bytes_and_goes_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=4 << 20)
    for number in range(300):
        body = b"%d" % number + bytes(16384)
        log.appender.append_record(0, log.target([], False), b"a", body=body)
        log.flush()
    found, steps, first = [], 0, 1
    while first < log.appender.next_lsn:
        span, limits = (first, log.appender.next_lsn), SearchLimits(1 << 20, 60)
        records, reached = look(log, span, Content(body=b"299"), Wanted({b"a"}, set()), limits=limits)
        assert reached.nbytes < 4 << 20
        found += records
        steps, first = steps + 1, reached.lsn
    assert steps > 2 and [record.body[:3] for record in found] == [b"299"]
    log.close_sync()


def test_a_search_rests_behind_short_steps_and_ends_when_it_is_told(tmp_path: Path) -> None:
    """Also where somebody waits for a confirm meanwhile, which here never comes."""
    log = open_log(tmp_path, segment_bytes=64 << 20)
    for _ in range(32):
        log.appender.append_record(0, log.target([], False), b"a", body=bytes(1 << 17))
        log.flush()
    segment = log.segments_from(1)[0]
    ends = array("Q", [segment.end])

    def passed(pace: Pace) -> int:
        scan = KeyScan(0, content=Content(body=b"nowhere"), pace=pace)
        span = WAL_HEAD_BYTES, 1, 1 << 40, segment.base_lsn
        with open(segment.path, "rb") as file:
            _, _, unknown = scan.pass_over(file.fileno(), ends, *span, 60, True)
            for enc, key in unknown:
                scan.decide(enc, key, 1)
            return scan.pass_over(file.fileno(), ends, *span, 60, True)[0]

    alone = log.pace()
    assert passed(alone) == 1 and alone.rests >= 32
    log.waiting_synced.add(1 << 40, lambda ok: None)
    beside = log.pace()
    assert passed(beside) == 1 and beside.rests >= 32
    beside.stop()
    assert passed(beside) == 0
    log.close_sync()
