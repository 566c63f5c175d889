"""The write-ahead log's files: the active one, the next one, and the change between them.

A tick goes into one file whole, so an atomic unit never crosses files. A tick larger than the room left
makes the file longer than `segment_bytes`. Files change between ticks. The next file is made early, off
the loop: it is created and preallocated (syncing a file that does not grow is half as expensive), its head
is written, and file and name are synced. Then MANIFEST names it, so that it is missed when it is gone:
nothing that is confirmed can be in a file that MANIFEST does not name. A named segment whose head cannot be
read is damaged, never merely unfinished. The head has no first LSN, except in the first segment of a
process: each segment continues where the one before it ends.

Knows nothing of confirms, tables or feeds. Everything here runs on the loop, except `_make`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from penstock.log_core.files.files import Files, is_full
from penstock.log_core.files.layout import WAL, WAL_HEAD_BYTES, Folder, Head
from penstock.log_core.files.manifest import Manifest
from penstock.log_core.files.segment_folders import SegmentFolders
from penstock.log_core.segments.segment import Segment
from penstock.log_core.wal._active import ActiveFile

__all__ = ["Wal"]

_LOG: Final = logging.getLogger("penstock.log")

_TICK_ROOM: Final = 1024 * 1024


class Wal(ActiveFile):
    """Owned by one Log. Batches are written by the kernel it derives from."""

    def __init__(
        self,
        files: Files,
        folder: Folder,
        segment_folders: SegmentFolders,
        *,
        manifest: Manifest,
        segment_bytes: int,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(files.write_batches)
        self._files = files
        self._folder = folder
        self._segment_folders = segment_folders
        # Of its own: the loop waits for the next file, and must not wait for a segment that is rewritten.
        self._worker = ThreadPoolExecutor(1, "penstock-next-file")
        self._manifest = manifest
        self._size = max(segment_bytes, 2 * WAL_HEAD_BYTES)
        self._now_ms = now_ms
        self._next: Future[int] | None = None

    def begin(self, number: int, lsn: int, prev_lsn: int) -> Segment:
        """Make the first segment of this process, durably, and start preparing the second. Raises OSError.

        A disk without room for a whole one gets its head alone, and all may be read and acknowledged.
        """
        try:
            fd = self._make(number, self._size, lsn, prev_lsn)
        except OSError as error:
            if not is_full(error):
                raise
            fd = self._make(number, WAL_HEAD_BYTES, lsn, prev_lsn)
        self._take(fd, number, lsn)
        self.prepare()
        return self.segment

    def prepare(self) -> None:
        """Have the next file made off the loop, unless it is."""
        if self._next is None:
            self._next = self._worker.submit(self._make, self.segment.number + 1, self._size)

    def _make(self, number: int, size: int, lsn: int = 0, prev_lsn: int = 0) -> int:
        head = Head(
            kind=WAL,
            log_id=self._manifest.log_id,
            epoch=self._manifest.epoch,
            number=number,
            base_lsn=lsn,
            prev_lsn=prev_lsn,
            created_ms=self._now_ms(),
            payload_len=size,
        )
        self._files.reached("roll.before")
        fd = self._segment_folders.create(number, size)
        try:
            self._files.write_all(fd, head.encode(WAL_HEAD_BYTES), 0)
            self._files.fsync(fd)
            self._files.reached("roll.made")
            self._files.sync_folder(self._folder.wal)
            self._files.reached("roll.synced")
            self._manifest.name_last(self._files, self._folder.manifest, number)
        except OSError:
            os.close(fd)
            raise
        self._files.reached("roll.prepared")
        return fd

    def _take(self, fd: int, number: int, lsn: int) -> None:
        self._files.reached("roll.taken")
        segment = Segment(number, self._folder.segment(number), lsn, self._manifest.epoch, lsn)
        self.take(segment, fd, self._size - min(_TICK_ROOM, self._size // 8))

    def roll(self, lsn: int) -> Segment | None:
        """Go on in the next file, whose first record will be `lsn`.

        Returns the segment that is now closed (its descriptor, the old `fd`, is the caller's to sync and
        close), or None when there is no room for a next file: the active one grows on. Waits for the
        preparation if that is still running. Raises OSError for other failures.
        """
        old = self.segment
        self.prepare()
        assert self._next is not None
        preparing, self._next = self._next, None
        try:
            fd = preparing.result()
        except OSError as error:
            if not is_full(error):
                raise
            self.roll_at = old.end + self._size // 8
            return None
        self._take(fd, old.number + 1, lsn)
        self.prepare()
        return old

    def prepared(self) -> None:
        """Wait until the next file is made; for tests. Raises OSError."""
        if self._next is not None:
            self._next.result()

    def close(self, last: tuple[int, int] | None) -> bool:
        """Give up the prepared file; False = it may still be there, which only an unclean start puts right.

        The active one is the caller's, as after `roll`. Nothing is in the prepared file, so that an error of
        it must not end a stop half-way.

        Args:
            last: Number and end of the last segment that stays; None: the log failed, and no file changes.

        """
        self._worker.shutdown(wait=True)
        preparing, self._next = self._next, None
        try:
            if preparing is not None:
                os.close(preparing.result())
        except OSError as error:
            if not is_full(error):
                _LOG.warning("the next file of the log could not be made: %s", error)
        if last is None:
            return False
        try:
            self._manifest.name_last(self._files, self._folder.manifest, *last)
            self._files.reached("stop.named")
            if preparing is not None:
                self._files.unlink(self._folder.segment(self.segment.number + 1))
        except OSError as error:
            _LOG.warning("an empty file of the log is still there: %s", error)
            return False
        return True
