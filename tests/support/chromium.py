"""A headless Chromium of its own, told over the DevTools protocol which pages to open."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Chromium", "chromium_path"]

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --remote-debugging-port=0 about:blank"
).split()


def chromium_path() -> str:
    """The program: preferably the one without a desktop's windows, which takes a third of the CPU."""
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert path is not None, "the tests need Chromium: sudo apt-get install chromium-headless-shell"
    return path


class Chromium:
    """A context manager: the browser runs within."""

    def __init__(self, folder: Path) -> None:
        """`folder`: an empty one, for its profile."""
        self._folder = folder
        self._process = subprocess.Popen(
            [chromium_path(), f"--user-data-dir={folder}", *_FLAGS],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Debian's script of the headless shell waits for the program: both are ended.
            start_new_session=True,
        )

    def __enter__(self) -> Chromium:
        port = self._folder / "DevToolsActivePort"
        self._wait(lambda: port.exists() and port.read_text().count("\n") > 0)
        self._base = f"http://127.0.0.1:{port.read_text().split()[0]}/json"
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(30)

    def open(self, url: str) -> str:
        """Open a page in a tab of its own; the tab's id."""
        return str(self._ask(f"/new?{url}", "PUT")["id"])

    def wait_at(self, tab: str, *urls: str) -> None:
        """Wait until a tab shows a page whose address begins with one of `urls`."""

        shown: list[str] = []

        def there() -> bool:
            shown[:] = (one["url"] for one in self._ask("/list", "GET") if one["id"] == tab)
            return any(one.startswith(urls) for one in shown)

        self._wait(there, lambda: f"{shown} is shown, not {urls}")

    def _ask(self, path: str, method: str) -> Any:
        with urllib.request.urlopen(
            urllib.request.Request(self._base + path, method=method), timeout=30
        ) as got:
            return json.load(got)

    def _wait(self, condition: Callable[[], bool], told: Callable[[], str] = str) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert self._process.poll() is None, "Chromium has ended"
            assert time.monotonic() < end, told()
            time.sleep(0.02)
