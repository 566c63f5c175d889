"""The power of a real file system is cut under load: nothing confirmed is lost, and every start succeeds.

This is the short run; `make powercut` is the long one. `test_log_powercut.py` loses any set of unsynced pages
of the log itself.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash import powercut
from tests.support.faults import LoopDisk

pytestmark = pytest.mark.penstock_only("the file system is made for penstock's folder")


@pytest.mark.timeout(900)
def test_a_power_cut_loses_nothing_that_was_confirmed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    reason = LoopDisk.why_not(tmp_path_factory.getbasetemp())
    if reason:
        pytest.skip(reason)
    report = powercut.run(tmp_path / "run", cycles=2, seed=seed, load_s=(0.1, 0.8), acked_min=50)
    print(report)
    assert report.verdict.word == "PASS", str(report)
    assert report.sessions_lost == 0, str(report)


def test_the_disk_loses_what_was_not_synced_and_keeps_the_rest(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The tool itself: a cut that loses nothing would prove nothing."""
    reason = LoopDisk.why_not(tmp_path_factory.getbasetemp())
    if reason:
        pytest.skip(reason)
    with LoopDisk(tmp_path, 32) as disk:
        kept, lost = disk.path / "kept", disk.path / "lost"
        with kept.open("wb", buffering=0) as file:
            file.write(b"x" * 100_000)
            os.fsync(file.fileno())
            parent = os.open(disk.path, os.O_RDONLY)
            os.fsync(parent)
            os.close(parent)
        lost.write_bytes(b"y" * 100_000)
        disk.cut_power()
        disk.unmount()
        disk.mount()
        assert kept.read_bytes() == b"x" * 100_000
        assert not lost.exists() or lost.read_bytes() != b"y" * 100_000
