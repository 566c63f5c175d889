"""Feeds of the past: the records that a pattern would have matched before anybody asked for it.

A `Search` walks over the segments that traffic retention keeps, on a thread of its own, and writes its
findings to a file. The loop only says which key blocks are wanted, a slice at a time. The result is a feed
whose entries are all in that file. Nothing is pushed to it: it is read, and then dropped.

    history/IIIIIIII.his (the feed's id, 8 hexadecimal digits): a head (number = the feed's id, base_lsn =
    rows, payload_len, payload_crc = that of the directory), then little-endian
    | entries u32[] | directory: 32 * rows |
    a row: | base LSN of the segment u64 | first entry u32 | entries u32 | first record u32 |
           | last record u32 | CRC-32C of the entries u32 | 0 u32 |       ascending
    an entry: record number in the segment (LSN - base LSN)

A durable feed has the row feed id -> entries u64 in the table `feed_history`, put with the row that makes
the feed known. A start removes files without a row.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._crc import crc32c
from penstock.log_core.errors import Damage
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import HEAD_BYTES, HISTORY, WAL_HEAD_BYTES, Folder, Head
from penstock.log_core.history._history import KeyScan
from penstock.log_core.history.key_walk import KeyWalk, Matcher
from penstock.log_core.segments.segment import Marks, Segments

__all__ = ["HISTORY_TABLE", "Part", "Search", "read_history", "read_history_entries"]

_LOG: Final = logging.getLogger("penstock.log")

HISTORY_TABLE: Final = "feed_history"
_ROW: Final = struct.Struct("<QIIIIII")


@dataclass(frozen=True, slots=True)
class Part:
    """The matches in one segment."""

    base: int
    count: int
    first_record: int
    last_record: int


class Search:
    """One search; `run` on its thread, everything else on the loop."""

    def __init__(
        self,
        files: Files,
        folder: Folder,
        head: Head,
        segments: Segments,
        span: tuple[int, int],
        matcher: Matcher,
        post: Callable[..., None],
        *,
        durable: bool,
        floor: int = 0,
        retention_feeds: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Args:
        head: Of the file, its `number` the feed's id.
        segments: Where to look: in those that are live now.
        span: LSNs [first, last).
        post: Runs something on the loop.
        durable: The file must survive a power cut.
        floor, retention feeds: The records of it that retention wants; see `KeyScan`.
        """
        self._files = files
        self._folder = folder
        self._head = head
        self._live = list(segments.live)
        self._swap = segments.swap
        self._first, self._last = span
        self._durable = durable
        self._scan = KeyScan(matcher.lp, floor, retention_feeds)
        self._walk = KeyWalk(matcher, self._scan, post)

    def stop(self) -> None:
        """The log closes: `run` ends soon, with `Stopped`."""
        self._walk.stop()

    # On its thread

    def run(self) -> list[Part]:
        """Find everything, write the file (none when nothing was found).

        Raises:
            OSError, Stopped, Undecided.

        """
        path = self._folder.history(self._head.number)
        new = path.with_name(path.name + ".new")
        try:
            fd = self._files.create(new)
            try:
                parts = self._write(fd)
            finally:
                os.close(fd)
        except BaseException:
            self._files.unlink(new)  # a full disk needs the room
            raise
        self._files.reached("history.synced")
        if not parts:
            self._files.unlink(new)
            return parts
        self._files.rename(new, path)
        if self._durable:
            self._files.sync_folder(path.parent)
        self._files.reached("history.done")
        if self._scan.damaged:
            _LOG.error("%d damaged batches were left out of a history", self._scan.damaged)
        return parts

    def _write(self, fd: int) -> list[Part]:
        parts: list[Part] = []
        directory = b""
        end = HEAD_BYTES
        for base, entries in self._found():
            count = len(entries) // 4
            first, last = (int.from_bytes(entries[at : at + 4], "little") for at in (0, 4 * count - 4))
            directory += _ROW.pack(base, (end - HEAD_BYTES) // 4, count, first, last, crc32c(entries), 0)
            self._files.write_all(fd, entries, end)
            end += len(entries)
            parts.append(Part(base, count, first, last))
        if not parts:
            return parts
        self._files.write_all(fd, directory, end)
        head = replace(
            self._head,
            base_lsn=len(parts),
            payload_len=end + len(directory) - HEAD_BYTES,
            payload_crc=crc32c(directory),
        )
        self._files.write_all(fd, head.encode(HEAD_BYTES), 0)
        self._files.reached("history.written")
        if self._durable:
            self._files.fsync(fd)
        return parts

    def _found(self) -> Iterator[tuple[int, bytes]]:
        for segment in self._live:
            base = segment.base_lsn
            if segment.next_lsn <= self._first or base >= self._last or segment.end <= WAL_HEAD_BYTES:
                continue
            try:
                with self._swap:  # a rewriting that was under way may end now
                    file, end, marks = segment.path.open("rb"), segment.end, segment.marks or Marks()
            except FileNotFoundError:
                continue  # retention let go of it in the meantime
            with file, contextlib.closing(mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ)) as data:
                offset = marks.offset_of(max(self._first, base))
                with memoryview(data) as view:
                    entries = self._walk.entries(view, offset, self._first, self._last, base)
            if entries:
                yield base, entries


def read_history(path: Path) -> list[Part]:
    """The parts of a file. Raises FileNotFoundError, OSError, Damage, StartError (version)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return [Part(row[0], row[2], row[3], row[4]) for row in _directory(fd, path)]
    finally:
        os.close(fd)


def _directory(fd: int, path: Path) -> list[tuple[int, ...]]:
    head = Head.decode(os.pread(fd, HEAD_BYTES, 0), path, HISTORY)
    if os.fstat(fd).st_size != HEAD_BYTES + head.payload_len or _ROW.size * head.base_lsn > head.payload_len:
        raise Damage(path, HEAD_BYTES, "a history of another length")
    start = HEAD_BYTES + head.payload_len - _ROW.size * head.base_lsn
    directory = os.pread(fd, _ROW.size * head.base_lsn, start)
    found = crc32c(directory)
    if found != head.payload_crc:
        raise Damage(path, start, "directory CRC", head.payload_crc, found)
    return list(_ROW.iter_unpack(directory))


def read_history_entries(path: Path, base: int) -> bytes:
    """The entries in the segment at `base`, checked; raises as `read_history`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for row in _directory(fd, path):
            if row[0] == base:
                start = HEAD_BYTES + 4 * row[1]
                entries = os.pread(fd, 4 * row[2], start)
                found = crc32c(entries)
                if len(entries) != 4 * row[2] or found != row[5]:
                    raise Damage(path, start, f"CRC of the entries at LSN {base}", row[5], found)
                return entries
        return b""
    finally:
        os.close(fd)
