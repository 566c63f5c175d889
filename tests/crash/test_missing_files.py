"""Files of the log that are gone, or shorter than they were: a start refuses, and verify tells them."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest

from penstock.errors import StartError
from penstock.log_core.files.layout import WAL_HEAD_BYTES, Folder
from penstock.log_core.files.manifest import Manifest
from penstock.log_tools.inspection import verify
from tests.support.logs import KIB, Unsynced, append, durable_feed, open_log, settle


@pytest.fixture(scope="module", params=["clean", "killed"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a log with several segments that was stopped, or killed."""
    path = tmp_path_factory.mktemp("scene")
    log = open_log(path / "log", segment_bytes=64 * KIB)
    feed = durable_feed(log)
    while log._wal.segment.number < 5:
        log.wait_synced(append(log, [feed], bytes(2 * KIB)))
    for _ in range(3):
        log.wait_synced(append(log, [feed], bytes(2 * KIB)))
    settle(log)
    if request.param == "killed":
        shutil.copytree(path / "log", path / "killed")
    log.close_sync()
    return path / ("killed" if request.param == "killed" else "log")


@pytest.fixture
def folder(scene: Path, tmp_path: Path) -> Folder:
    shutil.copytree(scene, tmp_path / "log")
    return Folder(tmp_path / "log")


def verified(folder: Folder) -> tuple[int, str]:
    out = io.StringIO()
    return verify(folder, out), out.getvalue()


def test_an_undamaged_log_opens_and_verifies(folder: Folder) -> None:
    assert verified(folder)[0] == 0
    open_log(folder.root).close_sync()
    assert verified(folder)[0] == 0


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_segment_that_is_gone_is_missed_wherever_it_was(folder: Folder, number: int) -> None:
    folder.segment(number).unlink()
    problems, text = verified(folder)
    assert problems >= 1 and f"{folder.segment(number)}, byte 0: the segment is missing" in text
    with pytest.raises(StartError, match=rf"{number:010}\.wal.*the segment is missing") as refused:
        open_log(folder.root)
    assert "restore the folder from a backup, or start once with --salvage" in str(refused.value)


def test_several_that_are_gone_are_counted(folder: Folder) -> None:
    for number in (1, 2, 3):
        folder.segment(number).unlink()
    assert verified(folder)[0] >= 3
    with pytest.raises(StartError, match=r"0000000001\.wal.*the segment is missing, and 2 others"):
        open_log(folder.root)


def test_all_that_are_gone_are_missed(folder: Folder) -> None:
    for number in folder.segment_numbers():
        folder.segment(number).unlink()
    assert verified(folder)[0] >= 4
    with pytest.raises(StartError, match="the segment is missing"):
        open_log(folder.root)


def test_the_newest_segment_that_is_gone_is_missed(folder: Folder) -> None:
    """With the empty file that was prepared behind it; CLEAN or MANIFEST says that it was there."""
    for number in (5, 6):
        folder.segment(number).unlink(missing_ok=True)
    assert "0000000005.wal, byte 0: the segment is missing" in verified(folder)[1]
    with pytest.raises(StartError, match=r"0000000005\.wal.*the segment is missing"):
        open_log(folder.root)
    salvaged = open_log(folder.root, salvage=True)
    assert any("0000000005.wal" in warning for warning in salvaged.recovery.warnings)
    salvaged.close_sync()
    again = open_log(folder.root)
    assert again.recovery.clean and again.recovery.warnings == []
    again.close_sync()


@pytest.mark.parametrize("scene", ["killed"], indirect=True)
@pytest.mark.parametrize("number", [5, 6])
def test_a_newest_segment_of_zeros_is_damaged(folder: Folder, number: int) -> None:
    """Only a file that MANIFEST does not name yet may be unfinished."""
    size = folder.segment(number).stat().st_size
    folder.segment(number).write_bytes(bytes(size))
    assert verified(folder)[0] >= 1
    with pytest.raises(StartError, match=rf"{number:010}\.wal"):
        open_log(folder.root)


def ends(path: Path) -> list[int]:
    """The end of each batch in a segment, and that of its head."""
    raw = path.read_bytes() + bytes(4)
    at = [WAL_HEAD_BYTES]
    while size := int.from_bytes(raw[at[-1] : at[-1] + 4], "little"):
        at.append(at[-1] + size)
    return at


