"""The scrub: what closed segments have lost is found unasked, counted once, and left as it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.log_core.files.layout import Folder
from penstock.log_core.log import Log
from penstock.log_core.segments.segment import Segment
from tests.support.logs import KIB, batch_of, durable_feed, fill, open_log, settle

Flip = Callable[[Path, int], None]


def _flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 4
    path.write_bytes(raw)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Some closed segments; the scrub's thread does not run."""
    log = open_log(tmp_path)
    fill(log, durable_feed(log), 300 * KIB)
    settle(log)
    return log


def _closed(log: Log) -> list[Segment]:
    return [segment for segment in log._segments.live[:-1] if segment.indexed]


def _scrub(log: Log) -> None:
    for segment in _closed(log):
        log.scrub.look_at(segment)


def test_a_sound_log_is_read_whole_and_nothing_is_found(log: Log) -> None:
    _scrub(log)
    assert len(log.damages) == 0
    found = log.statistics()
    assert found["scrubbed_segments"] == len(_closed(log)) > 2
    assert found["scrubbed_bytes"] >= sum(segment.end - 4096 for segment in _closed(log))
    log.close_sync()


def test_flipped_bits_are_found_each_once_and_nothing_is_changed(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = _closed(log)[:2]
    for path, at in ((one.path, 9_000), (one.path, 40_000), (two.path, 20_000)):
        _flip(path, at)
    before = {path: path.read_bytes() for path in log._folder.shard.rglob("*") if path.is_file()}
    _scrub(log)
    _scrub(log)
    assert sorted(damage.path for damage in log.damages.found()) == [one.path, one.path, two.path]
    assert log.statistics()["damaged_ranges"] == 3
    told = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(told) == 3 and "penstock log repair" in told[0].getMessage()
    assert all(path.read_bytes() == raw for path, raw in before.items())
    log.close_sync()


@pytest.mark.parametrize("at", [*range(4096, 4096 + 128), *range(5000, 50_000, 1999)])
def test_no_flip_is_missed(at: int, scrubbed: tuple[Log, Segment, bytes]) -> None:
    log, segment, sound = scrubbed
    raw = bytearray(sound)
    raw[at] ^= 1
    segment.path.write_bytes(raw)
    log.damages._by_position.clear()
    log.scrub.look_at(segment)
    assert len(log.damages) == 1


@pytest.fixture(scope="module")
def scrubbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Log, Segment, bytes]]:
    log = open_log(tmp_path_factory.mktemp("log"))
    fill(log, durable_feed(log), 200 * KIB)
    settle(log)
    segment = _closed(log)[1]
    sound = segment.path.read_bytes()
    yield log, segment, sound
    segment.path.write_bytes(sound)
    log.close_sync()


@pytest.mark.parametrize("index", ["feed_index", "time_index"])
def test_damaged_indexes_are_found(log: Log, index: str) -> None:
    path = getattr(Folder(log._folder.root), index)(_closed(log)[0].number)
    _flip(path, path.stat().st_size - 3)
    _scrub(log)
    assert [damage.path for damage in log.damages.found()] == [path]
    log.close_sync()


def test_damage_met_by_a_reader_counts_too_and_loses_one_batch_only(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lsns = fill(log, durable_feed(log), 300 * KIB)
    settle(log)
    log.close_sync()
    log = open_log(tmp_path)
    _flip(_closed(log)[1].path, 30_000)
    lost = [lsn for lsn in lsns if batch_of(log, lsn).kind == 0]
    assert len(lost) == 10
    assert log.statistics()["damaged_ranges"] == 1
    log.close_sync()


def test_it_runs_by_itself_again_and_again_and_ends_with_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, scrub_bytes_per_s=1 << 30, scrub_each_s=0.0)
    fill(log, durable_feed(log), 200 * KIB)
    settle(log)
    looks = 3 * len(_closed(log))
    _wait(lambda: log.scrub.segments >= looks)
    path = _closed(log)[0].path
    _flip(path, 10_000)
    _wait(lambda: len(log.damages) > 0)
    assert [damage.path for damage in log.damages.found()] == [path]
    log.close_sync()
    assert not log.scrub._thread.is_alive()


def _wait(condition: Callable[[], bool]) -> None:
    import threading

    pause = threading.Event()
    for _ in range(6000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come in a minute")


def test_a_slow_scrub_does_not_hold_up_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path, scrub_bytes_per_s=1)
    fill(log, durable_feed(log), 200 * KIB)
    settle(log)
    log.close_sync()
    assert not log.scrub._thread.is_alive()
