"""A user does not wait: `import penstock` and `penstock --help` take little CPU time."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from tests.support.brokers import ROOT

BARE = ["-c", "pass"]


def cpu_ms(words: list[str]) -> float:
    """CPU time of a process."""
    # As it is installed: compiled once.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = spent_s()
    subprocess.run(
        [sys.executable, *words],
        env={**environment, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )
    return (spent_s() - before) * 1000


def spent_s() -> float:
    """CPU time of all processes that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize(
    ("words", "times", "most_ms"),
    [
        (["-c", "import penstock"], 1.5, 30),
        (["-m", "penstock", "--help"], 2.5, 60),
        (["-m", "penstock", "--version"], 2.5, 60),
    ],
    ids=["import", "help", "version"],
)
def test_it_begins_at_once(words: list[str], times: float, most_ms: int) -> None:
    """Compared with a bare interpreter, which takes 15 or 50 ms itself: the ratio and the difference.

    Of seven runs of each, in turn, the least counts: other work on this machine adds to some of them.
    """
    runs = [(cpu_ms(BARE), cpu_ms(words)) for _ in range(7)]
    bare, whole = (min(spent) for spent in zip(*runs, strict=True))
    assert whole <= times * bare
    assert whole - bare <= most_ms
