"""`penstock log backup`: the copy is a log of its own, and neither can change the other."""

from __future__ import annotations

import errno
import io
import os
import shutil
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.errors import StartError
from penstock.log_core.files.layout import Folder
from penstock.log_core.files.manifest import Manifest
from penstock.log_core.log import Log
from penstock.log_tools import backup as module
from penstock.log_tools.backup import backup
from penstock.log_tools.inspection import verify
from tests.support.logs import KIB, append, body_of, durable_feed, fill, load_entries, open_log, settle
from tests.unit.log_tools.conftest import Run, flip
from tests.unit.router.conftest import World


def _positions(log: Log, feed_id: int) -> list[int]:
    feed = log.feed(feed_id)
    for index in range(feed.start, feed.end):
        load_entries(log, feed, index)
    return feed.positions(feed.start, 1 << 20)


def _problems(folder: Path) -> int:
    return verify(Folder(folder), io.StringIO())


def test_a_copy_of_a_running_log_has_all_that_was_written(tmp_path: Path) -> None:
    log = open_log(tmp_path / "live")
    feed = durable_feed(log)
    lsns = fill(log, feed, 500 * KIB)
    settle(log)
    lsns.append(append(log, [feed], b"written"))
    log.flush()
    append(log, [feed], b"not yet written")
    done = backup(Folder(tmp_path / "live"), tmp_path / "copy")
    assert done.last_position == lsns[-1]
    assert done.linked_files > 10 and done.copied_files <= 2
    log.flush()
    more = fill(log, feed, 300 * KIB)
    settle(log)

    copy = open_log(tmp_path / "copy")
    assert copy.recovery.holes == [] and copy.recovery.truncated_bytes == 0
    assert not copy.recovery.clean
    assert _positions(copy, feed.id) == lsns
    assert body_of(copy, lsns[0]) == bytes(400) and body_of(copy, lsns[-1]) == b"written"
    own = fill(copy, copy.feed(feed.id), 200 * KIB)
    settle(copy)
    copy.close_sync()
    assert _problems(tmp_path / "copy") == 0

    assert _problems(tmp_path / "live") == 0
    assert _positions(log, feed.id)[-len(more) :] == more
    log.close_sync()
    again = open_log(tmp_path / "live")
    assert again.recovery.clean and not set(own) & set(_positions(again, feed.id))
    again.close_sync()


def test_deletions_and_rewrites_in_the_log_do_not_change_the_copy(tmp_path: Path) -> None:
    log = open_log(tmp_path / "live")
    feed = durable_feed(log)
    lsns = fill(log, feed, 600 * KIB)
    settle(log)
    backup(Folder(tmp_path / "live"), tmp_path / "copy")
    log.low_water = lambda: 2**64 - 1
    log.tend(1 << 60)
    settle(log)
    log.tend(1 << 60)
    settle(log)
    assert log.first_lsn(0) > lsns[0]
    log.close_sync()
    copy = open_log(tmp_path / "copy")
    assert _positions(copy, feed.id) == lsns
    copy.close_sync()


def test_a_shared_segment_that_must_be_cut_is_copied_first(tmp_path: Path) -> None:
    log = open_log(tmp_path / "live")
    feed = durable_feed(log)
    fill(log, feed, 300 * KIB)
    settle(log)
    backup(Folder(tmp_path / "live"), tmp_path / "copy")
    shared = Folder(tmp_path / "copy").segment(2)
    raw = shared.read_bytes()
    assert shared.stat().st_nlink == 2
    log._files.cut(shared, 5000)
    assert shared.read_bytes() == raw[:5000]
    assert Folder(tmp_path / "live").segment(2).read_bytes() == raw
    log.close_sync()


def test_a_stopped_log_may_be_copied_byte_by_byte(stopped: Path, tmp_path: Path, lines: Run) -> None:
    (done,) = lines("log", "backup", stopped, "--to", tmp_path / "copy", "--copy", "-o", "json")
    assert done["linked_files"] == 0 < done["copied_files"]
    for path in (tmp_path / "copy").rglob("*.wal"):
        assert path.stat().st_nlink == 1
    assert lines("log", "dump", tmp_path / "copy") == lines("log", "dump", stopped)
    shutil.move(stopped, tmp_path / "away")
    shutil.move(tmp_path / "copy", stopped)
    world = World(stopped)
    assert world.read(world.vhost.queues["orders"].queue) == ["order 1", "order 2"]
    world.close()


def test_how_to_restore_is_said(stopped: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "backup", str(stopped), "--to", str(tmp_path / "copy")]) == 0
    told = capfd.readouterr().out
    assert "to restore: stop the gateway" in told and str(tmp_path / "copy") in told
    assert (tmp_path / "copy" / "BACKUP.json").is_file()


def test_a_copy_that_exists_is_not_touched(stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with pytest.raises(StartError, match="copy exists"):
        backup(Folder(stopped), tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


def test_another_file_system_needs_to_be_asked_for(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StartError, match=r"on another file system .*--copy"):
        backup(Folder(stopped), tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    backup(Folder(stopped), tmp_path / "copy", copy=True)


def test_a_damaged_log_is_not_backed_up(stopped: Path, tmp_path: Path) -> None:
    flip(Folder(stopped).manifest, 30)
    with pytest.raises(StartError, match="`penstock log verify`; a damaged log is not backed up"):
        backup(Folder(stopped), tmp_path / "copy")
    assert main(["log", "verify", str(stopped)]) == 3


def test_a_log_that_moves_on_is_followed_and_in_the_end_given_up(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoints that the copy has are replaced before it is complete: so it begins again."""
    calls = 0
    plain = module.read_manifest

    def moving(folder: Folder) -> Manifest:
        nonlocal calls
        calls += 1
        manifest = plain(folder)
        assert isinstance(manifest, Manifest)
        if calls % 2 == 0 and calls <= until:
            manifest.checkpoints = [lsn + 1000 * calls for lsn in manifest.checkpoints]
        return manifest

    monkeypatch.setattr(module, "read_manifest", moving)
    until = 4
    backup(Folder(stopped), tmp_path / "copy")
    assert calls == 6
    until = 1000
    with pytest.raises(StartError, match="changed faster than it could be copied"):
        backup(Folder(stopped), tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"]
