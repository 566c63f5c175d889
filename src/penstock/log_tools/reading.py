"""Reading a data folder without opening it: its segments, their batches, its tables as of a position.

Takes no lock and writes nothing, so the folder may be that of a running penstock: files that vanish meanwhile
were not needed any more, and the unfinished end of the newest segment is not damage. A damaged batch is
handed on as Damage in its place, and reading goes on behind it: what is sound is always read.

Batches come through `os.pread`, not through a mapping: a running penstock cuts its files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from penstock.errors import StartError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._appender import Appender
from penstock.log_core.batch._batch import ALIGN, BLOCK, MORE, STATE, TOMBSTONE, Batch
from penstock.log_core.batch._blocks import contents
from penstock.log_core.batch._scan import Scanner
from penstock.log_core.errors import Damage
from penstock.log_core.files.layout import SALVAGED, SEALED, WAL, WAL_HEAD_BYTES, Folder, Head
from penstock.log_core.files.manifest import Manifest
from penstock.log_core.files.segment_folders import check_links
from penstock.log_core.recovery.checkpoint import read_checkpoint
from penstock.log_core.state.tables import Tables

__all__ = [
    "EVERYTHING",
    "Found",
    "SegmentFile",
    "Span",
    "batches",
    "missing",
    "open_folder",
    "read_manifest",
    "read_tables",
    "segments",
]

LAST: Final = 2**64 - 1
_WINDOW: Final = 1024 * 1024
_HEADER: Final = struct.Struct("<IIIIBBBBHHIIQQQqqQIIII")
assert _HEADER.size == 96


@dataclass(frozen=True, slots=True)
class Span:
    """Which records are wanted: positions [first, last], times [since_ms, until_ms)."""

    first: int = 0
    last: int = LAST
    since_ms: int = 0
    until_ms: int = 2**63 - 1

    def touches(self, base_lsn: int, count: int, base_ts: int, max_ts: int) -> bool:
        """Whether a batch may hold one that is wanted."""
        by_position = base_lsn <= self.last and base_lsn + count > self.first
        return by_position and base_ts < self.until_ms and max_ts >= self.since_ms


EVERYTHING: Final = Span()


class SegmentFile(NamedTuple):
    """One WAL file whose head was read."""

    number: int
    path: Path
    head: Head

    @property
    def gaps(self) -> bool:
        """Salvaged or sealed: LSNs are missing in it."""
        return bool(self.head.flags & (SALVAGED | SEALED))

    @property
    def sealed(self) -> bool:
        """It was rewritten, and holds only what was still needed."""
        return bool(self.head.flags & SEALED)


class Found(NamedTuple):
    """A batch and where it stands in its file."""

    batch: Batch
    offset: int
    size: int
    """Bytes of the file that it takes."""


def open_folder(path: Path) -> Folder:
    """The data folder at `path`. Raises StartError: there is no log in it, or it is of another version."""
    folder = Folder(path)
    if not folder.wal.is_dir():
        raise StartError(f"no log in {path}", remedy="name penstock's data folder with --data DIR")
    check_links(folder)
    read_manifest(folder)
    return folder


def read_manifest(folder: Folder) -> Manifest | Damage | None:
    """MANIFEST; Damage when it cannot be read, None when it is missing. Raises StartError (version)."""
    try:
        return Manifest.read(folder.manifest)
    except FileNotFoundError:
        return None
    except Damage as damage:
        return damage


def segments(folder: Folder) -> Iterator[SegmentFile | Damage]:
    """The segments that are there, oldest first; Damage for one that is missing between two others, or whose
    head cannot be read.

    A file that is only prepared (all zeros) is left out. Raises StartError (version).
    """
    before = 0
    for number in folder.segment_numbers():
        path = folder.segment(number)
        yield from missing(folder, before, number)
        before = number
        try:
            with path.open("rb") as file:
                raw = file.read(WAL_HEAD_BYTES)
        except FileNotFoundError:
            continue  # deleted in the meantime
        if not any(raw):
            continue
        try:
            yield SegmentFile(number, path, Head.decode(raw, path, WAL))
        except Damage as damage:
            yield damage


def missing(folder: Folder, before: int, number: int) -> Iterator[Damage]:
    """The segments that should lie between two (0: there is none before)."""
    for gone in range(before + 1, number) if before else ():
        path = folder.segment(gone)
        # While the folder was listed the oldest may have been deleted, and new ones made.
        if folder.segment(before).exists() and not path.exists():
            yield Damage(path, 0, "the segment is missing")


def batches(segment: SegmentFile, span: Span = EVERYTHING) -> Iterator[Found | Damage]:
    """The valid batches of a segment that may hold what is wanted, checksums checked; Damage between them.

    An atomic unit comes whole or not at all. Batches in a block have its offset. Bytes after the last
    valid batch are Damage only when they are not zero.
    """
    try:
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    with closing(_Walk(fd, segment)) as walk:
        for found in _walked(walk, segment, span):
            if isinstance(found, Damage) or _wanted(found.batch, span):
                yield found


def _walked(walk: _Walk, segment: SegmentFile, span: Span) -> Iterator[Found | Damage]:
    unit: list[Found] = []
    while (found := walk.next(span)) is not None:
        if isinstance(found, Damage):
            unit.clear()
            yield found
            continue
        unit.append(found)
        if not found.batch.attrs & MORE:
            for part in unit:
                yield from _inside(part, segment) if part.batch.kind == BLOCK else (part,)
            unit.clear()


def _inside(found: Found, segment: SegmentFile) -> Iterator[Found | Damage]:
    try:
        for batch in contents(bytes(found.batch)):
            yield Found(batch, found.offset, found.size)
    except ValueError as error:
        yield Damage(segment.path, found.offset, str(error))


def _wanted(batch: Batch, span: Span) -> bool:
    return span.touches(batch.base_lsn, batch.count, batch.base_ts, batch.max_ts)


class _Walk:
    """Over the batches of one file; owns the descriptor."""

    def __init__(self, fd: int, segment: SegmentFile) -> None:
        self._fd = fd
        self._segment = segment
        self._size = os.fstat(fd).st_size
        self._offset = WAL_HEAD_BYTES
        self._window = b""
        self._window_at = 0
        self._scanner: Scanner | None = None
        self._lsn = 1
        self._in_unit = False
        self._again = False

    def close(self) -> None:
        os.close(self._fd)

    def next(self, span: Span) -> Found | Damage | None:
        """The next batch that is wanted or belongs to a unit; None at the end."""
        while (found := self._next(span)) is None and self._again:
            self._again = False
        return found

    def _next(self, span: Span) -> Found | Damage | None:
        while True:
            at = self._offset
            head = self._bytes(at, _HEADER.size)
            size = int.from_bytes(head[:4], "little")
            if size == 0 or len(head) < _HEADER.size:
                return self._behind(at, "zeros where a batch was written")
            fields = _HEADER.unpack(head)
            lsn, base_ts, max_ts, count = fields[12], fields[15], fields[16], fields[19]
            behind = lsn + count
            if fields[5] == BLOCK:
                count = fields[13] - lsn  # its base_pos is the LSN behind it
                behind = lsn + 1  # that of a block of version 0.1.0 may count a batch of the next block
            plausible = size % ALIGN == 0 and size >= _HEADER.size and at + size <= self._size
            alone = not self._in_unit and not fields[8] & MORE
            if (
                plausible
                and alone
                and not span.touches(lsn, count, base_ts, max_ts)
                and self._follows(fields)
            ):
                self._offset = at + size
                self._lsn = behind
                continue
            raw = self._bytes(at, size) if plausible else b""
            try:
                batch = Batch.parse(raw)
            except ValueError as error:
                return self._behind(at, str(error) or "no batch")
            if not self._follows(fields):
                return self._behind(at, "a batch that does not follow the one before it")
            self._offset = at + size
            self._lsn = behind
            self._in_unit = bool(batch.attrs & MORE)
            return Found(batch, at, size)

    def _follows(self, fields: tuple[int, ...]) -> bool:
        return fields[4] == 1 and fields[11] == self._segment.head.epoch and fields[12] >= self._lsn

    def _bytes(self, offset: int, size: int) -> bytes:
        start = offset - self._window_at
        if start < 0 or start + size > len(self._window):
            self._window = os.pread(self._fd, max(size, _WINDOW), offset)
            self._window_at, start = offset, 0
        return self._window[start : start + size]

    def _behind(self, at: int, reason: str) -> Damage | None:
        """Go on behind what is not valid at `at`, and say what it is.

        None: it is not damaged, but not written yet, or never was: then `next` looks at it again, or ends.
        """
        scanner = self._scanner or Scanner()
        self._scanner = scanner
        scanner.read(self._fd, os.fstat(self._fd).st_size)
        hit = scanner.search(at + ALIGN, self._lsn, self._segment.head.epoch)
        # A record that was being written while it was read is whole by now, if something follows it.
        self._window = b""
        self._size = os.fstat(self._fd).st_size
        if self._is_whole(at):
            self._again = True
            return None
        self._in_unit = False
        if hit is None and (scanner.written_end(at) <= at or self._newest()):
            return None
        self._offset = hit.offset if hit is not None else self._size
        return Damage(self._segment.path, at, reason)

    def _is_whole(self, at: int) -> bool:
        """Whether there is a valid batch at `at` that follows what was read."""
        head = self._bytes(at, _HEADER.size)
        size = int.from_bytes(head[:4], "little")
        if not _HEADER.size <= size <= self._size - at or not self._follows(_HEADER.unpack(head)):
            return False
        try:
            Batch.parse(self._bytes(at, size))
        except ValueError:
            return False
        return True

    def _newest(self) -> bool:
        """No later segment has anything in it, so that the end of this one may be unfinished."""
        path = self._segment.path.with_name(f"{self._segment.number + 1:010}.wal")
        try:
            with path.open("rb") as file:
                file.seek(WAL_HEAD_BYTES)
                return not any(file.read(4))
        except FileNotFoundError:
            return True


def read_tables(folder: Folder, last: int = LAST) -> tuple[Tables, int, list[Damage]]:
    """All tables as of position `last`: from the newest checkpoint that can be read, and the log behind it.

    Returns them, the position they are of, and the damage met on the way. Raises StartError (version).
    """
    tables = Tables(Appender(lambda: 1))
    manifest = read_manifest(folder)
    damages = [manifest] if isinstance(manifest, Damage) else []
    if isinstance(manifest, Manifest):
        lsns = manifest.checkpoints
    else:
        lsns = sorted((int(path.stem, 16) for path in folder.checkpoints.glob("*.ckpt")), reverse=True)
    reached, start = 0, 0
    for lsn in lsns:
        if lsn > last:
            continue
        try:
            where = read_checkpoint(folder.checkpoint(lsn), tables.apply)
        except FileNotFoundError:
            tables.clear()
        except Damage as damage:
            damages.append(damage)
            tables.clear()
        else:
            reached, start = where.lsn, where.segment
            break
    for segment in segments(folder):
        if isinstance(segment, Damage):
            damages.append(segment)
            continue
        if segment.number < start:
            continue
        for found in batches(segment, Span(first=reached + 1, last=last)):
            if isinstance(found, Damage):
                damages.append(found)
                continue
            if found.batch.kind == STATE:
                _apply(found.batch, tables, reached, last)
            reached = max(reached, min(last, found.batch.base_lsn + found.batch.count - 1))
    return tables, reached, damages


def _apply(batch: Batch, tables: Tables, behind: int, last: int) -> None:
    for index in range(batch.count):
        record = batch.record(index)
        if behind < record.lsn <= last:
            tables.apply(record.key, None if record.flags & TOMBSTONE else record.body)
