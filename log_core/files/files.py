"""All operations that the log asks of the operating system, in one place, so that a test can make one fail.

A test passes a subclass to `Log.open`. PENSTOCK_FAILPOINT=NAME[:N] in the environment ends the process, as
kill -9 does, when the step NAME is reached for the Nth time (default 1). The steps are the names given to
`reached` in this folder.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from penstock.log_core.files._io import exchange, write_batches

__all__ = ["FAILPOINT_STATUS", "Files", "is_full"]

FAILPOINT_STATUS: Final = 86


def is_full(error: OSError) -> bool:
    """Whether `error` says that the disk has no room: it may have some later."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Files:
    """The real thing. All methods raise OSError."""

    def __init__(self, failpoint: str | None = None) -> None:
        """`failpoint`: as PENSTOCK_FAILPOINT, which is used when it is None."""
        if failpoint is None:
            failpoint = os.environ.get("PENSTOCK_FAILPOINT", "")
        name, _, count = failpoint.partition(":")
        self._failpoint = name
        self._failpoint_count = int(count or 1)

    def reached(self, step: str) -> None:
        """A step that a crash test may choose to die at."""
        if step == self._failpoint:
            self._failpoint_count -= 1
            if self._failpoint_count == 0:
                os._exit(FAILPOINT_STATUS)

    write_batches = staticmethod(write_batches)
    """Write batches without their first `skip` bytes; see `_io.write_batches`."""

    def fdatasync(self, fd: int) -> None:
        """Make the file's data durable."""
        os.fdatasync(fd)

    def allocate(self, fd: int, size: int) -> None:
        """Reserve the blocks of the first `size` bytes."""
        os.posix_fallocate(fd, 0, size)

    def create(self, path: Path) -> int:
        """Open a new or emptied file for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def write_all(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""
        view = memoryview(data)
        while view:
            done = os.pwrite(fd, view, offset)
            view = view[done:]
            offset += done

    def fsync(self, fd: int) -> None:
        """Make a file or folder durable, its size and names included."""
        os.fsync(fd)

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(fd, size)

    def cut(self, path: Path, size: int, *, sync: bool = True) -> None:
        """Have `path` be its first `size` bytes, durably with `sync`; a backup that shares it keeps all."""
        found = path.stat()
        if found.st_size > size and found.st_nlink > 1:
            with path.open("rb") as shared:
                self.replace(path, shared.read(size))
            return
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if found.st_size != size:
                self.truncate(fd, size)
            if sync:
                self.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, path: Path, content: bytes) -> None:
        """Give the name `path` to a new file with `content`, durably; whoever shares the old one keeps it."""
        path = path.resolve()  # it may be a link to another folder (`places`)
        new = path.with_name(path.name + ".new")
        try:
            fd = self.create(new)
            try:
                self.write_all(fd, content, 0)
                self.fsync(fd)
            finally:
                os.close(fd)
        except OSError:
            self.unlink(new)
            raise
        self.rename(new, path)
        self.sync_folder(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, replacing what had it."""
        os.replace(source, target)

    @staticmethod
    def rename_unsynced(source: Path, target: Path) -> bool:
        """`rename` of a file that was not synced; whether `source` is the replaced one now, to be removed.

        ext4 would write a file to the disk before it replaces another one, which takes a millisecond, and
        more while the disk is busy. It does not when two files exchange their names.
        """
        if exchange(os.fsencode(source), os.fsencode(target)):
            return True
        os.replace(source, target)
        return False

    def unlink(self, path: Path) -> None:
        """Remove a file; it may be gone already. Of a link, what it is to goes, too (`places`)."""
        target = Path(os.readlink(path)) if path.is_symlink() else None
        path.unlink(missing_ok=True)
        if target is not None:
            self.reached("place.unlinked")
            target.unlink(missing_ok=True)

    def free_bytes(self, folder: Path) -> int:
        """Bytes that this user may still write in the file system of `folder`."""
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize
