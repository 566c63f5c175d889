"""Every kind of file cut, zeroed or flipped at every byte: the start always notices it.

`test_log_damage.py` tests a torn write of the last batch of the WAL; these tests cover all other kinds. Such
a file is made under another name and renamed once it is durable, so only a disk that lies tears it. A start
makes it again, except for sealed segments: it refuses their loss, and you repair them.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.errors import StartError
from penstock.log_core.errors import Damage
from penstock.log_core.files.layout import SEALED, WAL, Folder, Head
from penstock.log_core.files.manifest import CleanMark, Manifest
from penstock.log_core.history.history import read_history, read_history_entries
from penstock.log_core.log import Log
from penstock.log_core.recovery.checkpoint import read_checkpoint
from penstock.log_core.segments.feed_index import ROW_BYTES, read_directory, verify_entries
from penstock.log_core.segments.segment import Segment
from penstock.log_core.state.tables import FEED_TABLE, feed_key
from penstock.log_tools.inspection import verify
from penstock.log_tools.reading import SegmentFile, batches, segments
from penstock.log_tools.repair import repair
from tests.support.logs import (
    KIB,
    Unsynced,
    append,
    batch_of,
    durable_feed,
    fill,
    keep_house,
    load_entries,
    open_log,
    settle,
)


class Everything:
    """Wants every record of the past."""

    lp = 0

    def verdict(self, enc: int, key: bytes) -> int:
        return 1


@dataclass
class Scene:
    """A stopped log with files of every kind."""

    folder: Path
    feed: int
    needed: list[int]
    """The records still in the log: every 20th."""

    def copy(self, target: Path) -> Folder:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder, target)
        return Folder(target)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    path = tmp_path_factory.mktemp("scene")
    log = open_log(path, checkpoint_bytes=100 * KIB)
    feed = durable_feed(log)
    lsns = fill(log, feed, 500 * KIB)
    needed = lsns[::20]

    def mark(needs: object, done: Callable[[], object]) -> None:
        for lsn in needed:
            needs.need(lsn)  # type: ignore[attr-defined]
        needs.need_feed(feed.id, lsns[-200], 2**64 - 1)  # type: ignore[attr-defined]
        done()

    found: list[tuple[object, bool]] = []
    end = log.appender.next_lsn
    log.search(1, Everything(), lambda *result: found.append(result), last=end, durable=True)  # type: ignore[arg-type]
    log.flush()
    while not found:
        log._inbox.wait(120)
    log.tables.put(FEED_TABLE, feed_key(found[0][0].id), b"")  # type: ignore[attr-defined]
    log.low_water = lambda: needed[0]
    log.mark_needs = mark
    for _ in range(12):
        keep_house(log)
    assert log.statistics()["segments_sealed"] > 0
    log.close_sync()
    kept = [lsn for lsn in lsns if _is_there(path, lsn)]
    assert set(needed) <= set(kept) and len(kept) < len(lsns)
    return Scene(path, feed.id, kept)


def _is_there(folder: Path, lsn: int) -> bool:
    for one in segments(Folder(folder)):
        assert isinstance(one, SegmentFile)
        for found in batches(one):
            assert not isinstance(found, Damage)
            if (
                found.batch.kind == 1
                and found.batch.base_lsn <= lsn < found.batch.base_lsn + found.batch.count
            ):
                return True
    return False


def _check(log: Log, scene: Scene, lost: set[int]) -> None:
    """All that should be there is, and is what was written; the rest is known to be gone."""
    feed = log.feed(scene.feed)
    for index in range(feed.start, feed.end):
        load_entries(log, feed, index)
    kept = []
    for lsn in feed.positions(feed.start, 1 << 20):
        batch = batch_of(log, lsn)
        if batch.kind:
            assert batch.record(lsn - batch.base_lsn).body == bytes(400)
            kept.append(lsn)
    assert kept == [lsn for lsn in scene.needed if lsn not in lost]


# Files that a start makes anew


def _read_sparse(folder: Folder, path: Path) -> None:
    one = next(s for s in segments(folder) if isinstance(s, SegmentFile) and s.number == int(path.stem))
    base = _base(folder, one)
    Segment(one.number, one.path, base, one.head.epoch, base).read_time_index(folder)


def _read_feeds(folder: Folder, path: Path) -> None:
    one = next(s for s in segments(folder) if isinstance(s, SegmentFile) and s.number == int(path.stem))
    verify_entries(path, len(read_directory(path, _base(folder, one))) // ROW_BYTES)


def _base(folder: Folder, one: SegmentFile) -> int:
    if one.head.base_lsn:
        return one.head.base_lsn
    first = next(batches(one))
    assert not isinstance(first, Damage)
    return first.batch.base_lsn


def _read_history(folder: Folder, path: Path) -> None:
    for part in read_history(path):
        read_history_entries(path, part.base)


KINDS: dict[str, tuple[str, Callable[[Folder, Path], object]]] = {
    "manifest": ("MANIFEST", lambda folder, path: Manifest.read(path)),
    "clean mark": ("CLEAN", lambda folder, path: CleanMark.read(path)),
    "checkpoint": ("*.ckpt", lambda folder, path: read_checkpoint(path, lambda block, value: None)),
    "sparse index": ("*.tix", _read_sparse),
    "feed index": ("*.fdx", _read_feeds),
    "feed of the past": ("*.his", _read_history),
}


def _cut(raw: bytes, at: int) -> bytes:
    return raw[:at]


def _zeroed(raw: bytes, at: int) -> bytes:
    return raw[:at].ljust(len(raw), b"\0")


def _flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes((raw[at] ^ 0x20,)) + raw[at + 1 :]


HARMS = {"cut": _cut, "zeroed": _zeroed, "flipped": _flipped}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("kind", KINDS)
def test_harm_at_every_byte_is_noticed(scene: Scene, tmp_path: Path, kind: str, harm: str) -> None:
    pattern, read = KINDS[kind]
    folder = scene.copy(tmp_path / "data")
    path = sorted(folder.root.rglob(pattern))[-1]
    sound = path.read_bytes()
    read(folder, path)
    for at in range(len(sound)):
        harmed = HARMS[harm](sound, at)
        if harmed == sound:
            continue  # zeros were there
        path.write_bytes(harmed)
        try:
            read(folder, path)
        except (Damage, StartError):  # StartError: it says another version, with a CRC that fits
            continue
        raise AssertionError(f"{kind} {harm} at byte {at} of {len(sound)} was believed")


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "feed of the past"])
def test_a_start_makes_it_anew_and_nothing_is_lost(
    scene: Scene, tmp_path: Path, kind: str, harm: str
) -> None:
    pattern, _ = KINDS[kind]
    size = len(sorted(scene.folder.rglob(pattern))[-1].read_bytes())
    for at in {0, 40, 95, 97, size // 2, size - 1}:
        folder = scene.copy(tmp_path / "data")
        path = sorted(folder.root.rglob(pattern))[-1]
        path.write_bytes(HARMS[harm](path.read_bytes(), at))
        log = open_log(folder.root)
        assert log.recovery.holes == []
        _check(log, scene, set())
        settle(log)
        log.close_sync()
        log = open_log(folder.root)
        assert log.recovery.clean and log.recovery.warnings == []
        _check(log, scene, set())
        log.close_sync()


def test_a_torn_feed_of_the_past_is_said_and_costs_nothing_else(scene: Scene, tmp_path: Path) -> None:
    folder = scene.copy(tmp_path / "data")
    path = next(folder.histories.glob("*.his"))
    path.write_bytes(path.read_bytes()[:-5])
    log = open_log(folder.root)
    assert any(str(path) in warning for warning in log.recovery.warnings)
    _check(log, scene, set())
    log.close_sync()


def test_files_that_never_got_their_name_are_removed(scene: Scene, tmp_path: Path) -> None:
    folder = scene.copy(tmp_path / "data")
    for path in [path for path in folder.root.rglob("*") if path.is_file() and path.name != "LOCK"]:
        path.with_name(path.name + ".new").write_bytes(path.read_bytes()[:100])
    log = open_log(folder.root)
    assert log.recovery.clean
    _check(log, scene, set())
    log.close_sync()
    # An open log names its next file meanwhile, and MANIFEST.new is there for a moment.
    assert not list(folder.root.rglob("*.new"))


# Sealed segments


def _sealed(folder: Folder) -> Path:
    for one in segments(folder):
        assert isinstance(one, SegmentFile)
        if one.head.flags & SEALED and one.path.stat().st_size > 4300:
            return one.path
    raise AssertionError("none is sealed")


def _last_batches(path: Path) -> Iterator[int]:
    """Every byte of the last two batches of a sealed segment: survivors, and the note behind them."""
    head = Head.decode(path.read_bytes()[:4096], path, WAL)
    found = batches(SegmentFile(head.number, path, head))
    offsets = sorted({f.offset for f in found if not isinstance(f, Damage)})
    yield from range(offsets[-2], path.stat().st_size)


@pytest.mark.parametrize("harm", HARMS)
def test_a_torn_sealed_segment_is_noticed_at_every_byte(scene: Scene, tmp_path: Path, harm: str) -> None:
    folder = scene.copy(tmp_path / "data")
    path = _sealed(folder)
    sound = path.read_bytes()
    for at in _last_batches(path):
        harmed = HARMS[harm](sound, at)
        if harmed != sound:
            path.write_bytes(harmed)
            told = io.StringIO()
            assert verify(folder, told) and path.name in told.getvalue(), at
            path.write_bytes(sound)
    assert verify(folder, io.StringIO()) == 0


@pytest.mark.parametrize("harm", HARMS)
def test_a_torn_sealed_segment_costs_its_batch_after_a_repair(
    scene: Scene, tmp_path: Path, harm: str
) -> None:
    folder = scene.copy(tmp_path / "data")
    places = list(_last_batches(_sealed(folder)))
    for at in (places[0], places[40], places[len(places) // 2], places[-90], places[-1]):
        folder = scene.copy(tmp_path / "data")
        path = _sealed(folder)
        harmed = HARMS[harm](path.read_bytes(), at)
        if harmed == path.read_bytes():
            continue
        path.write_bytes(harmed)
        done = repair(folder, apply=True, files=Unsynced())
        assert [finding.file for finding in done.findings if finding.copy] == [str(path)]
        lost = {p for lost in done.lost for p in range(lost.first_position, lost.last_position + 1)}
        log = open_log(folder.root)
        assert log.recovery.holes == []
        _check(log, scene, lost)
        append(log, [log.feed(scene.feed)], b"and on it goes")
        log.close_sync()
