"""Retention deletes segments, and leaves those that checkpoints, queues and limits need."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from penstock.log_core.batch._batch import EVENTS, LOST, PERSISTENT
from penstock.log_core.files.layout import TIME_INDEX, read_sealed, write_sealed
from penstock.log_core.log import Log
from penstock.log_core.maintenance.retention import Retention, given_up, kept
from penstock.log_core.maintenance.upkeep import deletable
from penstock.log_core.segments.segment import EVERYBODY, OWN, Segment
from tests.support.logs import (
    KIB,
    Unsynced,
    append,
    batch_of,
    body_of,
    durable_feed,
    fill,
    keep_house,
    open_log,
    settle,
)

NOBODY = (1 << 64) - 1


def _segments(count: int, size: int = 1000) -> list[Segment]:
    """Closed segments of 100 LSNs and one second each, and an active one."""
    made = []
    for number in range(count + 1):
        segment = Segment(number + 1, Path(), number * 100 + 1, 1, number * 100 + 101, end=size)
        segment.indexed = number < count
        segment.max_ts = number * 1000
        segment.held = {0: size}
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
        pytest.param(301, NOBODY - 1, 0, 4000, 1e9, 1, id="it is the youngest that are kept"),
    ],
)
def test_the_oldest_segments_that_nobody_needs_go(
    low_water: int, checkpoint: int, now_ms: int, keep_bytes: int, keep_s: float, gone: int
) -> None:
    segments = _segments(5)
    retained = kept(segments, now_ms, lambda lp: Retention(keep_bytes, keep_s), NOBODY)
    assert deletable(segments, low_water, checkpoint, retained.lowest) == gone


def _shared(*held: dict[int, int]) -> list[Segment]:
    segments = _segments(len(held))
    for segment, bytes_of in zip(segments, held, strict=False):
        segment.held = {OWN: 96, **bytes_of}
    return segments


def test_each_partition_has_limits_of_its_own() -> None:
    segments = _shared({1: 500, 2: 100}, {1: 500, 2: 100}, {2: 100}, {1: 500, 2: 100})
    limits = {1: Retention(1000, 1e9), 2: Retention(10_000, 2.5)}
    retained = kept(segments, 4000, limits.__getitem__, NOBODY)
    assert retained.first_of(1) == segments[1].base_lsn, "its 1,000 youngest bytes"
    assert retained.first_of(2) == segments[2].base_lsn, "what is younger than 2.5 s"
    assert retained.first_of(3) == retained.default == segments[-1].base_lsn, "it has nothing"
    assert retained.lowest == segments[1].base_lsn
    assert [retained.unwanted(segment) for segment in segments[:4]] == [{1, 2, OWN}, {2}, set(), set()]
    leased = kept(segments, 4000, limits.__getitem__, segments[1].base_lsn)
    assert [leased.unwanted(segment) for segment in segments[:4]] == [{1, 2, OWN}, set(), set(), set()]
    assert kept(segments, 4000, limits.__getitem__, 1).lowest == 1


def test_a_thinned_partition_is_complete_only_after_that_segment() -> None:
    segments = _shared({1: 10, 2: 10}, {1: 10, 2: 10}, {1: 10, 2: 10})
    everything = Retention(1 << 40, 1e9)
    segments[1].sealed, segments[1].thinned = True, {2}
    retained = kept(segments, 0, lambda lp: everything, NOBODY)
    assert retained.first_of(1) == segments[0].base_lsn
    assert retained.first_of(2) == segments[2].base_lsn
    segments[1].thinned = {EVERYBODY}
    assert kept(segments, 0, lambda lp: everything, NOBODY).lowest == segments[2].base_lsn


@pytest.mark.parametrize(("short", "goes"), [(0, 0), (1, 2), (1000, 2), (1001, 3), (99_999, 4)])
def test_a_disk_that_is_short_gets_the_oldest_traffic(short: int, goes: int) -> None:
    segments = _segments(4)
    segments[0].sealed, segments[0].thinned = True, {EVERYBODY}
    below = given_up(segments, short)
    assert below == (segments[goes].base_lsn if goes else 1), "what was thinned of all frees nothing"
    retained = kept(segments, 0, lambda lp: Retention(1 << 40, 1e9), NOBODY, below)
    assert retained.lowest == segments[max(goes, 1)].base_lsn
    assert kept(segments, 0, lambda lp: Retention(1 << 40, 1e9), 150, below).lowest <= 150


def test_while_it_is_not_known_whose_bytes_are_in_a_segment_everything_is_wanted() -> None:
    segments = _shared({1: 10}, {1: 10})
    segments[1].held = None
    assert kept(segments, 0, lambda lp: Retention(0, 0), NOBODY).lowest == segments[0].base_lsn


def test_a_segment_without_its_index_stays_and_holds_those_behind_it() -> None:
    segments = _segments(5)
    segments[2].indexed = False
    assert deletable(segments, NOBODY, NOBODY - 1, NOBODY) == 2


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


def test_records_that_a_queue_needs_are_kept_at_any_size(tmp_path: Path) -> None:
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


def test_an_idle_log_lets_go_of_what_only_its_checkpoints_keep(tmp_path: Path) -> None:
    now = [1000.0]
    log = open_log(tmp_path, clock=lambda: now[0], checkpoint_bytes=1 << 40)
    log.low_water = lambda: NOBODY
    fill(log, durable_feed(log), 260 * KIB)
    settle(log)
    for _ in range(4):
        log.tend(1 << 50)
        settle(log)
    assert len(log._segments.live) > 4 and log._housekeeping.checkpoints == [], "not each second"
    for _ in range(4):
        now[0] += 61
        log.tend(1 << 50)
        settle(log)
    assert len(log._segments.live) == 1
    done = list(log._housekeeping.checkpoints)
    for _ in range(4):
        now[0] += 61
        log.tend(1 << 50)
        settle(log)
    assert log._housekeeping.checkpoints == done, "an idle log writes nothing"
    log.close_sync()


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


def _two_partitions(log: Log, rounds: int, random: Random) -> dict[int, list[int]]:
    """Records of partitions 1 and 2 that no queue needs, in turns, each in a tick of its own."""
    target = log.target([], True)
    lsns: dict[int, list[int]] = {1: [], 2: []}
    for _ in range(rounds):
        for lp, of_it in lsns.items():
            body = random.randbytes(8000)
            of_it.append(log.appender.append_record(lp, target, b"key", b"", body, PERSISTENT))
            log.flush()
    settle(log)
    return lsns


def _tend(log: Log, times: int = 40) -> None:
    for _ in range(times):
        keep_house(log)


@pytest.mark.parametrize("clean", [True, False])
def test_the_traffic_of_one_partition_goes_while_that_of_another_stays(tmp_path: Path, clean: bool) -> None:
    now = [1000.0]
    options = {"traffic_retention_bytes": 1 << 40, "traffic_retention_s": 1e6, "checkpoint_bytes": 64 * KIB}
    log = open_log(tmp_path, clock=lambda: now[0], **options)
    log.low_water, log.mark_needs = lambda: NOBODY, lambda needs, done: done()
    old = _two_partitions(log, 40, Random(1))
    _tend(log)
    held = {lp: log.held_bytes(lp) for lp in (1, 2, OWN)}
    assert all(40 * 8000 < held[lp] < 40 * 8200 for lp in (1, 2))
    assert held[1] + held[2] + held[OWN] + 4096 * len(log._segments.live) == _ends(log)
    now[0] += 1000
    log.retain_traffic(1, None, 500.0)
    young = _two_partitions(log, 20, Random(2))
    _tend(log)
    held = {lp: log.held_bytes(lp) for lp in (1, 2, OWN)}
    # The records of the segment that was active when time passed are young and old.
    assert 20 * 8000 < held[1] < 30 * 8200 and 60 * 8000 < held[2] < 60 * 8200
    assert log.first_lsn(2) <= old[2][0] < log.first_lsn(1) <= young[1][0]
    if clean:
        log.close_sync()
    else:
        log._closed = True
        settle(log)
        _abandon(log)
    again = open_log(tmp_path, clock=lambda: now[0], **options)
    again.retain_traffic(1, None, 500.0)
    assert again.first_lsn(2) <= old[2][0] < again.first_lsn(1) <= young[1][0]
    assert {lp: again.held_bytes(lp) for lp in (1, 2)} == {lp: held[lp] for lp in (1, 2)}
    assert [len(body_of(again, lsn)) for lsn in (*old[2], *young[1])] == [8000] * 60
    assert batch_of(again, old[1][0]).kind == LOST
    again.low_water, again.mark_needs = lambda: NOBODY, lambda needs, done: done()
    again.usual_retention = Retention(0, 1e6)
    _tend(again)
    assert again.first_lsn(2) > old[2][-1]
    again.close_sync()


def test_events_have_a_retention_of_their_own_though_they_are_in_no_feed(tmp_path: Path) -> None:
    options = {"traffic_retention_bytes": 1 << 40, "checkpoint_bytes": 64 * KIB}
    log = open_log(tmp_path, **options)
    log.low_water, log.mark_needs = lambda: NOBODY, lambda needs, done: done()
    log.retain_traffic(EVENTS, 0, None)
    nowhere = log.target((), False)
    lsns: dict[int, list[int]] = {1: [], EVENTS: []}
    for _ in range(60):
        for lp, of_it in lsns.items():
            of_it.append(log.appender.append_record(lp, nowhere, b"", b"", bytes(8000)))
            log.flush()
    settle(log)
    while log.first_lsn(EVENTS) <= lsns[EVENTS][20] or log.held_bytes(EVENTS) >= 40 * 8200:
        _tend(log, 1)  # for as long as the disk takes: the suite's time limit is this loop's
    assert all(batch_of(log, lsn).kind == LOST for lsn in lsns[EVENTS][:3])
    assert [len(body_of(log, lsn)) for lsn in lsns[1]] == [8000] * 60
    log.close_sync()


def _ends(log: Log) -> int:
    return sum(segment.end for segment in log._segments.live)


def _abandon(log: Log) -> None:
    """Let go of the folder as a crash does."""
    log.committer.stop()
    log._reader.close()
    log._wal.close(None)
    log._upkeep.stop()
    os.close(log._wal.fd)
    log._lock.release()


def test_an_index_of_an_older_version_gets_its_partitions_counted(tmp_path: Path) -> None:
    log = open_log(tmp_path, traffic_retention_bytes=1 << 40)
    _two_partitions(log, 20, Random(1))
    log.close_sync()
    before = {segment.number: dict(segment.held or {}) for segment in log._segments.live}
    for path in (tmp_path / "shard-000" / "index").glob("*.tix"):
        _as_version_2(path)
    again = open_log(tmp_path, traffic_retention_bytes=0)
    assert all(segment.held is None for segment in again._segments.live[:-1])
    again.low_water = lambda: 0
    again.tend(1 << 60)
    while any(segment.held is None for segment in again._segments.live):
        settle(again)
    assert {segment.number: segment.held for segment in again._segments.live[:-1]} == before
    again.close_sync()


def _as_version_2(path: Path) -> None:
    """Take the partitions out of a sparse index, and their number out of its head."""
    head, payload = read_sealed(path, TIME_INDEX)
    marks = int.from_bytes(payload[32:40], "little")
    at = 40 + 24 * marks
    payload = payload[:at] + payload[at + 16 * head.flags :]
    write_sealed(Unsynced(), path, replace(head, flags=0), payload, "tix")
