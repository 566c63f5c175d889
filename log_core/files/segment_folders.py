"""The folders of segments: the data folder, or further ones on other disks (`log.folders`).

A segment in another folder has its name in the data folder, too, as a symbolic link. So a reader of the
log need not know about folders: the link says where the segment is.

    shard-000/wal/NNNNNNNNNN.wal -> FOLDER/NNNNNNNNNN.wal
    FOLDER/OWNER                    the data folder whose segments these are, and a line feed

A new segment goes to the folder with the most free space, if that is more than `log.min_free_bytes`. If
there is no room for it, the next folder is tried. A rewritten segment stays in its folder. Indexes,
checkpoints and everything else are in the data folder.

The file is made before its link and removed after it. A start links a file without a link, and recovery
finds out what it is: prepared, left over from a deletion, or part of the log. You may move a file to
another folder while the gateway is stopped: the start finds it. A link whose file is nowhere refuses the
start.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.errors import StartError
from penstock.log_core.files.files import Files, is_full
from penstock.log_core.files.layout import Folder

__all__ = ["SegmentFolders", "check_links"]

_LOG: Final = logging.getLogger("penstock.log")

_OWNER: Final = "OWNER"
_OWN_SHARE: Final = 4
"""The data folder itself may run down to this part of the least free space, for what are no segments."""


class SegmentFolders:
    """Owned by one Log. `claim` at the start; then any thread."""

    def __init__(self, files: Files, folder: Folder, further: Sequence[str], min_free_bytes: int) -> None:
        """`further`: the folders besides the data folder's own."""
        self._files = files
        self._folder = folder
        self._further = [Path(os.path.abspath(path)) for path in further]
        self._min_free = min_free_bytes

    @property
    def _me(self) -> str:
        return f"{os.path.realpath(self._folder.root)}\n"

    # The start

    def claim(self) -> None:
        """Check the folders, and have a link to every segment in them. Raises StartError, OSError."""
        for path in self._further:
            self._check(path)
        for path in self._further:
            for new in path.glob("*.new"):
                self._files.unlink(new)  # never got its name
            for segment in sorted(path.glob("*.wal")):
                self._link(segment)
        if self._further:
            self._files.sync_folder(self._folder.wal)
        check_links(self._folder, self._further)
        for path in self._further:
            if not (path / _OWNER).exists():
                self._files.replace(path / _OWNER, self._me.encode())

    def _check(self, path: Path) -> None:
        if not path.is_dir() or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise StartError(
                f"log.folders: {path} is not a folder that this user may write to",
                remedy="mount its disk, or make the folder; it may contain segments of the log",
            )
        if self._further.count(path) > 1 or path.samefile(self._folder.wal):
            raise StartError(f"log.folders: {path} is there twice", remedy="name each folder once")
        mark = path / _OWNER
        owner = mark.read_text() if mark.exists() else self._me
        if owner != self._me:
            raise StartError(
                f"log.folders: the segments in {path} belong to the data folder {owner.strip()}",
                remedy=f"give each gateway folders of its own; if the data folder was moved, remove {mark}",
            )

    def _link(self, segment: Path) -> None:
        link = self._folder.wal / segment.name
        if link.is_symlink() and Path(os.readlink(link)) == segment:
            return
        if link.exists():
            raise StartError(
                f"log.folders: {segment} and {link.resolve()} are the same segment",
                remedy="move the one away that is a copy",
            )
        link.unlink(missing_ok=True)
        link.symlink_to(segment)

    # Space

    def _free(self, path: Path) -> int:
        try:
            return self._files.free_bytes(path)
        except OSError as error:
            _LOG.error("the free space of %s is unknown: %s", path, error)
            return 0

    def free_bytes(self) -> int:
        """Free bytes of the folder with the most; of the data folder when it has little left."""
        own = self._files.free_bytes(self._folder.root)
        if own < self._min_free // _OWN_SHARE:
            return own
        return max([own, *map(self._free, self._further)])

    def create(self, number: int, size: int) -> int:
        """Make the file of a segment, preallocated to `size`, where there is room; its descriptor.

        Its content, and its name in the data folder, are the caller's to sync. Raises OSError: it can be
        made nowhere.
        """
        if not self._further:
            return self._make(self._folder.segment(number), size)
        free = {path: self._free(path) for path in (self._folder.wal, *self._further)}
        ordered = sorted(
            free, key=lambda path: (free[path] - size >= self._min_free, free[path]), reverse=True
        )
        first: OSError | None = None
        for place in ordered:
            path = place / self._folder.segment(number).name
            try:
                fd = self._make(path, size)
            except OSError as error:
                (_LOG.warning if is_full(error) else _LOG.error)("no segment in %s: %s", place, error)
                first = first or error
                continue
            if place != self._folder.wal:
                self._files.sync_folder(place)
                self._files.reached("place.made")
                self._folder.segment(number).symlink_to(path)
                self._files.reached("place.linked")
            return fd
        assert first is not None
        raise first

    def _make(self, path: Path, size: int) -> int:
        fd = self._files.create(path)
        try:
            self._files.allocate(fd, size)
        except OSError:
            os.close(fd)
            self._files.unlink(path)
            raise
        return fd


def check_links(folder: Folder, places: Sequence[Path] | None = None) -> None:
    """Check that all segments of a data folder are there, and lie in `places` (None: anywhere).

    Raises StartError.
    """
    for link in sorted(folder.wal.iterdir()):
        if not link.is_symlink():
            continue
        target = Path(os.readlink(link))
        if not target.exists():
            raise StartError(
                f"{target}, a segment of the log in {folder.root}, is not there",
                remedy=f"mount the disk of {target.parent}, or add its present folder to log.folders",
            )
        if places is not None and target.parent not in places:
            raise StartError(
                f"log.folders: {target} is a segment of the log, but its folder is not listed",
                remedy=f"name {target.parent}, or move its segments to another of the folders",
            )
