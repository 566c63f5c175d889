"""Which segments go, and that checkpoints, queues and retention keep what they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.log_core.log import Log
from penstock.log_core.segment import Segment
from penstock.log_core.upkeep import deletable
from tests.support.logs import KIB, append, body_of, durable_feed, fill, open_log, settle

NOBODY = (1 << 64) - 1


def _segments(count: int, size: int = 1000) -> list[Segment]:
    """Closed segments of 100 LSNs and one second each, and an active one."""
    made = []
    for number in range(count + 1):
        segment = Segment(number + 1, Path(), number * 100 + 1, 1, number * 100 + 101, end=size)
        segment.indexed = number < count
        segment.max_ts = number * 1000
        made.append(segment)
    return made


@pytest.mark.parametrize(
    ("low_water", "checkpoint", "now_ms", "keep_bytes", "keep_s", "gone"),
    [
        pytest.param(NOBODY, NOBODY - 1, 0, 0, 1e9, 5, id="nothing is kept for replay"),
        pytest.param(NOBODY, NOBODY - 1, 0, 2000, 1e9, 3, id="as many bytes as allowed stay"),
        pytest.param(NOBODY, NOBODY - 1, 0, 2999, 1e9, 3, id="not a byte more"),
        pytest.param(NOBODY, NOBODY - 1, 0, 9999, 1e9, 0, id="within the bytes"),
        pytest.param(NOBODY, NOBODY - 1, 10_000, 9999, 8.5, 2, id="too old"),
        pytest.param(301, NOBODY - 1, 0, 0, 1e9, 3, id="a queue needs the fourth"),
        pytest.param(300, NOBODY - 1, 0, 0, 1e9, 2, id="a queue needs the last of the third"),
        pytest.param(NOBODY, 200, 0, 0, 1e9, 2, id="the checkpoint lies in the third"),
        pytest.param(NOBODY, 199, 0, 0, 1e9, 1, id="the checkpoint does not cover the second"),
        pytest.param(301, NOBODY - 1, 0, 2000, 1e9, 1, id="needed ones do not count as kept"),
    ],
)
def test_the_oldest_segments_that_nobody_needs_go(
    low_water: int, checkpoint: int, now_ms: int, keep_bytes: int, keep_s: float, gone: int
) -> None:
    assert deletable(_segments(5), low_water, checkpoint, now_ms, keep_bytes, keep_s) == gone


def test_a_segment_without_its_index_stays_and_holds_those_behind_it() -> None:
    segments = _segments(5)
    segments[2].indexed = False
    assert deletable(segments, NOBODY, NOBODY - 1, 0, 0, 1e9) == 2


def _wal_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / "shard-000" / "wal").glob("*.wal"))


def _churn(log: Log, times: int) -> list[int]:
    feed = durable_feed(log)
    lsns = []
    for _ in range(times):
        lsns += fill(log, feed, 260 * KIB)
        settle(log)
    settle(log)
    return lsns


def test_consumed_segments_are_deleted_and_their_entries_with_them(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.low_water = lambda: NOBODY
    lsns = _churn(log, 8)
    feed = next(iter(log.feeds.values()))
    assert feed.start > 0
    assert feed.positions(feed.start, 1) == [lsns[feed.start]]
    assert _wal_bytes(tmp_path) < 900 * KIB
    numbers = {path.stem for path in (tmp_path / "shard-000" / "wal").glob("*.wal")}
    indexed = {path.stem for path in (tmp_path / "shard-000" / "index").iterdir()}
    assert indexed <= numbers
    log.close_sync()
    again = open_log(tmp_path)
    assert again.recovery.clean and again.recovery.warnings == []
    feed = again.feed(feed.id)
    assert feed.end - feed.start <= len(lsns)
    assert body_of(again, lsns[-1]) == bytes(400)
    again.close_sync()


def test_what_a_queue_needs_is_kept_however_much_it_is(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    feed = durable_feed(log)
    needed = append(log, [feed], b"needed")
    log.low_water = lambda: needed
    _churn(log, 6)
    assert _wal_bytes(tmp_path) > 1500 * KIB
    assert body_of(log, needed) == b"needed"
    log.close_sync()


def test_a_trickle_is_deleted_by_age(tmp_path: Path) -> None:
    now = [1e9]
    log = open_log(
        tmp_path, clock=lambda: now[0], traffic_retention_bytes=1 << 30, traffic_retention_s=3600.0
    )
    log.low_water = lambda: NOBODY
    feed = durable_feed(log)
    first = append(log, [feed], b"old")
    log.flush()
    for hour in range(5):
        assert (feed.start == 0) == (hour < 2), hour
        now[0] += 3601
        log.tend(1 << 60)
        settle(log)
        append(log, [feed], b"newer")
        log.flush()
        settle(log)
        log.tend(1 << 60)
        settle(log)
    assert feed.positions(feed.start, 1) != [first]
    assert len(log._segments.live) <= 3
    log.close_sync()
    again = open_log(tmp_path)
    assert again.recovery.clean
    again.close_sync()


def test_until_somebody_says_what_is_needed_everything_is_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lsns = _churn(log, 5)
    assert body_of(log, lsns[0]) == bytes(400)
    log.close_sync()


def test_consumed_segments_within_retention_can_be_replayed(tmp_path: Path) -> None:
    log = open_log(tmp_path, traffic_retention_bytes=1 << 30, traffic_retention_s=1e6)
    log.low_water = lambda: NOBODY
    lsns = _churn(log, 5)
    assert body_of(log, lsns[0]) == bytes(400)
    log.close_sync()
