"""Pages of memory, as a run finds them: free ones that the machine has at hand, and files' in the page cache.

A virtual machine gives pages that it does not use back to its host, and who wants them again waits: that
counts as the CPU of whoever writes, three times what writing costs else. Pages of files that nobody looked
at go, too. So what a run costs would depend on what ran before it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["bring", "drop", "have_free", "written_since"]

_READ_BYTES = 1 << 22


def have_free(size: int) -> None:
    """Have `size` bytes of free memory that the host need not be asked for: touch so many, and free them."""
    with mmap.mmap(-1, size) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1


def written_since(folder: Path, moment: float) -> list[Path]:
    """The files below `folder` that were written at `moment` (seconds since the epoch) or later."""
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_mtime >= moment]


def bring(files: Iterable[Path]) -> None:
    """Have all of them in the page cache: read once."""
    room = bytearray(_READ_BYTES)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(room):
                pass


def drop(files: Iterable[Path]) -> None:
    """Have nothing of them there; what is not on the disk yet goes there first."""
    for path in files:
        with path.open("rb", buffering=0) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
