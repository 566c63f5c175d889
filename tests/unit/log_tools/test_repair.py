"""`penstock log repair`: after it a plain start serves all that can be read; what cannot is listed."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.errors import StartError
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import Folder
from penstock.log_core.log import Log
from penstock.log_tools.inspection import verify
from penstock.log_tools.repair import repair
from tests.support.logs import KIB, Unsynced, batch_of, durable_feed, fill, load_entries, open_log, settle
from tests.unit.log_tools.conftest import Run, flip
from tests.unit.router.conftest import World


def _positions(log: Log, feed_id: int) -> list[int]:
    feed = log.feed(feed_id)
    for index in range(feed.start, feed.end):
        load_entries(log, feed, index)
    return feed.positions(feed.start, 1 << 20)


class Large:
    """Several closed segments, as a clean stop (`stopped`) and as a kill -9 (`killed`) leave them."""

    def __init__(self, path: Path) -> None:
        log = open_log(path / "live")
        feed = durable_feed(log)
        self.feed = feed.id
        self.lsns = []
        for _ in range(2):
            self.lsns += fill(log, feed, 300 * KIB)
            settle(log)
        self.killed = Path(shutil.copytree(path / "live", path / "killed"))
        log.close_sync()
        self.stopped = path / "live"

    def check(self, folder: Path, lost: set[int]) -> None:
        """A plain start has all but what is said to be lost; so have later ones, after a stop or not."""
        log = open_log(folder)
        assert log.recovery.holes == []
        kept = _positions(log, self.feed)
        assert kept == [lsn for lsn in self.lsns if lsn not in lost]
        for lsn in kept[::50]:
            batch = batch_of(log, lsn)
            assert batch.record(lsn - batch.base_lsn).body == bytes(400)
        settle(log)
        crashed = Path(shutil.copytree(folder, folder.with_name("crashed")))
        log.close_sync()
        for again in (folder, crashed):
            log = open_log(again)
            assert log.recovery.holes == []
            assert _positions(log, self.feed) == kept
            log.close_sync()


@pytest.fixture(scope="module")
def large_once(tmp_path_factory: pytest.TempPathFactory) -> Large:
    return Large(tmp_path_factory.mktemp("large"))


@pytest.fixture(params=["stopped", "killed"])
def damaged(large_once: Large, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy that the test may damage."""
    return Path(shutil.copytree(getattr(large_once, request.param), tmp_path / "data"))


def _repaired(folder: Path) -> set[int]:
    """Repair; the positions that it says are lost. Nothing is damaged afterwards."""
    trial = repair(Folder(folder), apply=False, files=Unsynced())
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = repair(Folder(folder), apply=True, files=Unsynced())
    assert [f.problem for f in done.findings] == [f.problem for f in trial.findings] != []
    assert [f.lost for f in done.findings] == [f.lost for f in trial.findings]
    for finding in done.findings:
        if finding.copy:
            assert Path(finding.copy).read_bytes() == before[Path(finding.file)]
    assert repair(Folder(folder), apply=False, files=Unsynced()).findings == []
    with open(os.devnull, "w") as nowhere:
        problems = verify(Folder(folder), nowhere)
    assert problems <= (not (folder / "shard-000" / "MANIFEST").exists())
    return {p for lost in done.lost for p in range(lost.first_position, lost.last_position + 1)}


@pytest.mark.parametrize("which", [0, 3, -2])
@pytest.mark.parametrize("at", [4096 + 3, 4096 + 70, 20_000, 50_000, -3])
def test_a_flipped_bit_costs_its_batch_only(large_once: Large, damaged: Path, which: int, at: int) -> None:
    contents = {path: len(path.read_bytes().rstrip(b"\0")) for path in sorted(damaged.rglob("*.wal"))}
    wal, content = [(path, size) for path, size in contents.items() if size > 55_000][which]
    flip(wal, at if at > 0 else content + at - 64)
    lost = _repaired(damaged)
    assert len(lost) in (0, 2, 10)  # a note, the first changes of tables, or the records of a tick
    large_once.check(damaged, lost)


