"""Group commit: one thread that syncs what is written.

The thread syncs everything written when it begins; what is written meanwhile gathers for the next sync,
which follows at once when somebody waits for it. There is no artificial wait. A failed sync is never
repeated: the kernel may have dropped the pages, so a second one would prove nothing.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.log_core.files import Files

__all__ = ["Committer"]

_LOG: Final = logging.getLogger("penstock.log")
_SLOW_S: Final = 1.0


class Committer:
    """The sync thread of one log."""

    def __init__(self, files: Files, done: Callable[[int, int, OSError | None], None]) -> None:
        """`done(lsn, mark, error)` is called by the thread after each sync."""
        self._files = files
        self._done = done
        self._wanted: tuple[tuple[int, ...], int, int] | None = None
        self._released: list[int] = []
        self._wake = threading.Lock()
        self._wake.acquire()
        self._stopping = False
        self.syncs = 0
        self.seconds = 0.0
        """Spent in syncs."""
        self._thread = threading.Thread(target=self._run, name="penstock-committer", daemon=True)
        self._thread.start()

    def want(self, descriptors: tuple[int, ...], lsn: int, mark: int) -> None:
        """Sync these files, which hold everything up to `lsn`; `mark` comes back with the answer.

        A call replaces the one before unless that is already being worked on, so `descriptors` names every
        file that is not known to be synced, oldest first.
        """
        self._wanted = (descriptors, lsn, mark)
        self._kick()

    def _kick(self) -> None:
        try:
            self._wake.release()
        except RuntimeError:
            pass  # it is released already: the thread will look

    def release(self, fd: int) -> None:
        """Close a descriptor that later calls of `want` do not name, once no sync can be using it."""
        self._released.append(fd)
        self._kick()

    def _run(self) -> None:
        last = None
        while True:
            self._wake.acquire()
            wanted = self._wanted
            if wanted is not None and wanted is not last:
                last = wanted
                descriptors, lsn, mark = wanted
                started = time.monotonic()
                try:
                    for fd in descriptors:
                        self._files.fdatasync(fd)
                except OSError as error:
                    self._done(lsn, mark, error)
                    return
                self.syncs += 1
                took = time.monotonic() - started
                self.seconds += took
                if took > _SLOW_S:
                    _LOG.warning("a sync of the log took %.1f s; the disk is slow or busy", took)
                self._done(lsn, mark, None)
            # A later want does not name what was released before it, so only the newest can still need it.
            newest = self._wanted
            for fd in list(self._released):
                if newest is None or newest is last or fd not in newest[0]:
                    self._released.remove(fd)
                    os.close(fd)
            if self._stopping and self._wanted is last:
                return

    def stop(self) -> None:
        """End the thread after the sync that is wanted."""
        self._stopping = True
        self._kick()
        self._thread.join()
