"""Delayed records and the log behind them: what keeps segments, what is moved, what a crash may undo."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.delayed._delays import DueHeap, Key, decode_entry, sorted_entries, total_size
from penstock.log_core.delayed.delays import DueRecord
from penstock.log_core.delayed.listing import BEFORE_ALL, Listed, list_waiting
from penstock.log_core.log import Log
from tests.support.logs import KIB, durable_feed, fill, open_log, settle, wait

YEAR_MS = 365 * 86_400_000


def due_in(log: Log, wait_ms: int, body: bytes = b"x") -> int:
    place = log.delays.add(log.wall_ms() + wait_ms, b"k", b"p", body, flags=PERSISTENT)
    log.flush()
    return place


def tended(log: Log) -> None:
    """Some seconds go by."""
    for _ in range(8):
        settle(log)
        log.reader._pool.submit(lambda: None).result()
        log.tend(1 << 40)


def take(log: Log, now_ms: int) -> list[DueRecord]:
    called: list[bool] = []
    taken = log.delays.take(now_ms, 1000, 1 << 30, lambda: called.append(True))
    while not taken and (log.delays._missing or log.delays._refilling):
        wait(log, lambda: bool(called))
        called.clear()
        taken = log.delays.take(now_ms, 1000, 1 << 30, lambda: called.append(True))
    return taken


def test_a_segment_stays_while_a_delayed_record_in_it_waits(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    feed = durable_feed(log)
    log.low_water = lambda: log.appender.next_lsn
    first = log._wal.segment.path
    due_in(log, YEAR_MS)
    rounds = 0
    while first.exists():
        assert (rounds := rounds + 1) < 20, "one delayed record keeps all of the log"
        fill(log, feed, 256 * KIB)
        tended(log)
    assert log.delays.mover.moved > 0
    (one,) = take(log, log.wall_ms() + YEAR_MS)
    assert one.record is not None and one.record.body == b"x"
    log.close_sync()


def test_segments_of_mostly_delayed_records_are_not_moved(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.low_water = lambda: log.appender.next_lsn
    first = log._wal.segment.path
    for _ in range(300):
        due_in(log, YEAR_MS, bytes(2 * KIB))
    for _ in range(3):
        settle(log)
        log._housekeeping.checkpoint()
        tended(log)
    assert len(log._segments.live) > 8
    assert log.delays.mover.moved == 0 and first.exists()
    log.close_sync()


def test_a_moved_record_comes_once_and_in_its_place(tmp_path: Path) -> None:
    """Also when its old copy is still there after a restart."""
    log = open_log(tmp_path)
    due = log.wall_ms() + 1000
    places = [log.delays.add(due, b"k", b"", b"%d" % i, flags=PERSISTENT) for i in range(3)]
    log.flush()
    settle(log)
    log.file_full()
    segment = log._segments.live[0]
    due_in(log, YEAR_MS)  # something to sync
    tended(log)
    assert segment.indexed
    log.delays.mover.move(segment)
    wait(log, lambda: log.delays.mover._moving is None)
    assert log.delays.mover.moved == 3
    log.delays.add(due, b"k", b"", b"3", flags=PERSISTENT)
    log.flush()
    log.close_sync()
    log = open_log(tmp_path)
    taken = take(log, due)
    assert [one.record.body for one in taken if one.record] == [b"0", b"1", b"2", b"3"]
    assert [one.place for one in taken][:3] == places
    with log.unit():
        log.delays.done(taken)
    log.flush()
    assert take(log, due) == []
    log.close_sync()
    log = open_log(tmp_path)
    assert take(log, due) == []
    log.close_sync()


def test_an_index_that_is_missing_is_made_from_the_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    due_in(log, 1000)
    log.close_sync()
    for path in (tmp_path / "shard-000/index").iterdir():
        path.unlink()
    log = open_log(tmp_path)
    assert log.recovery.warnings
    assert len(take(log, log.wall_ms() + 2000)) == 1
    log.close_sync()


def test_a_record_is_not_taken_before_it_is_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.delays.add(log.wall_ms() - 1, b"k", b"", b"x")
    called: list[bool] = []
    assert log.delays.take(log.wall_ms(), 10, 1000, lambda: called.append(True)) == []
    log.flush()
    assert called and len(take(log, log.wall_ms())) == 1
    log.close_sync()


def test_entries_sort_by_time_then_place_and_the_newer_copy_first() -> None:
    heap = DueHeap()
    for entry in ((5, 1, 1, 10), (3, 9, 9, 10), (3, 2, 2, 10), (3, 2, 7, 10), (-1, 4, 4, 10)):
        heap.push(*entry)
    raw = sorted_entries(heap.encode())
    ordered = [decode_entry(raw, i) for i in range(5)]
    assert ordered == [(-1, 4, 4, 10), (3, 2, 7, 10), (3, 2, 2, 10), (3, 9, 9, 10), (5, 1, 1, 10)]
    assert (heap.last(), total_size(raw), heap.find(3, 2), heap.find(9, 3)) == ((5, 1), 50, 7, 0)
    assert [heap.pop() for _ in range(len(heap))] == ordered
    assert heap.push_between(raw, 3, 2, 5, 0) == 1 and heap.first() == (3, 9)


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_move_under_way_ends_with_the_log(tmp_path: Path, has_begun: bool) -> None:
    log = open_log(tmp_path)
    due_in(log, YEAR_MS)
    settle(log)
    log.file_full()
    segment = log._segments.live[0]
    due_in(log, YEAR_MS)
    tended(log)
    log.delays.mover.move(segment)
    if has_begun:
        # The result of its next read arrives after the log began to close.
        pool, held = log.reader._pool, threading.Event()
        pool.submit(lambda: None).result()
        for _ in range(2):
            pool.submit(held.wait, 20)
        log.flush()
        threading.Timer(0.3, held.set).start()
    log.close_sync()
    log = open_log(tmp_path)
    assert log.recovery.clean
    assert len(take(log, log.wall_ms() + 2 * YEAR_MS)) == 2
    log.close_sync()


def test_one_that_was_read_ahead_can_still_be_cancelled(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    due = log.wall_ms() - 1
    places = [log.delays.add(due, b"k", b"", b"%d" % i) for i in range(3)]
    log.flush()
    (first,) = log.delays.take(due, 1, 1, lambda: None)
    assert log.delays.cancel(due, places[1]) and not log.delays.cancel(due, places[1])
    with log.unit():
        log.delays.done([first])
    assert log.delays.next_due() == due
    taken = take(log, due)
    assert [(one.place, one.record is None) for one in taken] == [(places[1], True), (places[2], False)]
    with log.unit():
        log.delays.done(taken)
    assert (take(log, due), log.delays.waiting, len(log.tables.keys("delay.cancelled"))) == ([], 0, 0)
    log.close_sync()


def test_records_read_ahead_wait_again_when_the_clock_is_set_back(tmp_path: Path) -> None:
    """Then something that is due before it comes before it."""
    log = open_log(tmp_path)
    now = log.wall_ms()
    for wait_ms in (1000, 2000):
        due_in(log, wait_ms, b"%d" % wait_ms)
    assert len(take(log, now + 5000)) == 2  # and it is not published
    assert take(log, now) == []
    due_in(log, 500, b"500")
    taken = take(log, now + 5000)
    assert [one.record.body for one in taken if one.record] == [b"500", b"1000", b"2000"]
    log.close_sync()


def test_a_record_due_before_published_ones_survives_a_restart(tmp_path: Path) -> None:
    """The mark of what was published is behind it."""
    log = open_log(tmp_path)
    now = log.wall_ms()
    due_in(log, 5000, b"first")
    taken = take(log, now + 5000)
    with log.unit():
        log.delays.done(taken)
    due_in(log, 1000, b"late")
    log.close_sync()
    log = open_log(tmp_path)
    (one,) = take(log, now + 5000)
    assert one.record is not None and one.record.body == b"late"
    log.close_sync()


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_an_index_that_is_damaged_while_the_log_is_open_is_made_from_the_segment(
    tmp_path: Path, damage: str
) -> None:
    """Nobody's message stays away for that, and none is cancelled in vain."""
    log = open_log(tmp_path)
    due = log.wall_ms() + 1000
    places = [log.delays.add(due + i, b"k", b"", b"%d" % i, flags=PERSISTENT) for i in range(5)]
    log.flush()
    log.file_full()
    due_in(log, YEAR_MS)  # something to sync
    settle(log)
    segment = log._segments.live[0]
    assert segment in log.delays._stored, "its entries are in the file alone"
    path = log.reader._folder.time_index(segment.number)
    if damage == "cut":
        os.truncate(path, segment.delayed_at + 40)
    else:
        path.unlink()
    assert log.delays.cancel(due + 2, places[2])
    taken = take(log, due + 100)
    assert [one.record.body for one in taken if one.record] == [b"0", b"1", b"3", b"4"]
    assert [place.path for place in log.damages.found()] == [path]
    log.close_sync()