def test_a_damaged_head_costs_nothing(large_once: Large, damaged: Path) -> None:
    flip(sorted(damaged.rglob("*.wal"))[2], 50)
    assert _repaired(damaged) == set()
    large_once.check(damaged, set())


def test_a_missing_segment_costs_its_records_only(large_once: Large, damaged: Path) -> None:
    gone = sorted(damaged.rglob("*.wal"))[2]
    gone.unlink()
    lost = _repaired(damaged)
    assert 0 < len(lost & set(large_once.lsns)) < 250
    large_once.check(damaged, lost)


@pytest.mark.parametrize("pattern", ["*.fdx", "*.tix", "MANIFEST", "CLEAN", "*.ckpt"])
def test_files_that_can_be_made_anew_cost_nothing(large_once: Large, damaged: Path, pattern: str) -> None:
    found = sorted(damaged.rglob(pattern))
    if not found:
        pytest.skip("a crash leaves no CLEAN")
    raw = found[0].read_bytes()
    flip(found[0], len(raw) // 2)
    assert _repaired(damaged) == set()
    large_once.check(damaged, set())


def test_it_says_whose_messages_are_lost(world: World, lines: Run) -> None:
    one, two = world.queue("one", durable=True), world.queue("two", durable=True)
    world.bind("one", "amq.topic", "#")
    world.bind("two", "amq.topic", "a.*")
    for number in range(120):
        world.publish("amq.topic", ("a.b", "c.d")[number % 2], f"{number:06}" + "x" * 20000)
        if number % 10 == 9:
            world.log.flush()
    assert one.cursor.take(25) == 25
    one.cursor.settle_taken()
    assert two.ready_count == 60
    world.close()
    wal = Folder(world.folder).segment(1)
    flip(wal, wal.read_bytes().index(b"000024"))
    (done,) = lines("log", "repair", world.folder, "--apply", "-o", "json", code=3)
    (finding,) = done["findings"]
    (lost,) = finding["lost"]
    assert lost["by_queue"] == {"queue 'one' in vhost '/'": 5, "queue 'two' in vhost '/'": 5}
    assert lost["last_position"] - lost["first_position"] == 9
    world._open()
    bodies = [body[:6] for body in world.read(world.vhost.queues["one"].queue)]
    assert bodies == [f"{number:06}" for number in range(30, 120)]
    world.close()


def test_without_apply_nothing_changes(stopped: Path, lines: Run, capfd: pytest.CaptureFixture[str]) -> None:
    wal = Folder(stopped).segment(1)
    flip(wal, wal.read_bytes().index(b"order 1"))
    raw = wal.read_bytes()
    assert main(["log", "repair", str(stopped)]) == 3
    assert "run it with --apply" in capfd.readouterr().out
    assert wal.read_bytes() == raw and not list(Folder(stopped).quarantine.iterdir())


def test_a_sound_log_is_left_alone(stopped: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = {
        path: path.read_bytes() for path in stopped.rglob("*") if path.is_file() and path.name != "LOCK"
    }
    assert main(["log", "repair", str(stopped), "--apply"]) == 0
    assert capfd.readouterr().out == "nothing is damaged\n"
    after = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file() and path.name != "LOCK"}
    assert after == before


def test_the_folder_of_a_running_penstock_is_not_mended(world: World) -> None:
    with pytest.raises(StartError, match=f"is locked by another penstock .pid {os.getpid()}"):
        repair(Folder(world.folder), apply=True)
    world.close()


class _NoRoom(Files):
    def fsync(self, fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_without_room_for_a_copy_nothing_changes(stopped: Path) -> None:
    wal = Folder(stopped).segment(1)
    flip(wal, wal.read_bytes().index(b"order 1"))
    raw = wal.read_bytes()
    with pytest.raises(StartError, match="no space left"):
        repair(Folder(stopped), apply=True, files=_NoRoom())
    assert wal.read_bytes() == raw
    assert not list(Folder(stopped).quarantine.iterdir())
