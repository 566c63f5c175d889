"""Confirms wait for the journal instead of the disk: the same face as `wal._committer.Committer`.

Each wish notes the entry that was appended last. It has come about when that entry is kept.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from penstock.log_core.replication.owner import Owner

__all__ = ["JournalCommitter"]


class JournalCommitter:
    """Of one log whose folder is replicated."""

    def __init__(self, owner: Owner, done: Callable[[int, int, OSError | None], object]) -> None:
        """`done`: as of `Committer`; it is called by a thread of the journal."""
        self.syncs = 0
        """Times that the journal's answer moved the durable end."""
        self.ns = 0
        """Nanoseconds from wish to answer, in all."""
        self._owner = owner
        self._done = done
        self._wanted: deque[tuple[int, int, int, int]] = deque()
        self._synced = (0, 0)
        self._bell = -1
        self._stopped = False
        self._lock = threading.Lock()
        owner.on_kept = self._kept

    def want(self, descriptors: tuple[int, ...], lsn: int, mark: int) -> None:
        """Tell when everything up to `lsn` is kept; `mark` comes back with the answer."""
        with self._lock:
            self._wanted.append((self._owner.last, lsn, mark, time.monotonic_ns()))
        if self._owner.kept >= self._owner.last or self._owner.failed is not None:
            self._kept()

    def release(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def _kept(self) -> None:
        failed = self._owner.failed
        with self._lock:
            reached = self._owner.kept
            wanted = self._wanted
            now = time.monotonic_ns()
            moved = False
            while wanted and wanted[0][0] <= reached:
                _, lsn, mark, since = wanted.popleft()
                self._synced = (lsn, mark)
                self.ns += now - since
                moved = True
            self.syncs += moved
            bell = self._bell
            if moved and bell >= 0:
                os.eventfd_write(bell, 1)
            stopped = self._stopped
            if failed is not None:
                self._stopped = True
        if failed is not None and not stopped:
            error = OSError(errno.EIO, failed.message)
            error.__cause__ = failed
            self._done(*self._synced, error)
        elif moved and bell < 0:
            self._done(*self._synced, None)

    def hang_bell(self) -> int:
        """An eventfd that becomes readable with each answer from now on."""
        with self._lock:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return self._bell

    def answer_bell(self) -> tuple[int, int]:
        """The LSN and the mark that are kept; the bell is silent again."""
        with self._lock:
            if self._bell >= 0:
                try:
                    os.eventfd_read(self._bell)
                except BlockingIOError:
                    pass
            return self._synced

    def take_bell_down(self) -> tuple[int, int]:
        """The same, once more: from now on `done` is called."""
        with self._lock:
            bell, self._bell = self._bell, -1
            if bell >= 0:
                os.close(bell)
            return self._synced

    def stop(self) -> None:
        """Tell nobody any more."""
        with self._lock:
            self._stopped = True
