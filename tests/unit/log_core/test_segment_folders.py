"""Segments in several folders: where new ones go, and that a folder which is not there is told."""

from __future__ import annotations

import errno
import io
import os
import shutil
from pathlib import Path

import pytest

from penstock.errors import StartError
from penstock.log_tools.backup import backup
from penstock.log_tools.inspection import verify
from penstock.log_tools.reading import open_folder
from penstock.log_tools.stats import stats
from tests.support.logs import (
    KIB,
    Unsynced,
    append,
    body_of,
    durable_feed,
    fill,
    keep_house,
    open_log,
    settle,
)

NOBODY = (1 << 64) - 1


class Disks(Unsynced):
    """File systems with so much free space each, by the name of the folder."""

    def __init__(self, **free: int) -> None:
        super().__init__()
        self.free = free
        self.full: set[str] = set()

    def free_bytes(self, folder: Path) -> int:
        name = "own" if folder.name == "wal" or folder.name == "data" else folder.name
        return self.free[name]

    def create(self, path: Path) -> int:
        if path.suffix == ".wal" and path.parent.name in self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return super().create(path)


@pytest.fixture
def further(tmp_path: Path) -> tuple[str, str]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return str(tmp_path / "one"), str(tmp_path / "two")


def _numbers(folder: Path | str) -> list[int]:
    return sorted(int(path.stem) for path in Path(folder).glob("*.wal") if not path.is_symlink())


def _wal(tmp_path: Path) -> Path:
    return tmp_path / "data" / "shard-000" / "wal"


def _filled(tmp_path: Path, further: tuple[str, ...], files: Disks | None = None) -> list[int]:
    """A log with segments in the folder "one", stopped cleanly; the LSNs of its records."""
    log = open_log(tmp_path / "data", files or Disks(own=1, one=2, two=0), folders=further)
    lsns = fill(log, durable_feed(log), 400 * KIB)
    settle(log)
    log.close_sync()
    return lsns


def test_a_new_segment_goes_where_most_is_free(tmp_path: Path, further: tuple[str, str]) -> None:
    disks = Disks(own=3, one=2, two=1)
    log = open_log(tmp_path / "data", disks, folders=further)
    feed = durable_feed(log)
    lsns = fill(log, feed, 150 * KIB)
    settle(log)
    assert _numbers(further[0]) == _numbers(further[1]) == []
    disks.free["two"] = 10
    lsns += fill(log, feed, 200 * KIB)
    settle(log)
    disks.free["one"] = 20
    lsns += fill(log, feed, 200 * KIB)
    settle(log)
    own, one, two = (_numbers(folder) for folder in (_wal(tmp_path), *further))
    assert own and one and two and max(own) < min(two) and max(two) < min(one)
    assert [body_of(log, lsn) for lsn in lsns] == [bytes(400)] * len(lsns)
    log.close_sync()
    again = open_log(tmp_path / "data", disks, folders=further)
    assert again.recovery.clean and again.recovery.warnings == []
    assert [body_of(again, lsn) for lsn in lsns] == [bytes(400)] * len(lsns)
    again.close_sync()


def test_unneeded_segments_leave_every_folder_and_rewrites_stay_in_theirs(
    tmp_path: Path, further: tuple[str, str]
) -> None:
    log = open_log(tmp_path / "data", Disks(own=1, one=2, two=0), folders=further)
    stuck = 0

    def mark(needs: object, done: object) -> None:
        needs.need(stuck)  # type: ignore[attr-defined]
        done()  # type: ignore[operator]

    log.low_water = lambda: stuck or NOBODY
    log.mark_needs = mark
    feed = durable_feed(log)
    for _ in range(6):
        fill(log, feed, 200 * KIB)
        settle(log)
    assert min(_numbers(further[0])) > 1
    assert len(_numbers(further[0])) == len(list(_wal(tmp_path).glob("*.wal")))
    stuck = append(log, [feed], b"stuck")
    fill(log, feed, 500 * KIB)
    while not log.statistics()["segments_sealed"]:
        keep_house(log)
    settle(log)
    sealed = next(segment for segment in log.segments_from(stuck) if segment.sealed)
    assert sealed.path.is_symlink() and sealed.path.stat().st_size == sealed.end < 64 * KIB
    assert body_of(log, stuck) == b"stuck"
    log.close_sync()
    assert not list(Path(further[0]).glob("*.new"))


@pytest.mark.parametrize("full", ["one", "wal"])
def test_a_folder_without_room_is_passed_over(tmp_path: Path, further: tuple[str, str], full: str) -> None:
    disks = Disks(own=9 if full == "wal" else 1, one=5, two=0)
    log = open_log(tmp_path / "data", disks, folders=further[:1])
    feed = durable_feed(log)
    lsns = fill(log, feed, 60 * KIB)
    disks.full = {full}
    heard: list[bool] = []
    log.on_backpressure.append(heard.append)
    lsns += fill(log, feed, 300 * KIB)
    settle(log)
    assert heard == [] and max(_numbers(_wal(tmp_path) if full == "one" else further[0])) > 3
    disks.full = {"one", "wal"}
    lsns += fill(log, feed, 300 * KIB)
    settle(log)
    assert log.failed is None, "the active segment grows on"
    log.close_sync()
    again = open_log(tmp_path / "data", Disks(own=1, one=2), folders=further[:1])
    assert [body_of(again, lsn) for lsn in lsns] == [bytes(400)] * len(lsns)
    again.close_sync()


