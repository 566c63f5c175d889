"""Salvage: repairs damaged segments. Readable data is kept, the rest is cut out and listed.

A copy of the damaged file goes to quarantine before anything changes; without room for it nothing is done.
The repaired segment is a new file with the flag SALVAGED under the old name. LSNs are missing in it, and
none changes. If the LSN that follows the segment is known, its last batch is a note with it. Otherwise a
later scan could not tell a lost end from one that is still to come.

Used by a start that was asked to salvage, and by `penstock log repair`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._appender import Appender
from penstock.log_core.batch._batch import ALIGN
from penstock.log_core.batch._scan import Hit, Scanned, Scanner
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import SALVAGED, SEALED, WAL, WAL_HEAD_BYTES, Folder, Head

__all__ = ["Hole", "hits_behind", "mend", "mend_head", "note_of", "quarantine", "stand_in"]


@dataclass(frozen=True, slots=True)
class Hole:
    """Records that a salvage could not keep."""

    path: Path
    offset: int
    length: int
    first_lsn: int
    next_lsn: int
    """LSNs in [first_lsn, next_lsn) are lost; equal when unknown."""

    def __str__(self) -> str:
        what = "an unknown number of records"
        if self.next_lsn > self.first_lsn:
            what = f"LSN {self.first_lsn} to {self.next_lsn - 1}"
        return f"{self.path}: {self.length} bytes at byte {self.offset} are lost, {what}"


def quarantine(files: Files, folder: Folder, path: Path) -> Path:
    """Keep a durable copy of a damaged file, once for each state it was in; where. Raises OSError."""
    import filecmp  # only a damaged log needs it
    import shutil  # here: it loads five compressors, and few starts need it

    for number in itertools.count():
        copy = folder.quarantine / (f"{path.name}.{number}" if number else path.name)
        if not copy.exists():
            break
        if filecmp.cmp(path, copy, shallow=False):
            return copy
    new = copy.with_name(copy.name + ".new")
    try:
        new.touch(mode=0o600)
        shutil.copyfile(path, new)
        fd = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
        try:
            files.fsync(fd)
        finally:
            os.close(fd)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    files.rename(new, copy)
    files.sync_folder(folder.quarantine)
    return copy


def hits_behind(scanner: Scanner, offset: int, lsn: int, epoch: int) -> list[Hit]:
    """All valid batches of the file in the scanner from `offset` on, with LSNs from `lsn` on."""
    hits: list[Hit] = []
    while (hit := scanner.search(offset, lsn, epoch)) is not None:
        hits.append(hit)
        offset, lsn = hit.offset + hit.length, hit.next_lsn
    return hits


def mend(
    files: Files,
    path: Path,
    scanner: Scanner,
    found: Scanned,
    hits: Sequence[Hit],
    base_lsn: int,
    follows: int,
) -> list[Hole]:
    """Replace a damaged segment by what can be read of it; what is lost.

    Args:
        files: The operating system.
        path: The segment, whose copy is in quarantine.
        scanner: Has the file in its buffer.
        found: Of the walk to the damage.
        hits: The valid batches behind it.
        base_lsn: The LSN that the segment begins with.
        follows: The LSN of the first record behind the segment; 0: not known.

    Raises:
        OSError: the file is as it was.

    """
    head = Head.decode(scanner.bytes_at(0, WAL_HEAD_BYTES), path, WAL)
    head = replace(head, base_lsn=base_lsn, flags=head.flags | SALVAGED)
    parts = [head.encode(WAL_HEAD_BYTES), scanner.bytes_at(WAL_HEAD_BYTES, found.end - WAL_HEAD_BYTES)]
    holes = []
    end, lsn = found.end, found.next_lsn
    for hit in hits:
        if hit.offset != end:
            holes.append(Hole(path, end, hit.offset - end, lsn, hit.lsn))
        parts.append(scanner.bytes_at(hit.offset, hit.length))
        end, lsn = hit.offset + hit.length, hit.next_lsn
    written = scanner.written_end(end)
    if written > end or not hits:
        holes.append(Hole(path, end, written - end, lsn, max(follows, lsn)))
    if follows > lsn:
        parts.append(note_of(follows, head.epoch, found.max_ts))
    files.replace(path, b"".join(parts))
    return holes


def mend_head(files: Files, path: Path, scanner: Scanner, log_id: bytes, number: int) -> Head | None:
    """Give a segment a new head, which says no more than its batches do; None: it has none that can be read.

    The scanner has the file in its buffer. Raises OSError.
    """
    hit = scanner.search(WAL_HEAD_BYTES, 1, None)
    if hit is None:
        return None
    head = Head(kind=WAL, log_id=log_id, epoch=hit.epoch, number=number, base_lsn=hit.lsn, flags=SALVAGED)
    body = scanner.bytes_at(WAL_HEAD_BYTES, scanner.size - WAL_HEAD_BYTES)
    files.replace(path, head.encode(WAL_HEAD_BYTES) + body)
    return head


def stand_in(
    files: Files, folder: Folder, number: int, log_id: bytes, epoch: int, first: int, follows: int
) -> None:
    """Make a segment in which nothing is left, in the place of one that is lost: LSNs [first, follows)."""
    head = Head(
        kind=WAL,
        log_id=log_id,
        epoch=epoch,
        number=number,
        base_lsn=first,
        prev_lsn=first - 1,
        flags=SALVAGED | SEALED,
    )
    files.replace(folder.segment(number), head.encode(WAL_HEAD_BYTES) + note_of(follows, epoch, 0))


def note_of(lsn: int, epoch: int, time_ms: int) -> bytes:
    """The note at the end of a segment whose records end before `lsn`, as bytes."""
    out = Appender(lambda: time_ms, lsn, epoch)
    out.now_ms()
    out.append_note()
    note = b"".join(bytes(batch) for batch in out.take_closed())
    assert len(note) % ALIGN == 0
    return note
