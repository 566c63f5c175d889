"""Gives back the space of large files in small pieces.

Removing a file of 64 MiB at once blocks the disk until the file system has freed it all. This takes 15 to
20 ms (measured on ext4 with `discard`, where the device is told of each freed block), and no sync returns
meanwhile. So a file that loses its last name is kept open here and shortened from its end, a piece at a
time. The pauses are four times as long as a piece took, so that the syncs of the log fit in between.

A file is shortened only if nobody else has it open. A reader that still uses it (a scrub, a backup, Spark)
finds it whole. After some tries the space is left to go when that reader closes the file. The system says
whether there is a reader: it grants a write lease only on a file that one descriptor has open. If it
cannot say, the space goes at once. It also goes at once when too many files wait, and at the end.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Final

from penstock.log_core.files.files import Files

__all__ = ["Releaser"]

_LOG: Final = logging.getLogger("penstock.log")

_PIECE_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 4 << 20
"""A file that is not larger is deleted at once."""
_WAITING_MAX: Final = 8
"""More files than this wait: their space is wanted sooner than it comes in pieces."""
_PAUSES: Final = 4
"""Of so many times the time that a piece took."""
_TRIES: Final = 40
_TRY_EACH_S: Final = 0.05


class Releaser:
    """Of one log; its thread begins with the first file."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: deque[int] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def piecemeal(self, path: Path) -> Iterator[None]:
        """A file that loses its last name, `path`, inside gives back its space in pieces, after it."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # there is no such file, or it may not be written to: then as it comes
            yield
            return
        try:
            yield
        except BaseException:
            os.close(fd)
            raise
        found = os.fstat(fd)
        if found.st_nlink or found.st_size <= _SMALL_BYTES:
            os.close(fd)
            return
        with self._wake:
            if self._stopping:
                os.close(fd)
                return
            self._waiting.append(fd)
            self._wake.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-releaser", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._stopping:
                    self._wake.wait()
                if self._stopping:
                    return
                fd = self._waiting.popleft()
            try:
                if self._is_alone(fd):
                    self._shorten(fd)
            except OSError as error:
                _LOG.warning("the space of a file that was removed could not be freed in pieces: %s", error)
            except Exception:  # others wait behind it
                _LOG.exception("the space of a file that was removed could not be freed in pieces")
            finally:
                os.close(fd)

    def _pause(self, seconds: float) -> bool:
        """Wait; False: there is no time for it."""
        with self._wake:
            if not self._stopping and len(self._waiting) <= _WAITING_MAX:
                self._wake.wait_for(lambda: self._stopping, seconds)
            return not self._stopping and len(self._waiting) <= _WAITING_MAX

    def _is_alone(self, fd: int) -> bool:
        """Whether nobody else has the file open: nobody will, for it has no name."""
        for _ in range(_TRIES):
            with suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
                return True
            if not self._pause(_TRY_EACH_S):
                break
        return False

    def _shorten(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        while size > 0:
            size = max(size - _PIECE_BYTES, 0)
            began = monotonic()
            self._files.truncate(fd, size)
            if not self._pause(_PAUSES * (monotonic() - began)):
                return

    def stop(self) -> None:
        """End; what waits gives back its space at once."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        while self._waiting:
            os.close(self._waiting.popleft())
