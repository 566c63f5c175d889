"""Pages of memory, as a run finds them: free ones that the machine has at hand, and files' in the page cache.

A virtual machine gives pages that it does not use back to its host, and who wants them again waits: that
counts as the CPU of whoever writes: a MiB into a new file then takes 2.5 ms, not 0.2. Pages of files that
nobody looked at go, too. So what a run costs would depend on what ran before it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path

__all__ = ["bring", "drop", "have_free", "written_since"]

_READ_BYTES = 1 << 22


def have_free(folder: Path, size: int) -> None:
    """Have `size` bytes of free memory that the host need not be asked for, where the page cache takes what
    it needs next: that of a file which was written in `folder`, and is gone.
    """
    piece = bytes(_READ_BYTES)
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(size // _READ_BYTES):
            file.write(piece)


def written_since(folder: Path, moment: float) -> list[Path]:
    """The files below `folder` that were written at `moment` (seconds since the epoch) or later."""
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime >= moment:
                found.append(path)
    return found


def _opened(files: Iterable[Path]) -> Iterator[FileIO]:
    """Each of them, but those that are gone meanwhile (checkpoints)."""
    for path in files:
        with suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
            yield file


def bring(files: Iterable[Path]) -> None:
    """Have all of them in the page cache: read once."""
    room = bytearray(_READ_BYTES)
    for file in _opened(files):
        while file.readinto(room):
            pass


def drop(files: Iterable[Path]) -> None:
    """Have nothing of them there; what is not on the disk yet goes there first."""
    for file in _opened(files):
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
