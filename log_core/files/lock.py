"""The lock on a data folder: flock on LOCK, which the kernel drops with the process, and the holder's pid."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from penstock.errors import StartError

__all__ = ["Lock"]


class Lock:
    """Held from construction to `release`."""

    def __init__(self, path: Path) -> None:
        """Take it. Raises StartError naming the holder's pid when another process has it."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise StartError.data_locked(str(path.parent), f"pid {pid}" if pid else "") from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go of the folder."""
        os.close(self._fd)
