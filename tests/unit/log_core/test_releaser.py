"""The space of a large file that is removed comes back in pieces, but for one that somebody still reads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log_core.files import space_release as releaser
from penstock.log_core.files.files import Files
from penstock.log_core.files.space_release import Releaser
from tests.support.logs import KIB, durable_feed, fill, open_log, settle

MIB = 1 << 20
LIMIT_S = 120


class Watched(Files):
    """Notes to what files without a name are cut."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.emptied = threading.Event()

    def truncate(self, fd: int, size: int) -> None:
        super().truncate(fd, size)
        if not os.fstat(fd).st_nlink:
            self.sizes.append(size)
            if size == 0:
                self.emptied.set()


@pytest.fixture
def files() -> Watched:
    return Watched()


@pytest.fixture
def space(files: Watched) -> Iterator[Releaser]:
    made = Releaser(files)
    yield made
    made.stop()


def large(folder: Path, size: int = 6 * MIB) -> Path:
    path = folder / "large"
    path.write_bytes(b"x" * size)
    return path


def test_a_large_file_that_is_removed_is_shortened_piece_by_piece(
    tmp_path: Path, files: Watched, space: Releaser
) -> None:
    path = large(tmp_path)
    with space.piecemeal(path):
        path.unlink()
    assert files.emptied.wait(LIMIT_S)
    assert files.sizes == [5 * MIB, 4 * MIB, 3 * MIB, 2 * MIB, MIB, 0]


def test_one_that_is_replaced_is_shortened_and_the_new_one_is_not(
    tmp_path: Path, files: Watched, space: Releaser
) -> None:
    path, new = large(tmp_path), tmp_path / "new"
    new.write_bytes(b"new")
    with space.piecemeal(path):
        new.replace(path)
    assert files.emptied.wait(LIMIT_S)
    assert path.read_bytes() == b"new"


def test_a_reader_finds_the_whole_file_and_its_space_goes_when_it_is_done(
    tmp_path: Path, files: Watched, space: Releaser, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Event()
    pause = space._pause

    def paused(seconds: float) -> bool:
        tried.set()
        return pause(seconds)

    monkeypatch.setattr(space, "_pause", paused)
    monkeypatch.setattr(releaser, "_TRIES", 10**6)
    path = large(tmp_path)
    with path.open("rb") as reader:
        with space.piecemeal(path):
            path.unlink()
        assert tried.wait(LIMIT_S)
        assert files.sizes == []
        assert reader.read() == b"x" * (6 * MIB)
    assert files.emptied.wait(LIMIT_S)


def test_a_reader_that_is_never_done_is_not_waited_for(
    tmp_path: Path, files: Watched, space: Releaser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releaser, "_TRIES", 2)
    path, other = large(tmp_path), tmp_path / "other"
    with path.open("rb") as reader:
        with space.piecemeal(path):
            path.replace(other)
            other.unlink()
        path = large(tmp_path)
        with space.piecemeal(path):
            path.unlink()
        assert files.emptied.wait(LIMIT_S), "the next one has its turn"
        assert files.sizes[0] == 5 * MIB and files.sizes.count(0) == 1
        assert reader.read() == b"x" * (6 * MIB)


def test_a_file_with_another_name_is_let_alone(tmp_path: Path, files: Watched, space: Releaser) -> None:
    path, backup = large(tmp_path), tmp_path / "backup"
    backup.hardlink_to(path)
    with space.piecemeal(path):
        path.unlink()
    space.stop()
    assert files.sizes == []
    assert backup.read_bytes() == b"x" * (6 * MIB)


def test_waiting_files_are_removed_at_once_at_the_end(
    tmp_path: Path, files: Watched, space: Releaser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releaser, "_TRIES", 10**6)
    path = large(tmp_path)
    with path.open("rb"):
        with space.piecemeal(path):
            path.unlink()
        second = large(tmp_path)
        with space.piecemeal(second):
            second.unlink()
        space.stop()
    assert not space._waiting and files.sizes == []


def test_deleted_segments_go_in_pieces(
    tmp_path: Path, files: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releaser, "_SMALL_BYTES", 100 * KIB)
    log = open_log(tmp_path, files, segment_bytes=2 * MIB, checkpoint_bytes=MIB, traffic_retention_bytes=0)
    log.low_water = lambda: 2**64 - 1
    feed = durable_feed(log)
    for _ in range(5):
        fill(log, feed, 2 * MIB)
        settle(log)
        log.tend(1 << 60)
        settle(log)
    assert files.emptied.wait(LIMIT_S)
    log.close_sync()