def test_an_index_that_names_another_record_publishes_nothing_in_its_place(tmp_path: Path) -> None:
    """One flipped bit in an index file: what is read there is not what is due."""
    log = open_log(tmp_path)
    due = log.wall_ms() + 1000
    places = [log.delays.add(due + i, b"k", b"", b"%d" % i, flags=PERSISTENT) for i in range(3)]
    log.flush()
    log.file_full()
    feed = durable_feed(log)
    fill(log, feed, 256 * KIB)  # out of memory with them
    settle(log)
    segment = log._segments.live[0]
    assert segment in log.delays._stored and log.cache.get(places[0]) is None
    path = log.reader._folder.time_index(segment.number)
    with path.open("r+b") as file:
        # due i64 | place u64 | LSN u64
        file.seek(segment.delayed_at + 16)
        assert int.from_bytes(file.read(8), "little") == places[0]
        file.seek(segment.delayed_at + 16)
        file.write(places[1].to_bytes(8, "little"))
    taken = take(log, due + 100)
    assert [one.record and one.record.body for one in taken] == [None, b"1", b"2"]
    log.close_sync()


def listed(log: Log, behind: Key, count: int, nbytes: int = 1 << 30) -> Listed:
    found: list[Listed | None] = []
    log.flush()
    list_waiting(log, behind, count, nbytes, found.append)
    wait(log, lambda: bool(found))
    assert found[0] is not None
    return found[0]


