"""Raw reads: the files of the log as bytes, for readers outside the process. Nothing is decoded or cached.

One thread reads for all of them, so that they take nothing from consumers that catch up. A file may be
deleted between the answer that names it and the read of it; the reader is then told so.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from penstock.lazy_dataclass import dataclass
from penstock.log_core.files.layout import Folder
from penstock.log_core.threads.pool import Pool

__all__ = ["READ_MAX", "Listing", "RawFiles"]

READ_MAX: Final = 4 << 20
"""Bytes of one read."""

Kind = Literal["segment", "index"]


@dataclass(frozen=True)
class Listing:
    """The bytes that there are."""

    manifest: bytes
    """The file MANIFEST."""
    segments: list[tuple[int, int, int]]
    """Number, inode (another one: it was rewritten) and size in bytes of each WAL file, ascending."""


class RawFiles:
    """Owned by one Log; `post(function, *arguments)` runs something on the loop."""

    def __init__(self, folder: Folder, post: Callable[..., None]) -> None:
        self._folder = folder
        self._post = post
        self._pool = Pool(1, "penstock-raw", post)

    def list(self, done: Callable[[Listing | OSError], object]) -> None:
        """Look what there is; `done` is called on the loop."""
        self._pool.run(self._list, done, failed=lambda error: done(_internal(error)))

    def _list(self, done: Callable[[Listing | OSError], object]) -> None:
        folder = self._folder
        try:
            manifest = folder.manifest.read_bytes()
            found = []
            for number in folder.segment_numbers():
                try:
                    stat = folder.segment(number).stat()
                except FileNotFoundError:
                    continue
                found.append((number, stat.st_ino, stat.st_size))
        except OSError as error:
            self._post(done, error)
        else:
            self._post(done, Listing(manifest, found))

    def read(
        self,
        kind: Kind,
        number: int,
        inode: int,
        offset: int,
        size: int,
        done: Callable[[bytes | OSError], object],
    ) -> None:
        """Read at most `size` (READ_MAX) bytes of a segment or its sparse index; `done` on the loop.

        It gets less at the end of the file, and FileNotFoundError when there is none with that inode (0:
        whichever).
        """
        path = self._folder.segment(number) if kind == "segment" else self._folder.time_index(number)
        self._pool.run(
            self._read,
            path,
            inode,
            offset,
            min(size, READ_MAX),
            done,
            failed=lambda error: done(_internal(error)),
        )

    def _read(
        self, path: Path, inode: int, offset: int, size: int, done: Callable[[bytes | OSError], object]
    ) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if inode and os.fstat(fd).st_ino != inode:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
                data = os.pread(fd, size, offset)
            finally:
                os.close(fd)
        except OSError as error:
            self._post(done, error)
        else:
            self._post(done, data)

    def close(self) -> None:
        """End the thread, behind the reads that are under way."""
        self._pool.shutdown(wait=True)


def _internal(error: Exception) -> OSError:
    """The text for those who wait; the log lines have the rest."""
    return OSError(errno.EIO, f"an internal error: {error!r}")
