"""A kill between every two steps of starting, rolling, closing, checkpointing, deleting and stopping.

A child process appends, syncs and notes each confirmed LSN in a pipe until it dies at the chosen step; the
log it leaves must start and hold everything that was confirmed, tables as well.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log_core.batch._batch import ALIGN, LOST
from penstock.log_core.files.files import FAILPOINT_STATUS
from penstock.log_core.files.layout import WAL_HEAD_BYTES, Folder
from tests.support.logs import KIB, batch_of, load_entries, open_log, settle

ROOT = Path(__file__).parents[2]

CHILD = """
import sys
from pathlib import Path
from penstock.log_core.files.files import Files
from penstock.log_core.state.tables import feed_key
from tests.support.logs import KIB, Unsynced, append, durable_feed, open_log, settle

class Dying(Unsynced):
    def __init__(self):
        super().__init__()
        Files.__init__(self)
        self.looks = 0

    def free_bytes(self, folder):
        # Two of three segments go into the further folder.
        self.looks += folder.name == "wal"
        return (1 << 61) * (self.looks % 3 == 0) if folder.name == "wal" else 1 << 60

further = sys.argv[1] + ".further"
Path(further).mkdir(exist_ok=True)
log = open_log(Path(sys.argv[1]), Dying(), checkpoint_bytes=100 * KIB, folders=(further,))
feed = next((feed for feed in log.feeds.values()), None) or durable_feed(log)
acked = stuck = 0

class Everything:
    lp = 0

    def verdict(self, enc, key):
        return 1

def mark(needs, done):
    needs.need(stuck)
    needs.need_feed(feed.id, acked, 2**64 - 1)
    done()

# In the first half segments are deleted; then one record is needed for ever, and they are rewritten.
log.low_water = lambda: min(acked, stuck or acked)
log.mark_needs = mark
for number in range(60):
    if number == 30:
        stuck = lsn
    if number in (10, 20, 25):
        found = []
        end = log.appender.next_lsn
        log.search(1, Everything(), lambda *result: found.append(result), last=end, durable=True)
        log.flush()
        while not found:
            log._inbox.wait()
        if found[0][0] is not None:
            log.tables.put("feed", feed_key(found[0][0].id), b"")
    lsn = append(log, [feed], bytes(9000))
    log.tables.put("t", b"%d" % (number % 7), b"%d" % lsn)
    assert log.wait_synced(log.appender.next_lsn - 1)
    print(lsn, feed.id, flush=True)
    acked = lsn - 5
    settle(log)
    log.tend(1 << 60)
    settle(log)
log.close_sync()
print("done", flush=True)
"""


def _steps() -> list[str]:
    """Every step that the code names."""
    found = set()
    sealed = set()
    for source in (ROOT / "log_core").rglob("*.py"):
        text = source.read_text()
        found |= set(re.findall(r'reached\("([\w.]+)"\)', text))
        sealed |= set(re.findall(r'write_sealed\(.*"(\w+)"\)', text))
    found |= {f"{name}.{step}" for name in sealed for step in ("written", "synced", "renamed", "done")}
    return sorted(found)


def test_the_steps_are_found() -> None:
    steps = _steps()
    assert {"roll.prepared", "checkpoint.renamed", "delete.unlink", "fdx.synced", "clean.done"} <= set(steps)


def _live(folder: Path, failpoint: str) -> list[list[str]]:
    """One life of the child, which must end at the failpoint; the lines it wrote, in words."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)],
        env={**os.environ, "PENSTOCK_FAILPOINT": failpoint},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    assert child.returncode == FAILPOINT_STATUS, f"{failpoint} was not reached"
    return [line.split() for line in child.stdout.splitlines()]


AT_A_START = ("start", "manifest", "roll")


@pytest.mark.parametrize("step", [step for step in _steps() if step.startswith(AT_A_START)])
def test_a_kill_while_starting_after_a_kill_loses_nothing_confirmed(step: str, tmp_path: Path) -> None:
    lines = _live(tmp_path, "finish.indexed:4")
    _tear(tmp_path)
    _live(tmp_path, f"{step}:1")
    _live(tmp_path, f"{step}:1")
    _check(tmp_path, lines, torn=True)


def _tear(data_dir: Path) -> None:
    """Begin a batch behind the last one, as a kill within a write leaves it."""
    folder = Folder(data_dir)
    for number in reversed(folder.segment_numbers()):
        raw = folder.segment(number).read_bytes()
        end = len(raw.rstrip(b"\0"))
        if end > WAL_HEAD_BYTES:
            with folder.segment(number).open("r+b") as file:
                file.seek(-(-end // ALIGN) * ALIGN)
                file.write((4 * KIB).to_bytes(4, "little") + bytes(range(1, 200)))
            return
    raise AssertionError("there is no batch")


@pytest.mark.parametrize("step", _steps())
def test_a_kill_at_a_step_loses_nothing_confirmed(step: str, tmp_path: Path) -> None:
    count = 1 if step.startswith(("start", "clean", "stop")) else 3
    _check(tmp_path, _live(tmp_path, f"{step}:{count}"))


def _check(tmp_path: Path, lines: list[list[str]], *, torn: bool = False) -> None:
    """The log starts, holds what was confirmed, and starts cleanly after that."""
    confirmed = [int(line[0]) for line in lines]
    further = f"{tmp_path}.further"
    log = open_log(tmp_path, folders=(further,))
    assert log.recovery.holes == [] and (torn or log.recovery.truncated_bytes == 0)
    if confirmed:
        feed = log.feed(int(lines[0][1]))
        for index in range(feed.start, feed.end):
            load_entries(log, feed, index)
        kept = feed.positions(feed.start, 1000)
        assert kept == sorted(kept)
        needed = {*confirmed[-6:], *confirmed[29:30]}
        assert set(confirmed[-6:]) <= set(kept)
        for lsn in kept:
            batch = batch_of(log, lsn)
            if batch.kind == LOST:
                assert lsn not in needed, "only what nobody needs is rewritten away"
                continue
            assert batch.record(lsn - batch.base_lsn).body == bytes(9000)
        for number, lsn in list(enumerate(confirmed))[-7:]:
            value = log.tables.get("t", b"%d" % (number % 7))
            assert value is not None and int(value) >= lsn
    settle(log)
    log.close_sync()
    again = open_log(tmp_path, folders=(further,))
    assert again.recovery.clean and again.recovery.warnings == []
    again._wal.prepared()
    assert not list(tmp_path.rglob("*.new")) and not list(Path(further).glob("*.new"))
    linked = {Path(os.readlink(path)) for path in tmp_path.rglob("*.wal") if path.is_symlink()}
    assert linked == set(Path(further).glob("*.wal"))
    again.close_sync()