def all_listed(log: Log, count: int, nbytes: int = 1 << 30) -> list[bytes]:
    """The bodies of all that wait, asked for `count` at a time."""
    bodies: list[bytes] = []
    behind: Key | None = BEFORE_ALL
    while behind is not None:
        found = listed(log, behind, count, nbytes)
        assert len(found.records) <= count and (found.next is None or found.next > behind)
        bodies += [record.body for _, record in found.records]
        behind = found.next
    return bodies


def test_waiting_records_are_listed_in_order_from_memory_and_index_files(tmp_path: Path) -> None:
    """After cancellations, records that came, a restart and a clock that was set back."""
    log = open_log(tmp_path)
    log.low_water = lambda: log.appender.next_lsn
    start = log.wall_ms()
    expected: dict[Key, bytes] = {}
    for index in range(400):
        due = start + 1000 + (index * 7919) % 400 * 1000
        body = b"%d" % index + bytes(KIB)
        expected[due, log.delays.add(due, b"k", b"p", body, flags=PERSISTENT)] = body
        log.flush()
    settle(log)
    log._housekeeping.checkpoint()
    tended(log)
    assert log.delays._stored, "some are in index files alone"
    for key in sorted(expected)[::5]:
        assert log.delays.cancel(*key)
        del expected[key]
    came = take(log, start + 50_000)
    with log.unit():
        log.delays.done(came)
    for one in came:
        expected.pop((one.due, one.place), None)
    late = start + 500, log.delays.add(start + 500, b"k", b"", b"late", flags=PERSISTENT)
    expected[late] = b"late"
    in_order = [expected[key] for key in sorted(expected)]
    for count in (1000, 7):
        assert all_listed(log, count) == in_order
    assert all_listed(log, 1000, nbytes=3 * KIB) == in_order
    assert len(listed(log, BEFORE_ALL, 1000, nbytes=0).records) == 1
    log.close_sync()
    log = open_log(tmp_path)
    assert all_listed(log, 50) == in_order
    log.close_sync()


def test_one_that_was_moved_is_listed_once(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    feed = durable_feed(log)
    log.low_water = lambda: log.appender.next_lsn
    due_in(log, YEAR_MS)
    rounds = 0
    while not log.delays.mover.moved:
        assert (rounds := rounds + 1) < 20
        fill(log, feed, 256 * KIB)
        tended(log)
        assert all_listed(log, 10) == [b"x"]
    log.close_sync()


def test_a_list_is_refused_while_the_disk_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    for _ in range(300):
        due_in(log, YEAR_MS, bytes(2 * KIB))
    settle(log)
    log._housekeeping.checkpoint()
    tended(log)
    assert log.delays._stored

    def broken(*_: object) -> bytes:
        raise OSError("the disk does not answer")

    monkeypatch.setattr(log.reader, "_entries_behind", broken)
    found: list[Listed | None] = []
    list_waiting(log, BEFORE_ALL, 10, 1 << 30, found.append)
    wait(log, lambda: bool(found))
    assert found == [None]
    log.close_sync()
