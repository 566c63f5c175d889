"""Early and short reports of failures, for a log that is cut off or never ends.

A plug-in of pytest, named by `tests/conftest.py`. In CI a failure is a line when it happens, besides the
report at the end. A test that is not over in time fails with a line for each other thread, not with their
stacks; should what it cleans up hang, too, that ends as well, and so does the end of a test that has failed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_MESSAGE = 600
_FRAMES = 4
_THREADS = 20
_TIMEOUT_S = pytest.StashKey[float]()


def where(frame: FrameType) -> str:
    """Where a thread is: its innermost frames, the last one first, in a line."""
    stack = [one for one in traceback.extract_stack(frame) if not one.name.startswith("_bootstrap")]
    found = reversed(stack[-_FRAMES:])
    return " < ".join(f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in found)


def others() -> str:
    """Where the other threads are, a line each."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    mine = threading.get_ident()
    frames = [
        (names.get(ident, "?"), frame) for ident, frame in sys._current_frames().items() if ident != mine
    ]
    lines = [f"\nthread {name}: {where(frame)}" for name, frame in frames[:_THREADS]]
    return "".join(lines) + (f"\nand {len(frames) - _THREADS} more" if len(frames) > _THREADS else "")


def _arm(item: pytest.Item, timeout_s: float) -> None:
    """Fail in the main thread after so long, and again after so long, until the timer is cancelled."""

    def late(*_: object) -> None:
        __tracebackhide__ = True
        pytest.fail(f"not over after {timeout_s:g} s{others()}")

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]  # where pytest-timeout looks for it
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, timeout_s, timeout_s)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Instead of pytest-timeout's own, whose stacks of all threads crowd out what else there is to read."""
    if settings.method != "signal" or threading.current_thread() is not threading.main_thread():
        return None
    item.stash[_TIMEOUT_S] = settings.timeout
    _arm(item, settings.timeout)
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """pytest-timeout cancels its timer when a test fails, and the end of that may hang, too."""
    if _TIMEOUT_S in item.stash:
        _arm(item, item.stash[_TIMEOUT_S])
    return (yield)


class AtOnce:
    """Tells failures as they happen."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of each part of each test, on whichever worker."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = f"{crash.path}:{crash.lineno}: {crash.message}" if crash else str(report.longrepr)
            self._reporter.ensure_newline()
            self._reporter.write_line(f"{report.when} of {report.nodeid} failed: {text[:_MESSAGE]}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Tell failures at once in CI, in the process that reports."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if "CI" in os.environ and reporter is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(AtOnce(reporter))
