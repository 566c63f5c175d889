"""What of files is in the system's page cache: all of them, or nothing.

Who reads what was written a while ago gets it from memory or from the disk as the system pleases: virtual
machines take back pages that nobody looked at for some seconds. Figures of reading are taken with either, on
purpose.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["bring", "drop", "written_since"]

_READ_BYTES = 1 << 22


def written_since(folder: Path, moment: float) -> list[Path]:
    """The files below `folder` that were written at `moment` (seconds since the epoch) or later."""
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_mtime >= moment]


def bring(files: Iterable[Path]) -> None:
    """Have all of them there: read once."""
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