def test_a_newest_segment_cut_at_the_end_of_a_batch_is_no_end(folder: Folder) -> None:
    """The log itself cuts a file there, but says so first."""
    path = folder.segment(5)
    whole = path.read_bytes()
    for end in ends(path)[:-1]:
        path.write_bytes(whole[:end])
        problems, text = verified(folder)
        assert problems >= 1 and str(path) in text, f"cut at {end}"
        with pytest.raises(StartError, match=r"0000000005\.wal.*the file is shorter than"):
            open_log(folder.root)
        assert path.stat().st_size == end, "nothing was cut"


@pytest.mark.parametrize("scene", ["killed"], indirect=True)
def test_a_closed_segment_cut_at_the_end_of_a_batch_before_an_empty_one_is_no_end(folder: Folder) -> None:
    """A later segment tells the end of one, unless nothing was written there yet: then its index does."""
    folder.segment(6).unlink()
    following = folder.segment(5)
    following.write_bytes(following.read_bytes()[:WAL_HEAD_BYTES].ljust(64 * KIB, b"\0"))
    for path in folder.checkpoints.iterdir():
        path.unlink()
    Manifest(Manifest.read(folder.manifest).log_id, 1, 1, [], 5).write(Unsynced(), folder.manifest)
    assert verified(folder)[0] == 0
    path = folder.segment(4)
    os.truncate(path, ends(path)[-2])
    assert verified(folder)[0] >= 1
    with pytest.raises(StartError, match=r"0000000004\.wal.*the file is shorter than"):
        open_log(folder.root)


@pytest.mark.parametrize("lost", [1, 100, 3000])
def test_a_newest_segment_that_is_shorter_than_it_was_is_no_torn_end(folder: Folder, lost: int) -> None:
    path = folder.segment(5)
    written = len(path.read_bytes().rstrip(b"\0"))
    os.truncate(path, written - lost)
    problems, text = verified(folder)
    assert problems >= 1 and str(path) in text
    with pytest.raises(StartError, match=r"0000000005\.wal.*the file (ends in a batch|is shorter than)"):
        open_log(folder.root)
    assert path.stat().st_size == written - lost, "nothing was cut"


@pytest.mark.parametrize("scene", ["clean"], indirect=True)
@pytest.mark.parametrize("from_end", [1, 0])
def test_zeros_at_the_end_of_a_log_that_was_stopped_are_damage(folder: Folder, from_end: int) -> None:
    """Nothing is scanned after a clean stop, but the end of the newest segment is."""
    path = folder.segment(5)
    size = path.stat().st_size
    os.truncate(path, ends(path)[-1 - from_end] if from_end else WAL_HEAD_BYTES)
    os.truncate(path, size)
    assert verified(folder)[0] >= 1
    with pytest.raises(StartError, match=r"0000000005\.wal, byte"):
        open_log(folder.root)
    salvaged = open_log(folder.root, salvage=True)
    assert any("does not end as its index says" in warning for warning in salvaged.recovery.warnings)
    salvaged.close_sync()
    open_log(folder.root).close_sync()


def test_a_checkpoint_misses_the_newest_segments_without_manifest(tmp_path: Path) -> None:
    """MANIFEST is made anew of the files that are there: it cannot know of others."""
    log = open_log(tmp_path / "log", segment_bytes=64 * KIB)
    feed = durable_feed(log)
    while log._wal.segment.number < 3:
        log.wait_synced(append(log, [feed], bytes(2 * KIB)))
    log.wait_synced(append(log, [feed], bytes(2 * KIB)))
    log.checkpoint_due()
    known = log.appender.next_lsn - 1
    folder = Folder(tmp_path / "log")
    while not any(int(path.stem, 16) >= known for path in folder.checkpoints.glob("*.ckpt")):
        settle(log)
    killed = Folder(shutil.copytree(folder.root, tmp_path / "killed"))
    log.close_sync()
    killed.manifest.unlink()
    for number in killed.segment_numbers()[2:]:
        killed.segment(number).unlink()
    assert verified(killed)[0] >= 1
    with pytest.raises(StartError, match=r"0000000002\.wal.*the log ends at LSN .*, and its checkpoint"):
        open_log(killed.root)
    for number in killed.segment_numbers():
        killed.segment(number).unlink()
    with pytest.raises(StartError, match=r"MANIFEST.*it is missing, and so are all segments"):
        open_log(killed.root)
