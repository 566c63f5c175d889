"""Upkeep: the work on closed segments, off the loop. One thread makes index files and checkpoints, and
deletes.

A crash between any two steps leaves a folder that a start can use. Index files and checkpoints are valid
from their rename on. MANIFEST names a checkpoint, or a later first segment, before files are removed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.log_core.batch._scan import Scanner
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import WAL_HEAD_BYTES, Folder
from penstock.log_core.files.manifest import Manifest
from penstock.log_core.files.space_release import Releaser
from penstock.log_core.recovery.checkpoint import Checkpoint, Rows, write_checkpoint
from penstock.log_core.segments.feed_index import write_feed_index
from penstock.log_core.segments.segment import Segment

__all__ = ["Upkeep", "deletable", "stale_before"]

_KEPT_CHECKPOINTS = 2


class Upkeep:
    """Its methods run on `pool` (or when that has stopped), never at the same time. All raise OSError."""

    releaser: Releaser
    """Has what was removed until its space is free."""

    def __init__(self, files: Files, folder: Folder, manifest: Manifest) -> None:
        self._files = files
        self._folder = folder
        self._manifest = manifest
        self.pool = ThreadPoolExecutor(1, "penstock-upkeep")
        self.releaser = Releaser(files)

    def stop(self) -> None:
        """Wait for what is under way."""
        self.pool.shutdown(wait=True)
        self.releaser.stop()

    def finish(self, segment: Segment, needed: bool) -> int:
        """Make the index files of a closed segment and cut it to its size; the bytes of feed entries.

        The index is there before the cut: a shorter file that no index explains was not cut by the log.
        A segment that no queue needs any more leaves the page cache, so that the log of a system whose
        consumers keep up does not push out everything else (and new pages cost more than reused ones).
        """
        self._files.reached("finish.before")
        fd = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._files.fsync(fd)
            segment.write_time_index(self._files, self._folder, self._manifest.log_id)
            written = write_feed_index(self._files, self._folder, segment, self._manifest.log_id)
            self._files.reached("finish.indexed")
            self._files.truncate(fd, segment.end)
            if not needed:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
        self._files.reached("finish.cut")
        return written

    def measure(self, segment: Segment) -> dict[int, int]:
        """Whose bytes are in a closed segment, of which its index does not say it."""
        scanner = Scanner()
        with segment.path.open("rb") as file:
            scanner.read(file.fileno(), segment.end)
        return scanner.held_bytes(WAL_HEAD_BYTES, segment.end)

    def checkpoint(self, where: Checkpoint, rows: Rows) -> list[int]:
        """Write a checkpoint and let go of the one before the last; the LSNs of those kept, newest first."""
        manifest = self._manifest
        if where.lsn not in manifest.checkpoints:
            write_checkpoint(
                self._files, self._folder, where, rows, log_id=manifest.log_id, epoch=manifest.epoch
            )
            kept = [where.lsn, *manifest.checkpoints][:_KEPT_CHECKPOINTS]
            manifest.name_checkpoints(self._files, self._folder.manifest, kept)
            self._files.reached("checkpoint.listed")
            for path in self._folder.checkpoints.iterdir():
                if path not in [self._folder.checkpoint(lsn) for lsn in kept]:
                    self._files.unlink(path)
        return manifest.checkpoints

    def delete(self, segments: Sequence[Segment]) -> None:
        """Remove the oldest segments and their index files."""
        self._files.reached("delete.before")
        self._manifest.name_first(self._files, self._folder.manifest, segments[-1].number + 1)
        for segment in segments:
            for path in reversed(self._folder.files_of(segment.number)):
                self._files.reached("delete.unlink")
                with self.releaser.piecemeal(path):
                    self._files.unlink(path)
        self._files.reached("delete.done")


def deletable(live: Sequence[Segment], low_water: int, checkpoint_lsn: int, retained_lsn: int) -> int:
    """How many of the oldest segments may go.

    A segment may go when it is closed and indexed, a checkpoint lies behind it, no queue needs anything in it
    (all of it is below `low_water`), and retention wants nothing of it (all of it is below `retained_lsn`).
    """
    end = min(low_water, checkpoint_lsn + 1, retained_lsn)
    gone = 0
    for segment in live[:-1]:
        if not segment.indexed or segment.next_lsn > end:
            break
        gone += 1
    return gone


def stale_before(
    live: Sequence[Segment], feed: Feed, now_ms: int, keep_s: float | None, keep_bytes: int | None
) -> int:
    """Base LSN of the oldest segment whose part of `feed` stays; the feed keeps everything.

    A part stays when it is that of the active segment, or the youngest record of its segment is not older
    than `keep_s` seconds and it has, with all later parts, at most `keep_bytes` bytes. None: no such limit.
    """
    kept = live[-1].base_lsn
    total = 0
    for segment in reversed(live[:-1]):
        total += segment.kept_bytes.get(feed.id, 0)
        if keep_s is not None and now_ms - segment.max_ts > keep_s * 1000:
            break
        if keep_bytes is not None and total > keep_bytes:
            break
        kept = segment.base_lsn
    return kept
