"""`penstock log inspect|verify`: what a data folder holds, and whether it is what was written.

Both only read, take no lock, and may look at the folder of a running penstock: files that come and go
meanwhile, and the unfinished end of the newest segment, are no problems then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from penstock.errors import StartError
from penstock.log_core._scan import Scanned, Scanner
from penstock.log_core.checkpoint import read_checkpoint
from penstock.log_core.errors import Damage
from penstock.log_core.feed_index import ROW_BYTES, read_directory, verify_entries
from penstock.log_core.layout import SALVAGED, WAL, WAL_HEAD_BYTES, Folder, Head
from penstock.log_core.manifest import CleanMark, Manifest
from penstock.log_core.segment import Segment
from penstock.log_core.tables import split_key

__all__ = ["inspect", "verify"]

_MIB: Final = 1024 * 1024


@dataclass(slots=True)
class _Walked:
    """One segment, walked over from its first batch on."""

    number: int
    path: Path
    head: Head
    found: Scanned
    written: int
    """Behind the last byte that is not zero."""
    valid_behind: bool
    """Valid batches lie behind the place where the walk stopped."""


def _when(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000)) if ms else "-"


def _walk(folder: Folder) -> Iterator[_Walked | Damage]:
    """All segments, oldest first; Damage for one whose head cannot be read."""
    scanner = Scanner()
    lsn = 0
    for number in folder.segment_numbers():
        path = folder.segment(number)
        try:
            with path.open("rb") as file:
                scanner.read(file.fileno(), os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            continue  # deleted in the meantime
        raw = scanner.bytes_at(0, min(scanner.size, WAL_HEAD_BYTES))
        if not any(raw):
            continue  # being prepared
        try:
            head = Head.decode(raw, path, WAL)
        except Damage as damage:
            yield damage
            continue
        gaps = bool(head.flags & SALVAGED)
        start = head.base_lsn
        if not start:
            hit = scanner.search(WAL_HEAD_BYTES, 1, head.epoch)
            start = hit.lsn if hit is not None and hit.offset == WAL_HEAD_BYTES else max(lsn, 1)
        found = scanner.scan(WAL_HEAD_BYTES, start, head.epoch, base=start, gaps=gaps, push=False)
        lsn = found.next_lsn
        behind = found.end < scanner.size and scanner.search(found.end + 32, lsn, head.epoch) is not None
        yield _Walked(number, path, head, found, scanner.written_end(found.end), behind)


def _folder(path: Path) -> Folder:
    folder = Folder(path)
    if not folder.wal.is_dir():
        raise StartError(f"no log in {path}", remedy="name penstock's data folder with --data DIR")
    return folder


def inspect(path: Path, out: TextIO) -> None:
    """Describe a data folder. Raises StartError when there is no log in it or it is of another version."""
    folder = _folder(path)
    try:
        manifest = Manifest.read(folder.manifest)
        out.write(f"log {manifest.log_id.hex()}, epoch {manifest.epoch}, ")
        out.write(f"first segment {manifest.first_segment}\n")
    except (FileNotFoundError, Damage) as error:
        out.write(f"MANIFEST: {error}\n")
    try:
        mark = CleanMark.read(folder.clean)
        out.write(f"stopped cleanly at LSN {mark.lsn}\n")
    except (FileNotFoundError, Damage):
        out.write("not stopped cleanly, or running\n")
    for checkpoint in sorted(folder.checkpoints.glob("*.ckpt")):
        tables: dict[str, int] = {}

        def count(block: bytes, _: bytes, tables: dict[str, int] = tables) -> None:
            table = split_key(block)[0]
            tables[table] = tables.get(table, 0) + 1

        try:
            where = read_checkpoint(checkpoint, count)
        except (FileNotFoundError, Damage) as error:
            out.write(f"checkpoint: {error}\n")
            continue
        rows = ", ".join(f"{table} {rows}" for table, rows in sorted(tables.items())) or "empty"
        out.write(f"checkpoint at LSN {where.lsn}: {rows}\n")
    out.write("segment      first LSN       last LSN   batches   records    MiB  from                  to\n")
    for walked in _walk(folder):
        if isinstance(walked, Damage):
            out.write(f"{walked}\n")
            continue
        found = walked.found
        out.write(f"{walked.number:7} {found.first_lsn:14} {found.next_lsn - 1:14} {found.batches:9} ")
        out.write(f"{found.records:9} {found.end / _MIB:6.1f}  ")
        out.write(f"{_when(found.min_ts):20}  {_when(found.max_ts)}\n")


def verify(path: Path, out: TextIO) -> int:
    """Check every file of a data folder against its CRCs and the others; the number of problems found.

    Each problem is one line with file, byte, and the expected and found CRC where it is one. What a start
    would cut off as never promised is noted and not counted.
    """
    folder = _folder(path)
    problems = 0

    def problem(error: object) -> None:
        nonlocal problems
        problems += 1
        out.write(f"{error}\n")

    for read, small in ((Manifest.read, folder.manifest), (CleanMark.read, folder.clean)):
        try:
            read(small)
        except FileNotFoundError:
            if small == folder.manifest:
                problem(f"{small} is missing")
        except (Damage, StartError) as error:
            problem(error)
    for checkpoint in sorted(folder.checkpoints.glob("*.ckpt")):
        try:
            read_checkpoint(checkpoint, lambda block, value: None)
        except FileNotFoundError:
            pass  # replaced in the meantime
        except (Damage, StartError) as error:
            problem(error)
    records = 0
    size = 0
    segments = [walked for walked in _walk(folder)]
    synced = max((w.found.synced_lsn for w in segments if isinstance(w, _Walked)), default=0)
    for at, walked in enumerate(segments):
        if isinstance(walked, Damage):
            problem(walked)
            continue
        found = walked.found
        records += found.records
        size += found.end
        if found.reason is not None or walked.written > found.end:
            reason = found.reason or "zeros where a batch was written"
            damage = Damage(walked.path, found.end, reason, found.crc_expected, found.crc_found)
            later = segments[at + 1 :]
            rolled = any(isinstance(w, _Walked) and w.found.batches for w in later)
            if not rolled and not walked.valid_behind and found.next_lsn > synced:
                out.write(f"note: {damage}; never synced, a start would cut it off\n")
                continue
            problem(damage)
            continue
        following = segments[at + 1] if at + 1 < len(segments) else None
        if isinstance(following, _Walked):
            prev = following.head.prev_lsn if following.head.base_lsn else following.found.first_lsn - 1
            if following.found.batches and prev > found.next_lsn - 1:
                problem(f"{walked.path}: LSNs {found.next_lsn} to {prev} are missing behind it")
        _verify_indexes(folder, walked, problem)
    out.write(f"{len(segments)} segments, {records} records, {size / _MIB:.1f} MiB: {problems} problems\n")
    return problems


def _verify_indexes(folder: Folder, walked: _Walked, problem: Callable[[object], None]) -> None:
    found = walked.found
    segment = Segment(walked.number, walked.path, found.first_lsn, walked.head.epoch, found.first_lsn)
    try:
        segment.read_time_index(folder)
        if (segment.next_lsn, segment.end) != (found.next_lsn, found.end):
            problem(f"{folder.time_index(walked.number)} says that the segment ends at byte {segment.end}")
    except FileNotFoundError:
        pass  # not closed yet; a start makes it
    except (Damage, StartError) as error:
        problem(error)
    try:
        path = folder.feed_index(walked.number)
        rows = len(read_directory(path, found.first_lsn)) // ROW_BYTES
        verify_entries(path, rows)
    except FileNotFoundError:
        pass
    except (Damage, StartError) as error:
        problem(error)
