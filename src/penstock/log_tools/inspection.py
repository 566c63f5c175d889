"""`penstock log inspect|verify`: what files a data folder has, and whether they are what was written.

Both only read, take no lock, and may look at the folder of a running penstock: files that come and go
meanwhile, and the unfinished end of the newest segment, are no problems then.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TextIO

from penstock.errors import StartError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import STATE
from penstock.log_core.batch._scan import Scanned, Scanner
from penstock.log_core.errors import Damage
from penstock.log_core.files.layout import SALVAGED, SEALED, WAL, WAL_HEAD_BYTES, Folder, Head
from penstock.log_core.files.manifest import CleanMark, Manifest
from penstock.log_core.history.history import read_history, read_history_entries
from penstock.log_core.recovery.checkpoint import read_checkpoint
from penstock.log_core.recovery.recovery import ends_early
from penstock.log_core.segments.feed_index import ROW_BYTES, read_directory, verify_entries
from penstock.log_core.segments.segment import Segment, noted_ends
from penstock.log_core.state.tables import split_key
from penstock.log_tools.reading import SegmentFile, batches, missing

__all__ = ["Walked", "inspect", "verify", "walk"]

_MIB: Final = 1024 * 1024
_LOOKS: Final = 10


@dataclass(slots=True)
class Walked:
    """One segment, walked over from its first batch on."""

    number: int
    path: Path
    head: Head
    found: Scanned
    written: int
    """Behind the last byte that is not zero."""
    valid_behind: bool
    """Valid batches lie behind the place where the walk stopped."""

    @property
    def is_broken(self) -> bool:
        """Something that is no batch lies behind the last one."""
        return self.found.reason is not None or self.written > self.found.end

    @property
    def state(self) -> tuple[Head, int, bool]:
        """Differs when the file has changed."""
        return self.head, self.found.end, self.is_broken

    @property
    def sealed(self) -> bool:
        """It holds only what was needed when it was rewritten."""
        return bool(self.head.flags & SEALED)


def _when(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000)) if ms else "-"


def walk(folder: Folder) -> Iterator[Walked | Damage]:
    """All segments, oldest first; Damage for one whose head cannot be read.

    A file that looks amiss is looked at again, later: it may have been written to meanwhile.
    """
    scanner = Scanner()
    before: Walked | Damage | None = None
    lsn = before_lsn = 1
    for number in folder.segment_numbers():
        one = _walk_one(folder, number, scanner, lsn)
        if one is None:
            continue
        if isinstance(before, Walked) and isinstance(one, Walked) and one.found.batches:
            if before.is_broken or one.found.first_lsn > before.found.next_lsn:
                before = _walk_one(folder, before.number, scanner, before_lsn) or before
        if before is not None:
            yield before
        before, before_lsn = one, lsn
        lsn = one.found.next_lsn if isinstance(one, Walked) else lsn
    for _ in range(_LOOKS):
        if not (isinstance(before, Walked) and before.is_broken and before.valid_behind):
            break
        again = _walk_one(folder, before.number, scanner, before_lsn)
        grown = isinstance(again, Walked) and again.found.end > before.found.end
        before = again or before
        if not grown:
            break
    if before is not None:
        yield before


def _walk_one(folder: Folder, number: int, scanner: Scanner, lsn: int) -> Walked | Damage | None:
    """One segment, which begins with `lsn` unless it says otherwise; None: it is gone, or only prepared."""
    path = folder.segment(number)
    try:
        with path.open("rb") as file:
            scanner.read(file.fileno(), os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return None
    raw = scanner.bytes_at(0, min(scanner.size, WAL_HEAD_BYTES))
    if not any(raw):
        return None
    try:
        head = Head.decode(raw, path, WAL)
    except Damage as damage:
        return damage
    gaps = bool(head.flags & (SALVAGED | SEALED))
    start = head.base_lsn
    if not start:
        hit = scanner.search(WAL_HEAD_BYTES, 1, head.epoch)
        start = hit.lsn if hit is not None and hit.offset == WAL_HEAD_BYTES else lsn
    found = scanner.scan(WAL_HEAD_BYTES, start, head.epoch, base=start, gaps=gaps, push=False)
    behind = found.end < scanner.size and scanner.search(found.end + 32, found.next_lsn, head.epoch)
    return Walked(number, path, head, found, scanner.written_end(found.end), bool(behind))


def inspect(folder: Folder, out: TextIO, *, as_json: bool = False) -> int:
    """Describe a data folder; how many of its segments are damaged or missing.

    Raises StartError when it is of another version.
    """
    if as_json:
        described = _described(folder)
        out.write(json.dumps(described, indent=2) + "\n")
        damaged = [one for one in described["segments"] if one["damaged"]]
        return len(described["missing_segments"]) + len(damaged)
    problems = 0
    before = 0
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
    for walked in walk(folder):
        number = int(walked.path.stem)
        for gone in missing(folder, before, number):
            problems += 1
            out.write(f"{gone}\n")
        before = number
        if isinstance(walked, Damage):
            problems += 1
            out.write(f"{walked}\n")
            continue
        found = walked.found
        out.write(f"{walked.number:7} {found.first_lsn:14} {found.next_lsn - 1:14} {found.batches:9} ")
        out.write(f"{found.records:9} {found.end / _MIB:6.1f}  ")
        out.write(f"{_when(found.min_ts):20}  {_when(found.max_ts)}\n")
        if walked.is_broken and walked.valid_behind:
            problems += 1
            out.write(
                f"{walked.path}, byte {found.end}: damaged; what lies behind it is not in the figures\n"
            )
    return problems


def _described(folder: Folder) -> dict[str, Any]:
    """The result of `inspect`, for programs."""

    def read(one: Callable[[Path], Any], path: Path) -> Any:
        try:
            return one(path)
        except (FileNotFoundError, Damage):
            return None

    segments = list(walk(folder))
    numbers = [int(one.path.stem) for one in segments]
    manifest: Manifest | None = read(Manifest.read, folder.manifest)
    mark: CleanMark | None = read(CleanMark.read, folder.clean)
    return {
        "log_id": manifest.log_id.hex() if manifest else None,
        "epoch": manifest.epoch if manifest else None,
        "first_segment": manifest.first_segment if manifest else None,
        "stopped_cleanly_at": mark.lsn if mark else None,
        "checkpoints": manifest.checkpoints if manifest else [],
        "segments": [
            {"number": walked.number}
            | {
                name: getattr(walked.found, name)
                for name in ("batches", "records", "min_ts", "max_ts", "end")
            }
            | {"first_position": walked.found.first_lsn, "last_position": walked.found.next_lsn - 1}
            | {"damaged": walked.is_broken and walked.valid_behind}
            if isinstance(walked, Walked)
            else {"number": int(walked.path.stem), "damaged": True}
            for walked in segments
        ],
        "missing_segments": [
            int(gone.path.stem)
            for before, number in pairwise(numbers)
            for gone in missing(folder, before, number)
        ],
    }


def verify(folder: Folder, out: TextIO, *, as_json: bool = False) -> int:
    """Check every file of a data folder against its CRCs and the others; the number of problems found.

    Each problem is one line with file, byte, and the expected and found CRC where it is one. An end that
    a start would cut off as never promised is noted and not counted.
    """
    told: list[dict[str, Any]] = []
    notes: list[str] = []

    def problem(error: object) -> None:
        entry: dict[str, Any] = {"message": str(error)}
        if isinstance(error, Damage):
            entry |= {"file": str(error.path), "byte": error.offset, "reason": error.reason}
            entry |= {"expected_crc": error.expected, "found_crc": error.found}
        told.append(entry)
        if not as_json:
            out.write(f"{error}\n")

    def note(text: str) -> None:
        notes.append(text)
        if not as_json:
            out.write(f"note: {text}\n")

    small: dict[Path, Manifest | CleanMark] = {}
    for read, path in ((Manifest.read, folder.manifest), (CleanMark.read, folder.clean)):
        try:
            small[path] = read(path)
        except FileNotFoundError:
            if path == folder.manifest:
                problem(f"{path} is missing")
        except (Damage, StartError) as error:
            problem(error)
    named = small.get(folder.manifest)
    for damage in _absent(folder, named, small.get(folder.clean)):
        problem(damage)
    mark = small.get(folder.clean)
    promised = mark.lsn if isinstance(mark, CleanMark) else 0
    for checkpoint in sorted(folder.checkpoints.glob("*.ckpt")):
        try:
            promised = max(promised, read_checkpoint(checkpoint, lambda block, value: None).lsn)
        except FileNotFoundError:
            pass  # replaced in the meantime
        except (Damage, StartError) as error:
            problem(error)
    for history in sorted(folder.histories.glob("*.his")):
        try:
            for part in read_history(history):
                read_history_entries(history, part.base)
        except FileNotFoundError:
            pass  # read to its end in the meantime
        except (Damage, StartError) as error:
            problem(error)
    records = 0
    size = 0
    segments = [walked for walked in walk(folder)]
    synced = max((w.found.synced_lsn for w in segments if isinstance(w, Walked)), default=0)
    for at, walked in enumerate(segments):
        if isinstance(walked, Damage):
            problem(walked)
            continue
        settled = _settled(folder, walked, segments[at + 1 :], synced, named)
        if settled is None:
            continue
        walked, checked = settled
        records += checked.records
        size += walked.found.end
        for one in checked.problems:
            problem(one)
        for text in checked.notes:
            note(text)
    if segments and not told:
        ended = _ends_early(segments, promised)
        if ended is not None:
            problem(ended)
    if as_json:
        summary = {"segments": len(segments), "records": records, "bytes": size}
        out.write(json.dumps({**summary, "problems": told, "notes": notes}, indent=2) + "\n")
    else:
        out.write(
            f"{len(segments)} segments, {records} records, {size / _MIB:.1f} MiB: {len(told)} problems\n"
        )
    return len(told)


def _ends_early(segments: Sequence[Walked | Damage], promised: int) -> Damage | None:
    """The end of a log that goes on, as a checkpoint or the mark of a clean stop says: it is of zeros.

    `promised`: the last LSN that they know of. Nothing else tells that from room which was never written to.
    """
    whole = [one for one in segments if isinstance(one, Walked) and not one.head.flags & SALVAGED]
    if len(whole) < len(segments):
        return None
    last = whole[-1]
    end = max(one.found.next_lsn for one in whole) - 1
    if not ends_early(end, promised):
        return None
    return Damage(last.path, last.found.end, f"zeros where the log goes on: LSNs {end + 1} to {promised}")


def _settled(
    folder: Folder,
    walked: Walked,
    later: Sequence[Walked | Damage],
    synced: int,
    named: Manifest | CleanMark | None,
) -> tuple[Walked, _Checked] | None:
    """The findings of a segment, which is walked over again while it changes; None: it is gone.

    After the walk it may have been written to, closed or rewritten, and its index files belong to that.
    """
    for _ in range(_LOOKS):
        checked = _Checked(folder, walked, later, synced, named)
        if not checked.problems:
            break
        again = _walk_one(folder, walked.number, Scanner(), walked.found.first_lsn)
        if again is None:
            return None
        if isinstance(again, Damage) or again.state == walked.state:
            break
        walked = again
    return walked, checked


class _Checked:
    """The findings of a segment beside those behind it, `later`; `named`: MANIFEST, from before."""

    def __init__(
        self,
        folder: Folder,
        walked: Walked,
        later: Sequence[Walked | Damage],
        synced: int,
        named: Manifest | CleanMark | None,
    ) -> None:
        self.records = walked.found.records
        self.problems: list[object] = []
        self.notes: list[str] = []
        if walked.is_broken and not self._broken(walked, later, synced):
            return
        following = later[0] if later else None
        if isinstance(following, Walked):
            self._gap(folder, walked, following)
        if not walked.is_broken:
            if not any(_says_end(one) for one in later):
                _verify_size(folder, walked, named, self.problems.append)
            _verify_indexes(folder, walked, self.problems.append)

    def _broken(self, walked: Walked, later: Sequence[Walked | Damage], synced: int) -> bool:
        """Note the damage; False: a start would cut it off."""
        found = walked.found
        reason = found.reason or "zeros where a batch was written"
        damage = Damage(walked.path, found.end, reason, found.crc_expected, found.crc_found)
        rolled = any(isinstance(w, Walked) and w.found.batches for w in later)
        whole = walked.path.stat().st_size >= walked.head.payload_len
        if whole and not rolled and not walked.valid_behind and found.next_lsn > synced:
            self.notes.append(f"{damage}; never synced, a start would cut it off")
            return False
        self.problems.append(damage)
        for one in batches(SegmentFile(walked.number, walked.path, walked.head)):
            if one.offset <= found.end:
                continue
            if isinstance(one, Damage):
                self.problems.append(one)
            elif one.batch.kind != STATE:
                self.records += one.batch.count
        return True

    def _gap(self, folder: Folder, walked: Walked, following: Walked) -> None:
        end = walked.found.next_lsn
        prev = following.head.prev_lsn if following.head.base_lsn else following.found.first_lsn - 1
        if not following.found.batches or prev <= end - 1:
            return
        lsns = f"LSNs {end} to {prev}"
        gone = list(missing(folder, walked.number, following.number))
        for one in gone:
            reason = one.reason if walked.is_broken else f"{one.reason}: {lsns}"
            self.problems.append(Damage(one.path, 0, reason))
        if not gone and not walked.is_broken:
            self.problems.append(f"{walked.path}: {lsns} are missing behind it")


def _is_empty(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return not any(file.read(WAL_HEAD_BYTES))
    except FileNotFoundError:
        return False  # deleted in the meantime


def _says_end(later: Walked | Damage) -> bool:
    """Whether a segment says where the one before it ended; a damaged one may have."""
    return isinstance(later, Damage) or bool(later.head.base_lsn or later.found.batches)


def _verify_size(
    folder: Folder, walked: Walked, named: Manifest | CleanMark | None, problem: Callable[[object], None]
) -> None:
    """Look whether a segment was cut that no later one tells the end of; `named`: MANIFEST, from before."""
    try:
        size = walked.path.stat().st_size
    except FileNotFoundError:
        return  # deleted in the meantime
    allocated = walked.head.payload_len
    if size >= allocated or walked.head.flags & (SALVAGED | SEALED):
        return
    try:
        known = [Manifest.read(folder.manifest)]  # it is replaced before a stop cuts the segment
    except (OSError, Damage, StartError):
        return  # said already
    if isinstance(named, Manifest):
        known.append(named)
    if not any(size in noted_ends(folder, manifest, walked.number) for manifest in known):
        problem(
            Damage(walked.path, size, f"the file is shorter than the {allocated} bytes that it was made with")
        )


def _absent(
    folder: Folder, named: Manifest | CleanMark | None, mark: Manifest | CleanMark | None
) -> Iterator[Damage]:
    """The segments that MANIFEST and CLEAN name and that are gone at either end, empty, or shorter.

    Those in between are found when the segments are walked. `named`: MANIFEST before the folder is listed.
    """
    try:
        numbers = folder.segment_numbers()
        # Meanwhile the oldest may be deleted, and the newest made, or removed by a stop.
        now = Manifest.read(folder.manifest)
    except (OSError, Damage, StartError):
        return  # said already
    absent, last = now.absent(numbers), now.last_segment
    if isinstance(named, Manifest):
        absent, last = sorted({*absent} & {*named.absent(numbers)}), min(last, named.last_segment)
    for number in numbers:
        if number <= last and _is_empty(folder.segment(number)):
            yield Damage(folder.segment(number), 0, "its head is gone")
    for number in absent:
        if not numbers or not numbers[0] < number < numbers[-1]:
            yield Damage(folder.segment(number), 0, "the segment is missing")
    if isinstance(mark, CleanMark) and mark.segment not in absent and mark.end > WAL_HEAD_BYTES:
        path = folder.segment(mark.segment)
        if not path.exists():
            yield Damage(path, 0, "the segment is missing")
        elif path.stat().st_size < mark.end:
            yield Damage(path, path.stat().st_size, f"the file had {mark.end} bytes at the clean stop")


def _verify_indexes(folder: Folder, walked: Walked, problem: Callable[[object], None]) -> None:
    found = walked.found
    base = walked.head.base_lsn if walked.head.flags & SEALED else found.first_lsn
    segment = Segment(walked.number, walked.path, base, walked.head.epoch, base)
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
        rows = len(read_directory(path, base)) // ROW_BYTES
        verify_entries(path, rows)
    except FileNotFoundError:
        pass
    except (Damage, StartError) as error:
        problem(error)
