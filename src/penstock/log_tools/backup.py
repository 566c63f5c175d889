"""`penstock log backup`: a consistent copy of a data folder while the gateway runs, mostly without copying.

Closed segments, checkpoints and indexes never change again, so the copy shares them by hard links. An open
file is copied up to its last whole batch, the newest file first. Once a file has batches, the one before it
is complete, so the copy is a beginning of the log without holes. A kill -9 at that moment would have left the
same files, and a start on the copy does the same as a start after that kill.

    1  read MANIFEST; link the checkpoints it names
    2  link each segment that is complete (its sparse index says where it ends), with its indexes
    3  copy the others, newest first
    4  link the feeds of the past, as before 2: rows that were put meanwhile have theirs
    5  read MANIFEST again: when the newest checkpoint of 1 is gone, state may be that only newer ones have;
       when a segment was gone before it was linked, it was deleted. Begin again.

The copy gets its name when everything in it is durable. Until then it is called TARGET.part.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from penstock.errors import StartError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.errors import Damage
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import TIME_INDEX, Folder, read_sealed
from penstock.log_core.files.manifest import Manifest
from penstock.log_tools.reading import SegmentFile, batches, read_manifest, segments

__all__ = ["NOTE", "Backup", "backup"]

_ATTEMPTS: Final = 10
_NEXT_AND_END: Final = struct.Struct("<QQ")
_CHUNK: Final = 1024 * 1024
NOTE: Final = "BACKUP.json"
"""Says in a copy what it is one of."""

Progress = Callable[[int], object]


@dataclass(slots=True)
class Backup:
    """The contents of a copy."""

    source: str
    target: str
    log_id: str
    made: str
    last_position: int
    """The last record in it."""
    linked_files: int = 0
    linked_bytes: int = 0
    copied_files: int = 0
    copied_bytes: int = 0


class _Again(Exception):
    """The log went on in a way that this attempt cannot follow."""


def backup(
    folder: Folder, target: Path, *, copy: bool = False, progress: Progress = lambda copied: None
) -> Backup:
    """Make the copy.

    Args:
        folder: The log, of a running penstock or a stopped one.
        target: The copy; it must not exist.
        copy: Copy everything, for another file system.
        progress: Called with the bytes that were copied since the last call.

    Raises:
        StartError: the target exists, is on another file system (without `copy`) or has no room; the log has
            no MANIFEST that can be read, or changes faster than it can be followed.

    """
    if target.exists():
        raise StartError(f"{target} exists", remedy="name a new folder for each backup")
    part = target.with_name(target.name + ".part")
    files = Files()
    try:
        for _ in range(_ATTEMPTS):
            shutil.rmtree(part, ignore_errors=True)
            try:
                done = _Run(folder, Folder(part), files, copy, progress).run(target)
            except _Again:
                continue
            files.rename(part, target)
            files.sync_folder(target.absolute().parent)
            return done
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        if error.errno == errno.EXDEV:
            raise StartError(
                f"{target} is on another file system than {folder.root}, so hard links are impossible",
                remedy="choose a folder beside the data folder, or copy everything with --copy",
            ) from error
        raise StartError.data_unusable(str(target), error) from error
    shutil.rmtree(part, ignore_errors=True)
    raise StartError(
        f"{folder.root} changed faster than it could be copied, {_ATTEMPTS} times",
        remedy="run the backup again; if this happens often, raise log.checkpoint_bytes",
    )


class _Run:
    """One attempt."""

    def __init__(self, source: Folder, target: Folder, files: Files, copy: bool, progress: Progress) -> None:
        self._source = source
        self._target = target
        self._files = files
        self._copy_all = copy
        self._progress = progress
        self._done = Backup(str(source.root.absolute()), "", "", "", 0)

    def run(self, name: Path) -> Backup:
        manifest = read_manifest(self._source)
        if not isinstance(manifest, Manifest):
            raise StartError(
                str(manifest or f"{self._source.manifest} is missing"),
                remedy="run `penstock log verify`; a damaged log is not backed up",
            )
        self._target.make()
        for lsn in manifest.checkpoints:
            self._take(self._source.checkpoint(lsn))
        self._take_histories()
        live = [one for one in self._segments() if one.number >= manifest.first_segment]
        if [one.number for one in live] != list(
            range(manifest.first_segment, manifest.first_segment + len(live))
        ):
            raise _Again
        growing = [one for one in live if not self._take_complete(one)]
        for one in reversed(growing):
            self._copy_beginning(one)
        self._take_histories()
        self._check_unchanged(manifest)
        if not self._done.last_position and manifest.checkpoints:
            self._done.last_position = manifest.checkpoints[0]
        return self._finish(manifest, name)

    def _segments(self) -> list[SegmentFile]:
        found = []
        for one in segments(self._source):
            if isinstance(one, Damage):
                raise StartError(str(one), remedy="repair the log first: `penstock log repair`")
            found.append(one)
        return found

    # Files

    def _take(self, path: Path, *, needed: bool = True) -> None:
        """Have a file that never changes in the copy, too."""
        target = self._target.root / path.relative_to(self._source.root)
        try:
            if self._copy_all:
                self._copy(path, target, path.stat().st_size)
                return
            try:
                os.link(path.resolve(), target)
            except OSError as error:
                if error.errno != errno.EXDEV or not path.is_symlink():
                    raise
                # A segment in a folder of another disk.
                self._copy(path, target, path.stat().st_size)
                return
        except FileNotFoundError:
            if needed:
                raise _Again from None
            return
        except FileExistsError:
            return
        self._done.linked_files += 1
        self._done.linked_bytes += target.stat().st_size

    def _take_histories(self) -> None:
        for path in self._source.histories.glob("*.his"):
            self._take(path, needed=False)

    def _take_complete(self, segment: SegmentFile) -> bool:
        """Link a closed segment and its indexes; False: it is still written to, or not indexed yet."""
        number = segment.number
        ends = _end_of(self._source, number)
        try:
            if ends is None or segment.path.stat().st_size != ends[1]:
                return False
        except FileNotFoundError:
            raise _Again from None
        for path in self._source.files_of(number):
            self._take(path, needed=path == segment.path)
        # It may have been rewritten in between: then index and segment do not fit.
        if _end_of(self._target, number) != (ends[0], self._target.segment(number).stat().st_size):
            raise _Again
        self._done.last_position = max(self._done.last_position, ends[0] - 1)
        return True

    def _copy_beginning(self, segment: SegmentFile) -> None:
        """Copy a segment up to its last whole batch; nothing when there is none."""
        end = 0
        for found in batches(segment):
            if not isinstance(found, Damage):
                end = found.offset + found.size
                last = found.batch.base_lsn + found.batch.count - 1
                self._done.last_position = max(self._done.last_position, last)
        if end:
            try:
                self._copy(segment.path, self._target.segment(segment.number), end)
            except FileNotFoundError:
                raise _Again from None

    def _copy(self, path: Path, target: Path, size: int) -> None:
        with path.open("rb") as source:
            fd = self._files.create(target)
            try:
                left = size
                while left:
                    chunk = source.read(min(_CHUNK, left))
                    if not chunk:
                        raise _Again
                    self._files.write_all(fd, chunk, size - left)
                    left -= len(chunk)
                    self._progress(len(chunk))
                self._files.fsync(fd)
            finally:
                os.close(fd)
        self._done.copied_files += 1
        self._done.copied_bytes += size

    # The end

    def _check_unchanged(self, manifest: Manifest) -> None:
        now = read_manifest(self._source)
        newest = manifest.checkpoints[:1]
        if not isinstance(now, Manifest) or not set(newest) <= set(now.checkpoints):
            raise _Again

    def _finish(self, manifest: Manifest, name: Path) -> Backup:
        numbers = self._target.segment_numbers()
        manifest.last_segment = numbers[-1] if numbers else 0
        manifest.last_end = self._target.segment(numbers[-1]).stat().st_size if numbers else 0
        manifest.write(self._files, self._target.manifest)
        done = self._done
        done.target = str(name.absolute())
        done.log_id = manifest.log_id.hex()
        done.made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        note = self._target.root / NOTE
        note.touch(mode=0o600)
        note.write_text(json.dumps(asdict(done), indent=2) + "\n")
        fd = os.open(note, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._files.fsync(fd)
        finally:
            os.close(fd)
        for folder in (self._target.root, *(path for path in self._target.root.rglob("*") if path.is_dir())):
            self._files.sync_folder(folder)
        return done


def _end_of(folder: Folder, number: int) -> tuple[int, int] | None:
    """The LSN behind a segment and the size of its file, as its sparse index says; None: there is none."""
    try:
        _, payload = read_sealed(folder.time_index(number), TIME_INDEX)
        folder.feed_index(number).stat()
    except (FileNotFoundError, Damage):
        return None
    next_lsn, end = _NEXT_AND_END.unpack_from(payload)
    return next_lsn, end
