"""The report of failed or hung tests (`tests.support.reports`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HANGS = """
import signal
import threading

import pytest

NEVER = threading.Event()


def hang():
    # The time of the test is over now, and not before it hangs: however slow the machine is.
    signal.setitimer(signal.ITIMER_REAL, 0.01, signal.getitimer(signal.ITIMER_REAL)[1])
    NEVER.wait()


def test_hangs_and_its_end_too():
    threading.Thread(target=NEVER.wait, daemon=True, name="the other").start()
    try:
        hang()
    finally:
        hang()


@pytest.fixture
def unending():
    yield
    hang()


def test_fails_and_its_end_hangs(unending):
    raise ValueError("the reason")
"""


def test_a_hung_test_ends_and_each_failure_is_reported_at_once_in_short(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HANGS)
    words = "-p tests.support.reports -p no:cacheprovider --rootdir=. --timeout=60 --tb=short -q test_it.py"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CI": "true"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "2 failed, 1 error" in ran.stdout, ran.stdout + ran.stderr
    at_once, _, report = ran.stdout.partition("= ERRORS =")
    hung, failed, end = (line for line in at_once.splitlines() if " of test_it.py" in line)
    assert "call of test_it.py::test_hangs_and_its_end_too failed" in hung and "not over after 60 s" in hung
    assert "thread the other: " in at_once
    assert "call of test_it.py::test_fails_and_its_end_hangs failed" in failed and "the reason" in failed
    assert "teardown of test_it.py::test_fails_and_its_end_hangs failed" in end
    assert "FAILED test_it.py::test_fails_and_its_end_hangs - ValueError: the reason" in report
