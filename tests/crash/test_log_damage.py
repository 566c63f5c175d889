"""Files of the log cut, flipped or deleted: what was promised is kept or its loss is said, never silent."""

from __future__ import annotations

import copy
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import StartError
from penstock.log_core.log import Log
from tests.support.logs import (
    KIB,
    append,
    batch_of,
    body_of,
    durable_feed,
    files_made,
    fill,
    load_entries,
    open_log,
    settle,
)

NOTE_BYTES = 96


def _copy(source: Path, target: Path) -> Path:
    """The folder as a kill -9 at this moment would leave it."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


def _wal(folder: Path) -> list[Path]:
    return sorted((folder / "shard-000" / "wal").glob("*.wal"))


def _positions(log: Log, feed_id: int) -> list[int]:
    feed = log.feed(feed_id)
    found: list[int] = []
    while len(found) < len(feed):
        index = feed.start + len(found)
        load_entries(log, feed, index)
        found += feed.positions(index, 1 << 20)
    return found


class Scene:
    """A log with three synced records, a note about that, and two records that were only written."""

    def __init__(self, path: Path) -> None:
        self.log = log = open_log(path / "live")
        feed = durable_feed(log)
        self.feed_id = feed.id
        self.synced = []
        for number in range(3):
            self.synced.append(append(log, [feed], b"synced %d" % number))
            log.wait_synced(self.synced[-1])
        log.tend(1 << 60)
        settle(log)
        self.segment = log._wal.segment
        self.ends = [self.segment.end]
        self.written = []
        for number in range(2):
            self.written.append(append(log, [feed], b"written %d" % number))
            log.flush()
            self.ends.append(self.segment.end)
        self.folder = _copy(path / "live", path / "killed")
        log.close_sync()

    def fresh(self, target: Path) -> tuple[Path, Path]:
        """Another copy of the killed folder, and its WAL file."""
        folder = _copy(self.folder, target)
        return folder, folder / self.segment.path.relative_to(self.folder.parent / "live")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def _tear(path: Path, at: int) -> None:
    """Have nothing written from `at` on, as a power cut leaves a file whose size was reserved."""
    size = path.stat().st_size
    os.truncate(path, at)
    os.truncate(path, size)


def test_a_log_cut_at_any_byte_of_its_last_batch_starts_without_that_batch(
    scene: Scene, tmp_path: Path
) -> None:
    start, end = scene.ends[1], scene.ends[2]
    for at in range(start, end):
        folder, wal = scene.fresh(tmp_path / "cut")
        if not any(wal.read_bytes()[at:end]):
            continue  # the batch is whole: it ends in zeros
        _tear(wal, at)
        log = open_log(folder)
        assert _positions(log, scene.feed_id) == [*scene.synced, scene.written[0]], at
        assert bool(log.recovery.truncated_bytes) == (at > start)
        assert log.appender.next_lsn > scene.written[1]
        log.close_sync()


def test_a_torn_last_batch_is_cut_and_reported(scene: Scene, tmp_path: Path) -> None:
    for at in range(scene.ends[1], scene.ends[2]):
        folder, wal = scene.fresh(tmp_path / "torn")
        raw = bytearray(wal.read_bytes())
        if raw[at] == 0:
            continue
        raw[at:] = bytes(len(raw) - at)
        wal.write_bytes(raw)
        log = open_log(folder)
        assert _positions(log, scene.feed_id) == [*scene.synced, scene.written[0]], at
        if at > scene.ends[1]:
            assert log.recovery.truncated_bytes
            assert any("never synced" in warning for warning in log.recovery.warnings)
        log.close_sync()


def test_pages_lost_out_of_order_behind_the_synced_end_are_cut(scene: Scene, tmp_path: Path) -> None:
    """The first unsynced batch never reached the disk, the second did."""
    folder, wal = scene.fresh(tmp_path / "hole")
    raw = bytearray(wal.read_bytes())
    raw[scene.ends[0] : scene.ends[1]] = bytes(scene.ends[1] - scene.ends[0])
    wal.write_bytes(raw)
    log = open_log(folder)
    assert _positions(log, scene.feed_id) == scene.synced
    assert log.recovery.truncated_bytes == scene.ends[2] - scene.ends[0] or log.recovery.truncated_bytes
    log.close_sync()


def test_a_flipped_bit_below_the_synced_end_refuses_the_start_until_salvaged(
    scene: Scene, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for at in range(4096 + 40, scene.ends[0] - NOTE_BYTES, 97):
        folder, wal = scene.fresh(tmp_path / "flip")
        raw = bytearray(wal.read_bytes())
        raw[at] ^= 0x10
        wal.write_bytes(raw)
        with pytest.raises(StartError, match=rf"{re.escape(str(wal))}, byte \d+: .*--salvage") as refused:
            open_log(folder)
        assert "quarantine" in str(refused.value)
        assert (folder / "shard-000" / "quarantine" / wal.name).read_bytes() == bytes(raw)
        with pytest.raises(StartError, match="--salvage"):
            open_log(folder)
        log = open_log(folder, salvage=True)
        assert log.recovery.holes
        assert any(" are lost, " in record.getMessage() for record in caplog.records)
        hole = log.recovery.holes[0]
        assert hole.path == wal and hole.offset <= at < hole.offset + max(hole.length, 1)
        left = _positions(log, scene.feed_id) if scene.feed_id in log.feeds else []
        lost = {lsn for hole in log.recovery.holes for lsn in range(hole.first_lsn, hole.next_lsn)}
        expected = [lsn for lsn in [*scene.synced, *scene.written] if lsn not in lost]
        if scene.feed_id in log.feeds:
            assert left == expected
            for lsn in left:
                assert body_of(log, lsn).startswith((b"synced", b"written"))
        log.close_sync()
        log = open_log(folder)
        assert log.recovery.clean
        if scene.feed_id in log.feeds:
            assert _positions(log, scene.feed_id) == expected
        log.close_sync()


def test_a_flipped_bit_behind_the_synced_end_is_an_unsynced_tail(scene: Scene, tmp_path: Path) -> None:
    for at in range(scene.ends[0], scene.ends[2], 41):
        folder, wal = scene.fresh(tmp_path / "tail")
        raw = bytearray(wal.read_bytes())
        raw[at] ^= 0x04
        wal.write_bytes(raw)
        log = open_log(folder)
        assert _positions(log, scene.feed_id)[:3] == scene.synced
        assert log.recovery.truncated_bytes
        log.close_sync()


def test_a_damaged_head_is_damage(scene: Scene, tmp_path: Path) -> None:
    for at in (0, 8, 60, 84, 200, 4095):
        folder, wal = scene.fresh(tmp_path / "head")
        raw = bytearray(wal.read_bytes())
        raw[at] ^= 0x80
        wal.write_bytes(raw)
        with pytest.raises(StartError, match=re.escape(str(wal))):
            open_log(folder)
        log = open_log(folder, salvage=True)
        assert _positions(log, scene.feed_id) == [*scene.synced, *scene.written]
        log.close_sync()


def test_an_atomic_unit_without_its_end_is_dropped_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path / "live")
    feed = durable_feed(log)
    before = append(log, [feed], b"before")
    log.wait_synced(before)
    start = log._wal.segment.end
    with log.unit():
        append(log, [feed], b"one")
        log.tables.put("t", b"k", b"v")
        append(log, [feed], b"two")
    log.flush()
    end = log._wal.segment.end
    name = log._wal.segment.path.relative_to(tmp_path / "live")
    files_made(log)
    folder = _copy(tmp_path / "live", tmp_path / "killed")
    log.close_sync()
    for at in range(start, end, 32):
        killed = _copy(folder, tmp_path / "cut")
        _tear(killed / name, at)
        again = open_log(killed)
        assert _positions(again, feed.id) == [before], at
        assert again.tables.get("t", b"k") is None
        again.close_sync()
    again = open_log(folder)
    assert len(_positions(again, feed.id)) == 3
    assert again.tables.get("t", b"k") == b"v"
    again.close_sync()


class Large:
    """A log of several closed segments and two checkpoints, as a kill -9 leaves it."""

    def __init__(self, path: Path) -> None:
        log = open_log(path / "live")
        feed = durable_feed(log)
        self.feed_id = feed.id
        self.lsns = []
        for number in range(3):
            self.lsns += fill(log, feed, 300 * KIB)
            log.tables.put("t", b"n", b"%d" % number)
            settle(log)
        self.lsns.append(append(log, [feed], b"last"))
        settle(log)
        assert len(log._housekeeping.checkpoints) == 2
        self.killed = _copy(path / "live", path / "killed")
        log.close_sync()
        self.stopped = _copy(path / "live", path / "stopped")

    def check(self, log: Log) -> None:
        assert _positions(log, self.feed_id) == self.lsns
        assert log.tables.get("t", b"n") == b"2"
        assert body_of(log, self.lsns[0]) == bytes(400)
        assert body_of(log, self.lsns[-1]) == b"last"


@pytest.fixture(scope="module")
def large_once(tmp_path_factory: pytest.TempPathFactory) -> Large:
    return Large(tmp_path_factory.mktemp("large"))


@pytest.fixture
def large(large_once: Large, tmp_path: Path) -> Large:
    """Copies that the test may damage."""
    own = copy.copy(large_once)
    own.killed = _copy(large_once.killed, tmp_path / "killed")
    own.stopped = _copy(large_once.stopped, tmp_path / "stopped")
    return own


def _each(pattern: str) -> Callable[[Path], list[Path]]:
    return lambda folder: sorted(folder.glob(pattern))


DERIVED = {
    "feed index": _each("shard-000/index/*.fdx"),
    "sparse index": _each("shard-000/index/*.tix"),
    "checkpoint": _each("shard-000/ckpt/*.ckpt"),
    "manifest": _each("shard-000/MANIFEST"),
    "clean mark": _each("CLEAN"),
}


@pytest.mark.parametrize("how", ["deleted", "flipped", "emptied"])
@pytest.mark.parametrize("state", ["killed", "stopped"])
@pytest.mark.parametrize("kind", DERIVED)
def test_files_that_can_be_made_anew_are_not_needed(
    large: Large, tmp_path: Path, kind: str, state: str, how: str
) -> None:
    source = getattr(large, state)
    for name in [path.relative_to(source) for path in DERIVED[kind](source)][:3]:
        folder = _copy(source, tmp_path / "damaged")
        path = folder / name
        if how == "deleted":
            path.unlink()
        elif how == "emptied":
            path.write_bytes(b"")
        else:
            raw = bytearray(path.read_bytes())
            raw[len(raw) // 2] ^= 1
            path.write_bytes(raw)
        log = open_log(folder)
        large.check(log)
        settle(log)
        log.close_sync()
        log = open_log(folder)
        assert log.recovery.clean and log.recovery.warnings == []
        large.check(log)
        log.close_sync()


def test_both_checkpoints_lost_is_no_loss_while_the_log_goes_back_to_its_beginning(
    large: Large, tmp_path: Path
) -> None:
    for path in DERIVED["checkpoint"](large.killed):
        path.unlink()
    log = open_log(large.killed)
    large.check(log)
    log.close_sync()


def test_both_checkpoints_and_the_beginning_lost_is_refused(large: Large) -> None:
    for path in DERIVED["checkpoint"](large.killed):
        path.unlink()
    first = _wal(large.killed)[0]
    first.unlink()
    with pytest.raises(StartError, match=r"the segment is missing.*--salvage"):
        open_log(large.killed)
    open_log(large.killed, salvage=True).close_sync()


def test_a_missing_segment_is_damage(large: Large) -> None:
    gone = _wal(large.killed)[2]
    gone.unlink()
    with pytest.raises(StartError, match=r"the segment is missing.*--salvage"):
        open_log(large.killed)


def test_damage_in_an_old_segment_is_met_when_it_is_read_and_not_before(large: Large, tmp_path: Path) -> None:
    wal = _wal(large.stopped)[1]
    raw = bytearray(wal.read_bytes())
    raw[20000] ^= 1
    wal.write_bytes(raw)
    log = open_log(large.stopped)
    assert log.recovery.clean
    lost = []
    for lsn in _positions(log, large.feed_id):
        batch = batch_of(log, lsn)
        if batch.kind == 0:
            lost.append(lsn)
        else:
            assert batch.record(lsn - batch.base_lsn).body in (bytes(400), b"last")
    assert len(lost) == 10  # the records of one tick
    log.close_sync()
