"""An error that a thread of the log did not expect is in the log lines, and whoever waits for it goes on."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.log import Log
from penstock.log_core.reading import reader as reader_module
from penstock.log_core.segments.feed_index import read_entries
from tests.support.logs import (
    KIB,
    Unsynced,
    body_of,
    durable_feed,
    fill,
    load_entries,
    open_log,
    settle,
    wait,
)

FAULT = "a fault of this test"


def fails_once(real: Callable[..., Any]) -> Callable[..., Any]:
    """Raises the first time."""
    faults = [RuntimeError(FAULT)]

    def call(*arguments: Any, **options: Any) -> Any:
        if faults:
            raise faults.pop()
        return real(*arguments, **options)

    return call


def tend(log: Log) -> None:
    log.tend(1 << 60)


def test_a_read_of_records_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, tail_cache_bytes=64 * KIB)
    lsns = fill(log, durable_feed(log), 600 * KIB, b"body" * 100)
    settle(log)
    monkeypatch.setattr(log.reader, "read", fails_once(log.reader.read))
    called: list[bool] = []
    log.load(lsns[0], lambda: called.append(True))
    wait(log, lambda: bool(log.reader._failed))
    assert (called, FAULT in caplog.text, len(log.damages)) == ([], True, 1)
    tend(log)
    wait(log, lambda: bool(called))
    assert body_of(log, lsns[0]) == b"body" * 100
    log.close_sync()


def test_a_read_of_entries_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, feed_cache_bytes=0)
    feed = durable_feed(log)
    lsns = fill(log, feed, 200 * KIB)
    settle(log)
    tend(log)
    assert not feed.is_resident(0)
    monkeypatch.setattr(reader_module, "read_entries", fails_once(read_entries))
    called: list[bool] = []
    log.load_feed(feed, 0, lambda: called.append(True))
    wait(log, lambda: bool(log.reader._failed))
    assert (called, FAULT in caplog.text) == ([], True)
    tend(log)
    wait(log, lambda: bool(called))
    load_entries(log, feed, 0)
    assert feed.positions(0, 20) == lsns[:20]
    log.close_sync()


def test_one_that_fails_when_it_is_told_keeps_it_from_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, tail_cache_bytes=64 * KIB)
    lsns = fill(log, durable_feed(log), 600 * KIB)
    settle(log)
    called: list[bool] = []

    def fails() -> None:
        raise RuntimeError(FAULT)

    log.load(lsns[0], fails)
    log.load(lsns[0], lambda: called.append(True))
    wait(log, lambda: bool(called))
    assert FAULT in caplog.text
    log.close_sync()


def test_a_failed_search_for_a_time_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    monkeypatch.setattr(log.reader, "position_for_time", fails_once(log.reader.position_for_time))
    found: list[int | None] = []
    log.seek_time(0, found.append)
    wait(log, lambda: bool(found))
    log.seek_time(0, found.append)
    wait(log, lambda: len(found) == 2)
    assert found == [None, 1]
    assert FAULT in caplog.text
    log.close_sync()


def test_delayed_records_that_could_not_be_read_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, tail_cache_bytes=64 * KIB)
    due = log.wall_ms() + 1000
    log.delays.add(due, b"k", b"", b"delayed", flags=PERSISTENT)
    fill(log, durable_feed(log), 200 * KIB)
    settle(log)
    monkeypatch.setattr(log.reader, "read", fails_once(log.reader.read))
    ready: list[bool] = []
    while FAULT not in caplog.text:
        ready.clear()
        assert log.delays.take(due, 10, 1 << 20, lambda: ready.append(True)) == []
        wait(log, lambda: bool(ready))
    (one,) = log.delays.take(due, 10, 1 << 20, lambda: None)
    assert one.unreadable
    with log.unit():
        log.delays.done([one])
    again = log.delays.next_due()
    assert again is not None and again > due, "it is not asked for again at once"
    ready.clear()
    assert log.delays.take(again, 10, 1 << 20, lambda: ready.append(True)) == []
    wait(log, lambda: bool(ready))
    (one,) = log.delays.take(again, 10, 1 << 20, lambda: None)
    assert one.record is not None and one.record.body == b"delayed"
    log.close_sync()


def test_a_failed_read_of_raw_files_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    monkeypatch.setattr(type(log._folder), "segment_numbers", fails_once(log._folder.segment_numbers))
    found: list[Any] = []
    log.raw.list(found.append)
    wait(log, lambda: bool(found))
    assert isinstance(found[0], OSError) and FAULT in str(found[0]) and FAULT in caplog.text
    log.close_sync()


def test_a_search_of_the_past_says_that_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    fill(log, durable_feed(log), 20 * KIB)

    class Matcher:
        lp = 0

        def verdict(self, enc: int, key: bytes) -> int:
            return 1

        def is_wanted(self, record: object) -> bool:
            return True

    monkeypatch.setattr("penstock.log_core.history.histories.Search.run", fails_once(lambda: None))
    found: list[Any] = []
    last = log.appender.next_lsn
    log.search(1, Matcher(), lambda *told: found.append(told), last=last, durable=False)
    wait(log, lambda: bool(found))
    assert found == [(None, False)] and FAULT in caplog.text
    log.close_sync()


class BrokenSyncs(Unsynced):
    """Fails, when told to, as no disk does."""

    broken = False

    def fdatasync(self, fd: int) -> None:
        if self.broken:
            raise RuntimeError(FAULT)


def test_waiters_for_a_sync_hear_that_the_log_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = BrokenSyncs()
    log = open_log(tmp_path, files=files)
    feed = durable_feed(log)
    assert log.wait_synced(fill(log, feed, 4 * KIB)[-1])
    files.broken = True
    assert not log.wait_synced(fill(log, feed, 4 * KIB)[-1])
    assert log.failed is not None and FAULT in caplog.text
    log.close_sync()


def test_the_free_space_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Or the log would never be tended again."""
    log = open_log(tmp_path)
    told: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    log._watcher._free_bytes = fails_once(lambda: 5)
    log._watcher._tell = told.put
    log._watcher.start()
    log._watcher.look()
    assert [told.get(timeout=60), told.get(timeout=60)] == [None, 5]
    assert FAULT in caplog.text
    log.close_sync()