def test_publishers_wait_when_no_folder_has_room_or_the_data_folder_has_nothing(
    tmp_path: Path, further: tuple[str, str]
) -> None:
    disks = Disks(own=300, one=2000, two=0)
    log = open_log(tmp_path / "data", disks, folders=further, min_free_bytes=1000)
    assert log._segment_folders.free_bytes() == 2000
    disks.free["one"] = 900
    assert log._segment_folders.free_bytes() == 900
    disks.free.update(one=5000, own=249)
    assert log._segment_folders.free_bytes() == 249, "indexes and checkpoints need some"
    log.close_sync()


def _refused(tmp_path: Path, further: tuple[str, ...]) -> str:
    with pytest.raises(StartError) as refused:
        open_log(tmp_path / "data", Disks(own=1, one=2, two=0), folders=further)
    return str(refused.value)


def test_a_folder_that_is_missing_refuses_the_start(tmp_path: Path, further: tuple[str, str]) -> None:
    lsns = _filled(tmp_path, further)
    first = min(path.name for path in Path(further[0]).glob("*.wal"))
    Path(further[0]).rename(tmp_path / "away")
    error = _refused(tmp_path, further)
    assert f"log.folders: {further[0]} is not a folder" in error and "mount its disk" in error
    Path(further[0]).mkdir()  # the mount point of a disk that is not there
    error = _refused(tmp_path, further)
    assert f"{further[0]}/{first}, a segment of the log" in error and "is not there" in error
    assert not list(Path(further[0]).iterdir()), "it stays as it is"
    shutil.rmtree(further[0])
    with pytest.raises(StartError, match="is not there; mount the disk"):
        open_folder(tmp_path / "data")
    (tmp_path / "away").rename(further[0])
    assert f"name {further[0]}, or move" in _refused(tmp_path, further[1:])
    log = open_log(tmp_path / "data", Disks(own=1, one=2, two=0), folders=further)
    assert [body_of(log, lsn) for lsn in lsns] == [bytes(400)] * len(lsns)
    log.close_sync()


def test_a_torn_owner_is_told_and_not_taken_over(tmp_path: Path, further: tuple[str, str]) -> None:
    _filled(tmp_path, further)
    mark = Path(further[0]) / "OWNER"
    whole = mark.read_bytes()
    assert whole == f"{tmp_path / 'data'}\n".encode()
    for size in range(len(whole)):
        mark.write_bytes(whole[:size])
        assert f"remove {mark}" in _refused(tmp_path, further)
    mark.unlink()
    open_log(tmp_path / "data", Disks(own=1, one=2, two=0), folders=further).close_sync()
    assert mark.read_bytes() == whole


def test_segments_may_be_moved_to_another_folder(tmp_path: Path, further: tuple[str, str]) -> None:
    lsns = _filled(tmp_path, further)
    for path in Path(further[0]).glob("*.wal"):
        shutil.move(path, further[1])
    log = open_log(tmp_path / "data", Disks(own=1, two=0), folders=further[1:])
    assert log.recovery.clean and log.recovery.warnings == []
    assert [body_of(log, lsn) for lsn in lsns] == [bytes(400)] * len(lsns)
    log.close_sync()


def test_a_folder_is_of_one_gateway_alone(tmp_path: Path, further: tuple[str, str]) -> None:
    _filled(tmp_path, further)
    shutil.copytree(tmp_path / "data", tmp_path / "copy", symlinks=True)
    with pytest.raises(StartError, match=r"belong to the data folder .*/data; give each gateway"):
        open_log(tmp_path / "copy", folders=further)
    assert "is there twice" in _refused(tmp_path, (further[0], further[0]))
    assert "is there twice" in _refused(tmp_path, (str(_wal(tmp_path)),))
    segment = next(Path(further[0]).glob("*.wal"))
    shutil.copy(segment, further[1])
    assert "are the same segment" in _refused(tmp_path, further)


def test_tools_read_and_copy_what_lies_in_other_folders(
    tmp_path: Path, further: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lsns = _filled(tmp_path, further)
    folder = open_folder(tmp_path / "data")
    assert len(_numbers(further[0])) > 3 and _numbers(_wal(tmp_path)) == []
    assert verify(folder, io.StringIO()) == 0
    assert stats(folder).segments[-1].last_position >= lsns[-1]
    link = os.link

    def other_disk(source: Path, target: Path) -> None:
        if source.parent == Path(further[0]):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        link(source, target)

    for name in ("linked", "copied"):
        made = backup(folder, tmp_path / name)
        assert made.last_position >= lsns[-1]
        shutil.copytree(tmp_path / name, tmp_path / f"{name} again", symlinks=True)
        log = open_log(tmp_path / f"{name} again")
        assert [body_of(log, lsn) for lsn in lsns] == [bytes(400)] * len(lsns)
        log.close_sync()
        monkeypatch.setattr("penstock.log_tools.backup.os.link", other_disk)


def test_a_start_links_files_that_a_crash_left_unlinked(tmp_path: Path, further: tuple[str, str]) -> None:
    lsns = _filled(tmp_path, further)
    for path in _wal(tmp_path).glob("*.wal"):
        path.unlink()
    log = open_log(tmp_path / "data", Disks(own=1, one=2, two=0), folders=further)
    assert [body_of(log, lsn) for lsn in lsns] == [bytes(400)] * len(lsns)
    log.close_sync()
