"""The first waits of a user: `import penstock` and `penstock --help` take little CPU time."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from tests.support.brokers import ROOT


def cpu_ms(words: list[str]) -> float:
    """CPU time of a process, the least of five runs; other work on this machine does not count."""
    found = []
    # As it is installed: compiled once.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(5):
        before = spent_s()
        subprocess.run(
            [sys.executable, *words],
            env={**environment, "PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=120,
        )
        found.append((spent_s() - before) * 1000)
    return min(found)


def spent_s() -> float:
    """CPU time of all processes that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize(
    ("words", "most_ms"),
    [(["-c", "import penstock"], 60), (["-m", "penstock", "--help"], 150)],
    ids=["import", "help"],
)
def test_it_begins_at_once(words: list[str], most_ms: int) -> None:
    assert cpu_ms(words) <= most_ms
