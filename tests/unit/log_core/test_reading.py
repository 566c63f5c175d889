"""Reads of evicted data: batches, feed entries, positions by time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.log_core.batch._batch import LOST
from tests.support.logs import (
    KIB,
    append,
    batch_of,
    body_of,
    durable_feed,
    fill,
    load_entries,
    open_log,
    settle,
    wait,
)


def test_records_that_left_the_tail_are_read_back_without_displacing_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    feed = durable_feed(log)
    lsns = []
    for number in range(2000):
        lsns.append(append(log, [feed], b"%d" % number * 50))
        log.flush()
    tail = log.cache.tail_start
    assert tail > lsns[500]
    for number in (0, 1, 250, 499, 3):
        assert log.cache.get(lsns[number]) is None or number in (1, 3)
        assert body_of(log, lsns[number]) == b"%d" % number * 50
    assert log.cache.tail_start == tail
    assert log.statistics()["read_bytes"] <= log.options.read_cache_bytes + 64 * KIB
    log.close_sync()


@pytest.mark.parametrize("read_cache", [64 * KIB, 8192 * KIB])
def test_read_ahead_does_not_evict_requested_batches(tmp_path: Path, read_cache: int) -> None:
    log = open_log(tmp_path, segment_bytes=65536 * KIB, read_cache_bytes=read_cache)
    feed = durable_feed(log)
    lsns = fill(log, feed, 1500 * KIB)
    lsns.append(append(log, [feed], bytes(9000 * KIB)))
    log.flush()
    lsns += fill(log, feed, 1500 * KIB)
    for lsn in lsns[::10]:
        assert batch_of(log, lsn).base_lsn <= lsn
    log.close_sync()


def test_two_that_want_the_same_read_share_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lsn = fill(log, durable_feed(log), 300 * KIB)[0]
    done: list[int] = []
    log.load(lsn, lambda: done.append(1))
    log.load(lsn, lambda: done.append(2))
    wait(log, lambda: len(done) == 2)
    assert done == [1, 2]
    log.load(lsn + 1, lambda: done.append(3))
    wait(log, lambda: len(done) == 3)
    assert log.statistics()["cold_reads"] == 1
    log.close_sync()


def test_a_position_that_is_not_written_yet_is_waited_for(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    done: list[bool] = []
    lsn = append(log, [log.new_feed()], b"x")
    log.load(lsn, lambda: done.append(True))
    assert not done
    log.flush()
    assert done and log.cache.get(lsn) is not None
    log.close_sync()


def test_a_position_that_is_gone_comes_as_lost(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, durable_feed(log), 100 * KIB)
    lsn = append(log, [], b"x")
    log.flush()
    log._segments.live.pop(0).path.unlink()
    batch = batch_of(log, 1)
    assert (batch.kind, batch.base_lsn, batch.record(0).body) == (LOST, 1, b"")
    assert body_of(log, lsn) == b"x"
    log._housekeeping.busy = True
    log.close_sync()


def test_entries_beyond_the_budget_are_spilled_and_come_back(tmp_path: Path) -> None:
    log = open_log(tmp_path, feed_cache_bytes=1000)
    feed = durable_feed(log)
    lsns = fill(log, feed, 600 * KIB)
    transient = append(log, [feed], b"transient", 0)
    lsns += [transient, *fill(log, feed, 100 * KIB)]
    settle(log)
    log.tend(1 << 60)
    assert log.statistics()["feed_bytes"] <= 1000
    assert not feed.is_resident(0)
    assert feed.positions(0, 1) == []
    seen: list[int] = []
    while len(seen) < len(lsns):
        load_entries(log, feed, len(seen))
        seen += feed.positions(len(seen), 1 << 20)
        log.tend(1 << 60)
        assert log.statistics()["feed_bytes"] <= 3000
    assert seen == lsns
    assert feed.index_of(lsns[100]) == 100
    log.close_sync()


def test_a_feed_index_lost_while_running_is_replaced_by_the_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, feed_cache_bytes=0)
    feed = durable_feed(log)
    lsns = fill(log, feed, 200 * KIB)
    settle(log)
    log.tend(1 << 60)
    assert not feed.is_resident(0)
    for path in (tmp_path / "shard-000" / "index").glob("*.fdx"):
        path.unlink()
    load_entries(log, feed, 0)
    assert feed.positions(0, 20) == lsns[:20]
    log.close_sync()


def test_a_position_is_found_by_time(tmp_path: Path) -> None:
    now = [1000.0]
    log = open_log(tmp_path, clock=lambda: now[0])
    feed = durable_feed(log)
    by_time = []
    for _ in range(300):
        by_time.append((int(now[0] * 1000), append(log, [feed], bytes(900))))
        log.flush()
        now[0] += 1
    settle(log)
    for time_ms, lsn in by_time[::7]:
        assert log.position_for_time(time_ms) == lsn
        assert log.position_for_time(time_ms - 999) == lsn
    assert log.position_for_time(0) == by_time[0][1]
    assert log.position_for_time(int(now[0] * 1000)) == log.appender.next_lsn
    log.close_sync()
    log = open_log(tmp_path)
    assert log.recovery.clean
    for time_ms, lsn in by_time[::31]:
        assert log.position_for_time(time_ms) == lsn
    log.close_sync()


@pytest.mark.parametrize("back", [1, 1000])
def test_a_clock_that_is_set_back_loses_no_position(tmp_path: Path, back: int) -> None:
    now = [10_000.0]
    log = open_log(tmp_path, clock=lambda: now[0])
    feed = durable_feed(log)
    first = append(log, [feed], b"x")
    log.flush()
    now[0] -= back
    second = append(log, [feed], b"y")
    log.flush()
    assert log.position_for_time(10_000_000) == first
    assert log.position_for_time(int(now[0] * 1000)) == first
    batch = log.cache.get(second)
    assert batch is not None
    assert batch.base_ts in (10_000_000, int(now[0] * 1000))
    log.close_sync()


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_segment_is_read_without_its_index_of_places(tmp_path: Path, damage: str) -> None:
    """The messages are not damaged: none is given up."""
    log = open_log(tmp_path)
    feed = durable_feed(log)
    lsns = fill(log, feed, 256 * 1024)
    settle(log)
    segment = log._segments.find(lsns[25])
    assert segment is not None and segment.indexed and log.cache.get(lsns[25]) is None
    path = log.reader._folder.time_index(segment.number)
    if damage == "cut":
        os.truncate(path, 100)
    else:
        path.unlink()
    assert body_of(log, lsns[25]) == bytes(400)
    log.close_sync()
