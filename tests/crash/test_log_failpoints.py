"""A kill between every two steps of starting, rolling, closing, checkpointing, deleting and stopping.

A child process appends, syncs and notes each confirmed LSN in a pipe until it dies at the chosen step; the
log it leaves must start and hold everything that was confirmed, tables as well.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.log_core.batch._batch import ALIGN, LOST
from penstock.log_core.files.files import FAILPOINT_STATUS
from penstock.log_core.files.layout import WAL_HEAD_BYTES, Folder
from tests.support.forks import forks
from tests.support.limits import LIMIT_S
from tests.support.logs import KIB, batch_of, load_entries, open_log, settle

ROOT = Path(__file__).parents[2]


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
    environment = {
        **os.environ,
        "PENSTOCK_FAILPOINT": failpoint,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
    }
    command = [sys.executable, "-m", "tests.support.dying_log", str(folder)]
    with tempfile.TemporaryFile() as output:
        child = forks.start(command, output, ROOT, environment) or subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=environment
        )
        status = child.wait(LIMIT_S)
        output.seek(0)
        said = output.read().decode()
    assert status == FAILPOINT_STATUS, f"{failpoint} was not reached: {said}"
    return [line.split() for line in said.splitlines()]


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
