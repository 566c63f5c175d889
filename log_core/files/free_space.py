"""A thread that looks at the free space of the log's file system, because the call may block.

It looks each second, and when a segment begins: at a high rate a disk can fill up in less than a second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

__all__ = ["Watcher"]

_LOG: Final = logging.getLogger("penstock.log")
_EACH_S: Final = 1.0


class Watcher:
    """Runs from `start` until `stop`."""

    def __init__(self, free_bytes: Callable[[], int], tell: Callable[[int | None], None]) -> None:
        """`tell` is called by the thread with what `free_bytes` says; None: it is unknown."""
        self._free_bytes = free_bytes
        self._tell = tell
        self._stopping = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-watcher", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._woken.wait(_EACH_S)
            self._woken.clear()
            if self._stopping:
                return
            free: int | None = None
            try:
                free = self._free_bytes()
            except OSError as error:
                _LOG.warning("the free space is unknown: %s", error)
            except Exception:  # the log is tended by what follows
                _LOG.exception("the free space is unknown: an internal error")
            self._tell(free)

    def look(self) -> None:
        """Look now."""
        self._woken.set()

    def stop(self) -> None:
        """End the thread, if it was started."""
        self._stopping = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()
