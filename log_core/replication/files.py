"""`ReplicatedFiles`: the log's operations on its folder, each of them also an entry of the journal.

The local disk is not synced: a change counts when the journal has kept its entry. Entries are appended after
the change, in the order of the changes; but to free space may take the disk long, so its entry goes first.
Files that are made under a name of their own (`NAME.new`) become one entry when they get their final name.
LOCK, CLEAN, POSITION, OWNER and `quarantine/` belong to one node alone.
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.log_core.files.files import Files
from penstock.log_core.replication.entries import PAYLOAD_MAX, Kind
from penstock.log_core.replication.journal import JournalFailed
from penstock.log_core.replication.owner import Owner

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Batch

__all__ = ["ReplicatedFiles", "file_sizes"]

_UNANSWERED_MAX: Final = 8 * 1024 * 1024
"""Bytes of a whole file that are on their way at once: confirms wait behind them."""


def _travels(name: str) -> bool:
    # The log's own files are in a folder below. Of a file without a name the kernel says "(deleted)".
    return "/" in name and not name.endswith((".new", ".part", " (deleted)")) and "/quarantine/" not in name


def file_sizes(root: Path) -> dict[str, int]:
    """The files of a data folder that travel, in order of their names, and their sizes in bytes."""
    found = {}
    folders = [path.name for path in root.glob("shard-*")]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif _travels(name):
                    with suppress(FileNotFoundError):
                        found[name] = entry.stat().st_size
    return dict(sorted(found.items()))


class ReplicatedFiles(Files):
    """Of the folder of one owner. All methods raise OSError, also when the journal has failed."""

    def __init__(self, root: Path, owner: Owner, failpoint: str | None = None) -> None:
        super().__init__(failpoint)
        self._root = f"{os.path.realpath(root)}/"
        self._owner = owner
        self._order = threading.RLock()
        """Held over a change and its entry."""
        self._generations: dict[str, int] = {}
        """Counts the changes of names: of a file that was replaced, no further part is sent."""

    def _name(self, path: str | Path) -> str | None:
        """The name of a file in entries; None: it does not travel."""
        path = os.fspath(path)
        if not path.startswith(self._root):
            path = os.path.realpath(path)
        if not path.startswith(self._root):
            return None
        name = path[len(self._root) :]
        return name if _travels(name) else None

    def _name_of(self, fd: int) -> str | None:
        return self._name(os.readlink(f"/proc/self/fd/{fd}"))

    def _append(self, kind: Kind, name: str, **fields: object) -> None:
        try:
            self._owner.append(kind, name, **fields)  # type: ignore[arg-type]
        except JournalFailed as error:
            raise OSError(errno.EIO, error.message) from error

    def _written(self, fd: int, offset: int, size: int) -> None:
        name = self._name_of(fd)
        if name is None:
            return
        for at in range(offset, offset + size, PAYLOAD_MAX):
            part = os.pread(fd, min(PAYLOAD_MAX, offset + size - at), at)
            self._append(Kind.WRITE, name, payload=part, offset=at)

    # Operations

    def write_batches(self, fd: int, batches: list[Batch], offset: int, skip: int = 0) -> int:
        """Write batches without their first `skip` bytes; see `_io.write_batches`."""
        done = Files.write_batches(fd, batches, offset, skip)
        self._written(fd, offset, done)
        return done

    def write_all(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""
        super().write_all(fd, data, offset)
        self._written(fd, offset, len(data))

    def create(self, path: Path) -> int:
        """Open a new or emptied file for reading and writing."""
        name = self._name(path)
        if name is None:
            return super().create(path)
        with self._order:
            fd = super().create(path)
            try:
                self._begin(name)
                self._append(Kind.SIZE, name, begins=True, completes=True)
            except OSError:
                os.close(fd)
                raise
            return fd

    def allocate(self, fd: int, size: int) -> None:
        """Reserve the blocks of the first `size` bytes."""
        super().allocate(fd, size)
        name = self._name_of(fd)
        if name is not None:
            self._append(Kind.SIZE, name, total=os.fstat(fd).st_size)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        name = self._name_of(fd)
        if name is not None:
            self._append(Kind.SIZE, name, total=size)
        super().truncate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, replacing what had it."""
        old, name = self._name(source), self._name(target)
        with self._order:
            is_replaced = self.rename_unsynced(source, target)
            if old is not None:
                self._drop(old)
            if name is not None:
                generation = self._begin(name)
                fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
                has_more = self._send_part(name, generation, fd, 0)
            if is_replaced:
                os.unlink(source)
        if name is None:
            return
        try:
            if has_more:
                self._send_rest(name, generation, fd)
        finally:
            os.close(fd)

    def unlink(self, path: Path) -> None:
        """Remove a file; it may be gone already."""
        name = self._name(path)
        if name is None:
            super().unlink(path)
            return
        with self._order:
            super().unlink(path)
            self._drop(name)

    def fdatasync(self, fd: int) -> None:
        """Nothing: the journal keeps the data."""

    def fsync(self, fd: int) -> None:
        """Nothing: the journal keeps the file."""

    def sync_folder(self, folder: Path) -> None:
        """Nothing: the journal keeps the names."""

    # Whole files

    def send(self, name: str) -> None:
        """Send a file again, so that the journal need not keep its older copy.

        A file that is replaced or removed meanwhile is sent no further.
        """
        with self._order:
            try:
                fd = os.open(self._root + name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return
            generation = self._generations.get(name, 0)
        try:
            self._send_rest(name, generation, fd, from_start=True)
        finally:
            os.close(fd)

    def _begin(self, name: str) -> int:
        self._generations[name] = generation = self._generations.get(name, 0) + 1
        return generation

    def _drop(self, name: str) -> None:
        self._begin(name)
        self._append(Kind.DROP, name)

    def _send_rest(self, name: str, generation: int, fd: int, *, from_start: bool = False) -> None:
        size = os.fstat(fd).st_size
        at = 0 if from_start else PAYLOAD_MAX
        while at < size or (from_start and at == 0):
            try:
                self._owner.wait_below(_UNANSWERED_MAX)
            except JournalFailed as error:
                raise OSError(errno.EIO, error.message) from error
            with self._order:
                if self._generations.get(name, 0) != generation:
                    return
                self._send_part(name, generation, fd, at)
            at += PAYLOAD_MAX

    def _send_part(self, name: str, generation: int, fd: int, at: int) -> bool:
        """Send the part from byte `at` on; whether there are more."""
        size = os.fstat(fd).st_size
        part = os.pread(fd, PAYLOAD_MAX, at)
        more = at + len(part) < size
        self._append(Kind.FILE, name, payload=part, offset=at, total=size, begins=at == 0, completes=not more)
        return more
