"""A disk that is full, slow or broken: publishers wait or all stops, and nothing false is confirmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import LogError, StartError
from penstock.log_core.log import Log
from tests.support.logs import (
    BROKEN,
    FULL,
    KIB,
    FailingFiles,
    append,
    body_of,
    durable_feed,
    fill,
    load_entries,
    open_log,
    settle,
    wait,
)


def _heard(log: Log) -> list[bool]:
    heard: list[bool] = []
    log.on_backpressure.append(heard.append)
    return heard


def test_a_failure_is_told_to_all_whatever_one_of_them_does(tmp_path: Path) -> None:
    """A waiter that writes when it is told, as the end of an MQTT session does, must not hide the failure."""
    files = FailingFiles()
    log = open_log(tmp_path, files)
    feed = durable_feed(log)
    assert log.wait_synced(append(log, [feed], b"safe"))
    log._wal.prepared()
    told: list[object] = []

    def write(ok: bool) -> None:
        told.append(("writes", ok))
        append(log, [feed], b"refused")

    def wrong(*arguments: object) -> None:
        told.append("wrong")
        raise ValueError

    lsn = append(log, [feed], b"lost?")
    log.on_failed += [wrong, lambda: told.append("failed")]
    log.on_backpressure.extend([wrong, lambda paused: told.append(("paused", paused))])
    for callback in (write, wrong, lambda ok: told.append(("synced", ok))):
        log.when_synced(lsn, callback)
    files.sync_error = BROKEN
    log.flush()
    wait(log, lambda: ("paused", True) in told)
    assert told == [
        "wrong",
        "failed",
        ("writes", False),
        "wrong",
        ("synced", False),
        "wrong",
        ("paused", True),
    ]
    files.sync_error = None
    log.close_sync()


def test_a_failed_sync_confirms_nothing_any_more(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path, files)
    feed = durable_feed(log)
    assert log.wait_synced(append(log, [feed], b"safe"))
    log._wal.prepared()  # its sync is not the one that fails
    heard = _heard(log)
    files.sync_error = BROKEN
    confirms: list[bool] = []
    lsn = append(log, [feed], b"lost?")
    log.when_synced(lsn, confirms.append)
    log.flush()
    wait(log, lambda: bool(confirms))
    files.sync_error = None  # a later sync would succeed, and prove nothing
    assert confirms == [False]
    assert isinstance(log.failed, LogError)
    assert heard == [True]
    assert log.synced_lsn < lsn
    log.when_synced(lsn, confirms.append)
    log.when_written(lsn, confirms.append)
    log.when_synced(log.synced_lsn, confirms.append)
    log.flush()
    assert confirms == [False] * 4
    with pytest.raises(LogError, match="the log stopped: a sync failed"):
        append(log, [feed], b"refused")
    syncs = files.syncs
    log.close_sync()
    assert files.syncs == syncs
    assert not (tmp_path / "CLEAN").exists()
    again = open_log(tmp_path)
    assert not again.recovery.clean
    again.close_sync()


def test_a_failed_write_stops_the_log(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path, files)
    feed = durable_feed(log)
    log.flush()
    files.write_error, files.write_most = BROKEN, 0
    confirms: list[bool] = []
    log.when_written(append(log, [feed], b"x"), confirms.append)
    log.flush()
    assert confirms == [False]
    assert log.failed is not None and "a write failed" in str(log.failed)
    log.close_sync()


@pytest.mark.parametrize("taken", [0, 1, 95, 96, 100, 200])
def test_a_full_disk_holds_publishers_and_goes_on_by_itself(tmp_path: Path, taken: int) -> None:
    files = FailingFiles()
    log = open_log(tmp_path, files)
    feed = durable_feed(log)
    log.wait_synced(append(log, [feed], b"before"))
    heard = _heard(log)
    files.write_error, files.write_most = FULL, taken
    confirms: list[bool] = []
    lsns = []
    for number in range(3):
        lsns.append(append(log, [feed], b"%d" % number * 100))
        log.when_synced(lsns[-1], confirms.append)
        log.flush()
    assert heard == [True] and log.paused
    assert log.written_lsn < lsns[-1]
    assert confirms == []
    files.write_error = None
    log.tend(1 << 60)
    wait(log, lambda: len(confirms) == 3)
    assert confirms == [True] * 3
    assert heard == [True, False] and not log.paused
    assert [body_of(log, lsn) for lsn in lsns] == [b"%d" % number * 100 for number in range(3)]
    log.close_sync()
    again = open_log(tmp_path)
    assert [body_of(again, lsn) for lsn in lsns] == [b"%d" % number * 100 for number in range(3)]
    again.close_sync()


def test_records_written_before_the_disk_was_full_are_confirmed(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path, files)
    feed = durable_feed(log)
    written = append(log, [feed], b"written")
    log.flush()
    files.write_error, files.write_most = FULL, 10
    stuck = append(log, [feed], b"stuck")
    log.flush()
    assert log.wait_synced(written)
    assert log.synced_lsn == written < stuck
    log.close_sync()  # without room for the rest it is no clean stop, and does not wait for one
    again = open_log(tmp_path)
    assert not again.recovery.clean
    assert again.recovery.truncated_bytes
    assert body_of(again, written) == b"written"
    again.close_sync()


def test_without_room_for_a_next_file_the_active_one_grows(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path, files)
    log._wal.prepared()
    files.create_error = FULL
    feed = durable_feed(log)
    fill(log, feed, 300 * KIB)
    assert log.failed is None
    assert len(log._segments.live) <= 2
    files.create_error = None
    fill(log, feed, 300 * KIB)
    settle(log)
    assert len(log._segments.live) > 2
    log.close_sync()
    again = open_log(tmp_path)
    assert again.recovery.clean
    again.close_sync()


def test_little_free_space_holds_publishers(tmp_path: Path) -> None:
    log = open_log(tmp_path, FailingFiles(), min_free_bytes=1000)
    heard = _heard(log)
    log.tend(999)
    log.tend(998)
    log.tend(1000)
    assert heard == [True, False]
    log.close_sync()


def test_too_much_that_waits_for_the_disk_holds_publishers(tmp_path: Path) -> None:
    log = open_log(tmp_path, max_unsynced_bytes=100 * KIB)
    heard = _heard(log)
    feed = durable_feed(log)
    drain = log.before_flush
    while not log.paused:
        append(log, [feed], bytes(1000))
        log.before_flush = drain if log.backlog_bytes < 90 * KIB else None  # the disk is not heard of then
        log.flush()
    log.before_flush = drain
    assert log.backlog_bytes > 100 * KIB
    assert heard == [True]
    wait(log, lambda: not log.paused)
    assert heard == [True, False]
    assert log.backlog_bytes <= 50 * KIB
    log.close_sync()


def test_an_index_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path, files)
    feed = durable_feed(log)
    fill(log, feed, 50 * KIB)
    log._wal.prepared()
    files.create_error = FULL
    fill(log, feed, 20 * KIB)
    settle(log)
    closed = log._segments.live[0]
    assert not closed.indexed
    files.create_error = None
    log.tend(1 << 60)
    settle(log)
    assert closed.indexed
    log.close_sync()


def test_a_start_without_room_for_a_segment_serves_what_there_is(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    feed = durable_feed(log)
    lsns = fill(log, feed, 200 * KIB)
    log.close_sync()
    files = FailingFiles()
    files.allocate_most = 4 * KIB
    full = open_log(tmp_path, files)
    assert body_of(full, lsns[0]) == bytes(400)
    more = fill(full, full.feeds[feed.id], 100 * KIB)
    assert full.wait_synced(more[-1])
    files.allocate_most = 1 << 60
    more += fill(full, full.feeds[feed.id], 200 * KIB)
    settle(full)
    full.close_sync()
    again = open_log(tmp_path)
    assert again.recovery.clean and again.recovery.warnings == []
    load_entries(again, again.feeds[feed.id], 0)
    assert again.feeds[feed.id].positions(0, 3) == lsns[:3]
    assert [body_of(again, lsn) for lsn in more[::50]] == [bytes(400) for _ in more[::50]]
    assert again.feeds[feed.id].end == len(lsns + more)
    again.close_sync()


def test_old_traffic_gives_way_to_a_disk_that_runs_short_and_what_is_needed_does_not(tmp_path: Path) -> None:
    log = open_log(tmp_path, FailingFiles(), min_free_bytes=1000, traffic_retention_bytes=1 << 40)
    feed = durable_feed(log)
    lsns = fill(log, feed, 640 * KIB)
    settle(log)
    log.low_water = lambda: lsns[-100]
    log.tend(1 << 40)
    settle(log)
    before = log._segments.live[0].base_lsn
    assert before <= lsns[0], "with room, retention counts"
    room = 1000 + 4 * 64 * KIB
    # Nothing is written meanwhile but what the log writes itself: publishers may be stopped.
    for _ in range(3):
        log.tend(room - 100 * KIB)
        settle(log)
        log.tend(room)
        settle(log)
    first = log._segments.live[0].base_lsn
    assert 100 * KIB < sum(500 for lsn in lsns if lsn < first) < 600 * KIB, (
        "the oldest, and no more than it takes"
    )
    for _ in range(100):
        log.tend(0)
        settle(log)
    assert log.paused
    assert lsns[-100] - 200 < log._segments.live[0].base_lsn <= lsns[-100]
    assert body_of(log, lsns[-100]) == bytes(400)
    log.close_sync()
    again = open_log(tmp_path)
    assert again.recovery.clean and again.recovery.warnings == []
    again.close_sync()


def test_a_full_disk_at_the_start_is_said(tmp_path: Path) -> None:
    files = FailingFiles()
    files.create_error = FULL
    with pytest.raises(StartError, match="no space left for the data folder"):
        open_log(tmp_path, files)
    open_log(tmp_path).close_sync()
