"""Recovery: what a start does before it serves: find out what the files hold, and make them consistent.

1. MANIFEST says where the log begins and ends, and which checkpoints there are. Without it, the files
   themselves do.
2. The newest readable checkpoint gives the tables. There are two, so that one may be lost.
3. After a clean stop nothing is scanned but the end of the newest segment: the feeds come from the
   directories of the feed indexes. Otherwise the segments behind the checkpoint are scanned, batch by batch.
   A missing or damaged index is made anew from its segment.
4. If a batch is not valid, at LSN X, the rest of the log is searched for valid ones. H is the highest
   synced LSN in any of them, in the checkpoint and in CLEAN. X > H: what follows was never promised (a
   torn write, or pages that reached the disk out of order). It is cut off and reported. X <= H: durable
   data is damaged. A copy goes to quarantine and the start is refused, unless it was asked to salvage:
   then the readable rest is kept and the gap listed.
   A file that is shorter than it was made is damaged, too, unless MANIFEST or its index says so. So before
   an end is cut off, or an empty segment removed, MANIFEST says it (`Recovered.settle`).
5. Transient records are in no feed afterwards: they end with the process.
6. The log must reach its checkpoint. After an unclean stop the next LSN jumps by 2**32, so that no position
   is used twice; a checkpoint that is ahead of the log by whole jumps misses nothing.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import field, replace
from pathlib import Path
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import ALIGN, Batch
from penstock.log_core.batch._scan import Hit, Scanned, Scanner, adopt_directory
from penstock.log_core.delayed._delays import DueHeap
from penstock.log_core.errors import Damage, data_damaged
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import (
    HEAD_BYTES,
    SALVAGED,
    SEALED,
    TIME_INDEX,
    WAL,
    WAL_HEAD_BYTES,
    Folder,
    Head,
)
from penstock.log_core.files.manifest import CleanMark, Manifest
from penstock.log_core.recovery.checkpoint import Checkpoint, read_checkpoint
from penstock.log_core.recovery.salvage import Hole, hits_behind, mend, mend_head, quarantine
from penstock.log_core.segments.feed_index import kept_bytes, read_directory
from penstock.log_core.segments.segment import EVERYBODY, Marks, Segment, noted_ends
from penstock.log_core.state.tables import FEED_TABLE, Tables, feed_of_key

__all__ = ["LSN_JUMP", "Recovery", "ends_early", "recover"]

_LOG: Final = logging.getLogger("penstock.log")

LSN_JUMP: Final = 1 << 32


def ends_early(last: int, promised: int) -> bool:
    """Whether a log with the last LSN `last` lacks records that a checkpoint or a clean stop knows of.

    A start after a kill lets LSNs jump; if nothing was written since, that jump is all that is missing.
    """
    return last < promised and (promised - last) % LSN_JUMP != 0


@dataclass(slots=True)
class Recovery:
    """The report of a start."""

    clean: bool = True
    """The log was stopped cleanly, or is new."""
    records: int = 0
    """Scanned."""
    bytes: int = 0
    """Scanned."""
    truncated_bytes: int = 0
    """Cut off at the end: written but never synced."""
    seconds: float = 0.0
    last_lsn: int = 0
    checkpoint_lsn: int = 0
    segments: int = 0
    holes: list[Hole] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """Faults that were found and put right, a sentence each."""


@dataclass(slots=True)
class Recovered:
    """The state that the Log goes on from."""

    manifest: Manifest
    segments: list[Segment]
    next_lsn: int
    number: int
    """Of the next segment."""
    feeds: dict[int, Feed]
    report: Recovery
    settle: Callable[[], object]
    """Called when `manifest` is durable: cuts the end, and makes durable what was found. Raises OSError."""


def recover(
    folder: Folder,
    files: Files,
    tables: Tables,
    make_feed: Callable[[int], Feed],
    *,
    salvage: bool,
    sync: bool,
) -> Recovered:
    """Do all of it but `Recovered.settle`; nothing is written but salvaged files. Raises StartError, OSError.

    `sync`: make durable what was found, before anybody builds on it.
    """
    started = time.perf_counter()
    run = _Run(folder, files, tables, make_feed, salvage, sync)
    try:
        recovered = run.run()
    except Damage as damage:
        raise data_damaged(damage, run.quarantine(damage.path)) from None
    recovered.report.seconds = time.perf_counter() - started
    for hole in recovered.report.holes:
        _LOG.error("%s", hole)
    return recovered


def _head_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(WAL_HEAD_BYTES)


class _Run:
    def __init__(
        self,
        folder: Folder,
        files: Files,
        tables: Tables,
        make_feed: Callable[[int], Feed],
        salvage: bool,
        sync: bool,
    ) -> None:
        self._folder = folder
        self._files = files
        self._tables = tables
        self._make_feed = make_feed
        self._salvage = salvage
        self._sync = sync
        self._scanner = Scanner()
        self._feeds: dict[int, Feed] = {}
        self._report = Recovery()
        self._prev_lsn: dict[int, int] = {}  # by segment number: the last LSN before it, as its head says
        self._allocated: dict[int, int] = {}  # by segment number: the file's first size; 0: unknown
        self._log_id = b""
        self._synced = 0  # H: the highest LSN known to have been durable
        self._unsynced: list[Segment] = []  # scanned
        self._torn: list[Segment] = []  # what is behind their end is to be cut off
        self._dropped: list[int] = []  # numbers of segments in which nothing is to be kept
        self._manifest = Manifest(b"", 0, 1, [])
        self._lost = False  # something that was durable is gone, and salvage goes on without it

    def run(self) -> Recovered:
        numbers = self._folder.segment_numbers()
        manifest = self._read_manifest(numbers)
        self._log_id = manifest.log_id
        self._manifest = manifest
        for number in [n for n in numbers if n < manifest.first_segment]:
            self._remove(number)  # left over from a deletion
        for path in [*self._folder.shard.rglob("*.new"), *self._folder.root.glob("*.new")]:
            self._files.unlink(path)  # never got its name
        self._check_numbers(manifest, numbers)
        segments = self._read_heads([n for n in numbers if n >= manifest.first_segment])
        checkpoint = self._read_tables(manifest, segments)
        clean = self._is_clean(manifest, segments, checkpoint)
        self._report.clean = clean
        self._report.checkpoint_lsn = checkpoint.lsn
        self._synced = max(self._synced, checkpoint.lsn)
        at = 0
        while at < len(segments):
            if (clean or segments[at].number < checkpoint.segment) and self._adopt(segments, at, checkpoint):
                at += 1
            else:
                at = self._scan(segments, at, checkpoint)
        self._check_end(segments, checkpoint)
        if self._lost:
            clean = self._report.clean = False
        if segments and segments[-1].end == WAL_HEAD_BYTES:
            self._dropped.append(segments.pop().number)  # prepared, or begun, and never written to
        # The numbers have no gaps: a file that was only prepared, and is removed, leaves its number.
        follows = (
            segments[-1].number + 1 if segments else max([manifest.first_segment, *(n + 1 for n in numbers)])
        )
        manifest.first_segment = segments[0].number if segments else follows
        manifest.last_segment = segments[-1].number if segments else 0
        manifest.last_end = segments[-1].end if segments else 0
        manifest.names_segments = True
        last_lsn = max(checkpoint.lsn, segments[-1].next_lsn - 1 if segments else 0)
        self._report.last_lsn = last_lsn
        self._report.segments = len(segments)
        return Recovered(
            manifest,
            segments,
            last_lsn + 1 if clean else self._jumped(segments, last_lsn),
            follows,
            self._feeds,
            self._report,
            self._settle,
        )

    def _jumped(self, segments: list[Segment], last_lsn: int) -> int:
        """The next LSN after an unclean stop: whole jumps behind the end, so that `ends_early` knows them."""
        known = max(last_lsn, self._synced)
        end = segments[-1].next_lsn - 1 if segments else known
        return end + 1 + LSN_JUMP * (1 + -(-(known - end) // LSN_JUMP))

    def _settle(self) -> None:
        """Up to H all is durable, and each sync has to wait for the disk's other work."""
        for segment in self._torn:
            self._files.cut(segment.path, segment.end, sync=self._sync)
        for segment in self._unsynced:
            if self._sync and segment not in self._torn and segment.next_lsn - 1 > self._synced:
                self._files.cut(segment.path, segment.path.stat().st_size)
        for number in self._dropped:
            self._remove(number)

    def _warn(self, text: str) -> None:
        _LOG.warning("%s", text)
        self._report.warnings.append(text)

    def _remove(self, number: int) -> None:
        for path in self._folder.files_of(number):
            self._files.unlink(path)

    # The small files

    def _read_manifest(self, numbers: list[int]) -> Manifest:
        try:
            return Manifest.read(self._folder.manifest)
        except FileNotFoundError:
            if not numbers and not any(self._folder.checkpoints.glob("*.ckpt")):
                return Manifest(secrets.token_bytes(16), 0, 1, [])
            if not numbers:
                self._missed(Damage(self._folder.manifest, 0, "it is missing, and so are all segments"))
            self._warn(f"{self._folder.manifest} is missing; made anew from the files of the log")
        except Damage as damage:
            self._warn(f"{damage.message}; made anew from the files of the log")
        lsns = sorted((int(path.stem, 16) for path in self._folder.checkpoints.glob("*.ckpt")), reverse=True)
        epoch, log_id = 0, secrets.token_bytes(16)
        for number in numbers:
            raw = _head_bytes(self._folder.segment(number))
            if any(raw):
                head = Head.decode(raw, self._folder.segment(number), WAL)
                epoch, log_id = max(epoch, head.epoch), head.log_id
        return Manifest(log_id, epoch, min(numbers, default=1), lsns[:2])

    def _check_numbers(self, manifest: Manifest, numbers: list[int]) -> None:
        """Every segment that MANIFEST and the files themselves speak of must be there."""
        absent = manifest.absent(numbers)
        if not absent:
            return
        others = f", and {len(absent) - 1} others" if len(absent) > 1 else ""
        self._missed(Damage(self._folder.segment(absent[0]), 0, f"the segment is missing{others}"))

    def _missed(self, damage: Damage) -> None:
        """Refuse the start, or note what salvage goes on without."""
        if not self._salvage:
            raise damage
        self._lost = True
        self._warn(damage.message)

    def _is_clean(self, manifest: Manifest, segments: list[Segment], checkpoint: Checkpoint) -> bool:
        if not segments and manifest.epoch == 0:
            return True  # a new log
        try:
            mark = CleanMark.read(self._folder.clean)
        except FileNotFoundError:
            return False
        except Damage as damage:
            self._warn(f"{damage.message}; the log is scanned as after a crash")
            return False
        self._synced = max(self._synced, mark.lsn)
        last = segments[-1].number if segments else 0
        if mark.log_id == manifest.log_id and mark.epoch == manifest.epoch:
            wrong = ""
            if mark.segment > last and mark.end > WAL_HEAD_BYTES:
                wrong = "the segment is missing, with which the log ended at its clean stop"
            elif mark.segment == last and segments and segments[-1].path.stat().st_size < mark.end:
                wrong = f"the file is shorter than the {mark.end} bytes that it had at the clean stop"
            if wrong:
                self._missed(Damage(self._folder.segment(mark.segment), 0, wrong))
                return False
        if mark.log_id != manifest.log_id or mark.segment != last or mark.lsn != checkpoint.lsn:
            self._warn(f"{self._folder.clean} does not fit the log; it is scanned as after a crash")
            return False
        return True

    # Tables

    def _read_tables(self, manifest: Manifest, segments: list[Segment]) -> Checkpoint:
        checkpoint: Checkpoint | None = None
        for lsn in manifest.checkpoints:
            path = self._folder.checkpoint(lsn)
            try:
                checkpoint = read_checkpoint(path, self._tables.apply)
                break
            except FileNotFoundError:
                self._warn(f"{path} is missing; going back to the checkpoint before it")
            except Damage as damage:
                self._warn(f"{damage.message}; going back to the checkpoint before it")
            self._tables.clear()
            self._synced = max(self._synced, lsn)
        for key in self._tables.keys(FEED_TABLE):
            self._know(feed_of_key(key))
        if not segments:
            start, whole = 0, checkpoint is not None or not manifest.checkpoints
        else:
            before = self._prev_lsn[segments[0].number]
            first_of_process = segments[0].base_lsn != 0
            segments[0].base_lsn = start = self._start_of(segments[0])
            reached = checkpoint.lsn if checkpoint is not None else 0
            in_first = checkpoint is not None and segments[0].number == checkpoint.segment
            whole = in_first or (before if first_of_process else start - 1) <= reached
        if checkpoint is None:
            checkpoint = Checkpoint(0, 0)
        if not whole:
            wrong = f"no checkpoint fits the log, which begins at LSN {start}"
            self._missed(Damage(self._folder.checkpoints, 0, wrong))
        return checkpoint

    def _know(self, feed_id: int) -> None:
        feed = self._make_feed(feed_id)
        self._feeds[feed_id] = feed
        self._scanner.know(feed)

    def _on_state(self, block: bytes, value: bytes | None) -> None:
        table, key = self._tables.apply(block, value)
        if table == FEED_TABLE:
            feed_id = feed_of_key(key)
            if value is None:
                self._feeds.pop(feed_id, None)
                self._scanner.forget(feed_id)
            elif feed_id not in self._feeds:
                self._know(feed_id)

    # Segments

    def _read_heads(self, numbers: list[int]) -> list[Segment]:
        segments: list[Segment] = []
        for number in numbers:
            path = self._folder.segment(number)
            raw = _head_bytes(path)
            if not any(raw) and number == numbers[-1] and number > self._manifest.last_segment:
                self._remove(number)  # its preparation was cut short
                continue
            try:
                head = Head.decode(raw, path, WAL)
                if segments and (number != segments[-1].number + 1 or head.epoch < segments[-1].epoch):
                    raise Damage(path, 0, f"does not follow {segments[-1].path}")
            except Damage as damage:
                if not self._salvage:
                    raise
                mended = self._salvage_head(damage, number)
                if mended is None:
                    continue
                head = mended
            self._prev_lsn[number] = head.prev_lsn
            self._allocated[number] = 0 if head.flags & (SALVAGED | SEALED) else head.payload_len
            self._synced = max(self._synced, head.prev_lsn)  # a start syncs what it found
            segment = Segment(number, path, head.base_lsn, head.epoch, head.base_lsn, recovered=True)
            segment.sealed = bool(head.flags & SEALED)
            segment.gaps = bool(head.flags & (SALVAGED | SEALED))
            segments.append(segment)
        return segments

    def _start_of(self, segment: Segment) -> int:
        """The first LSN of the oldest segment, by head, first batch or index; 0 = it is empty."""
        if segment.base_lsn:
            return segment.base_lsn
        found = self._peek(segment)
        if not found:
            try:
                path = self._folder.time_index(segment.number)
                found = Head.decode(path.read_bytes()[:HEAD_BYTES], path, TIME_INDEX).base_lsn
            except (FileNotFoundError, Damage):
                self._read(segment)
                hit = self._scanner.search(WAL_HEAD_BYTES, 1, segment.epoch)
                found = hit.lsn if hit is not None else 0
        return found

    def _peek(self, segment: Segment) -> int:
        """The LSN of a segment's first batch; 0 when there is no valid one at its place."""
        with segment.path.open("rb") as file:
            file.seek(WAL_HEAD_BYTES)
            raw = file.read(4)
            raw += file.read(max(0, int.from_bytes(raw, "little") - 4))
        try:
            return Batch.parse(raw).base_lsn
        except ValueError:
            return 0

    def _adopt(self, segments: list[Segment], at: int, checkpoint: Checkpoint) -> bool:
        """Take a closed segment's place in the log and in the feeds from its index files; False: scan it."""
        if not segments[at].base_lsn:
            segments[at].base_lsn = segments[at - 1].next_lsn if at else 0
        segment = replace(segments[at])
        try:
            segment.read_time_index(self._folder)
            directory = read_directory(self._folder.feed_index(segment.number), segment.base_lsn)
        except FileNotFoundError as error:
            self._warn(f"{error.filename} is missing; made anew from its segment")
        except Damage as damage:
            self._warn(f"{damage.message}; made anew from its segment")
        else:
            # Not by the number alone: a file that was never written to is removed, and its number used again.
            if segment.next_lsn > checkpoint.lsn + 1:
                return False
            if segment.path.stat().st_size < segment.end:
                self._warn(f"{segment.path} is shorter than its index says; scanned")
            elif at + 1 == len(segments) and not self._ends_as_indexed(segment):
                self._warn(f"{segment.path} does not end as its index says; scanned")
            else:
                segments[at] = segment
                segment.feeds = adopt_directory(self._scanner, directory, segment.base_lsn)
                segment.kept_bytes = kept_bytes(directory, segment)
                segment.indexed = True
                segment.marks = None
                return True
        return False

    def _ends_as_indexed(self, segment: Segment) -> bool:
        """Whether the batches behind the last mark of its index are there; no later segment misses them."""
        assert segment.marks is not None
        at, lsn = WAL_HEAD_BYTES, segment.base_lsn
        if segment.marks.lsns:
            at, lsn = segment.marks.offsets[-1], segment.marks.lsns[-1]
        if segment.end <= at:
            return True
        with segment.path.open("rb") as file:
            self._scanner.read(file.fileno(), segment.end - at, at)
        found = self._scanner.scan(
            0, lsn, segment.epoch, base=segment.base_lsn, gaps=segment.gaps, push=False
        )
        return at + found.end == segment.end and (segment.gaps or found.next_lsn == segment.next_lsn)

    def _read(self, segment: Segment) -> None:
        with segment.path.open("rb") as file:
            self._scanner.read(file.fileno(), os.fstat(file.fileno()).st_size)

    def _scan(self, segments: list[Segment], at: int, checkpoint: Checkpoint) -> int:
        """Scan one segment, and cut or mend what is wrong with it; where in `segments` to go on."""
        segment = segments[at]
        before = segments[at - 1] if at else None
        # Behind a salvaged segment nobody knows where it ended; a sealed one has a note that says it.
        uncertain = before is not None and before.gaps and not before.sealed and not segment.sealed
        if not segment.base_lsn or uncertain:
            segment.base_lsn = self._peek(segment) if before is None or uncertain else before.next_lsn
            segment.base_lsn = segment.base_lsn or (before.next_lsn if before else checkpoint.lsn + 1)
        segment.marks = Marks()
        segment.waiting = DueHeap()
        self._read(segment)
        self._report.bytes += self._scanner.size
        found = self._walk(segment, WAL_HEAD_BYTES, segment.base_lsn, checkpoint)
        written = self._scanner.written_end(found.end)
        promised = self._promised(segments, at)
        torn = found.reason is not None or written > found.end
        if torn or self._is_end(segments, at):
            self._check_size(segment, found)
        is_last = at + 1 == len(segments)
        # The end that a checkpoint knows may lie a jump behind the last record: nothing was written since.
        short = ends_early(found.next_lsn - 1, promised - 1) if is_last else found.next_lsn < promised
        if torn or short:
            follows = promised if at + 1 < len(segments) else 0
            hits = self._look_behind(segments, at, found)
            if found.next_lsn > self._synced:
                self._cut(segments, at, found, written)
            else:
                reason = found.reason or "the log goes on elsewhere, but what belongs here is missing"
                damage = Damage(segment.path, found.end, reason, found.crc_expected, found.crc_found)
                if not self._salvage:
                    raise damage
                self._mend(segment, damage, found, hits, follows)
                self._read(segment)
                self._walk(segment, found.end, found.next_lsn, checkpoint)
        segment.held = self._scanner.held_bytes(WAL_HEAD_BYTES, segment.end)
        segment.thinned = {EVERYBODY} if segment.sealed else set()
        self._unsynced.append(segment)
        if torn and segment.path.stat().st_size != segment.end:
            self._torn.append(segment)
        segment.feeds = self._scanner.feeds_at(segment.base_lsn)
        segment.indexed = self._indexes_fit(segment)
        return at + 1

    def _check_size(self, segment: Segment, found: Scanned) -> None:
        """A file that ends in a batch was not cut by the log, which cuts at the end of one and says so."""
        size, allocated = self._scanner.size, self._allocated[segment.number]
        if size >= allocated:
            return
        if found.end < size:
            reason = f"the file ends in a batch, at {size} of {allocated} bytes that it had"
        elif size not in noted_ends(self._folder, self._manifest, segment.number):
            reason = f"the file is shorter than the {allocated} bytes that it was made with"
        else:
            return
        self._missed(Damage(segment.path, found.end, reason))

    def _check_end(self, segments: list[Segment], checkpoint: Checkpoint) -> None:
        """The log reaches its checkpoint: segments that were closed before it are not scanned."""
        if not segments or any(segment.gaps and not segment.sealed for segment in segments):
            return
        last = segments[-1]
        if ends_early(last.next_lsn - 1, checkpoint.lsn):
            wrong = f"the log ends at LSN {last.next_lsn - 1}, and its checkpoint is at {checkpoint.lsn}"
            self._missed(Damage(last.path, last.end, wrong))

    def _is_end(self, segments: list[Segment], at: int) -> bool:
        """Whether no later segment says where this one ended."""
        return not any(later.base_lsn or self._peek(later) for later in segments[at + 1 :])

    def _walk(self, segment: Segment, offset: int, lsn: int, checkpoint: Checkpoint) -> Scanned:
        assert segment.marks is not None
        found = self._scanner.scan(
            offset,
            lsn,
            segment.epoch,
            base=segment.base_lsn,
            gaps=segment.gaps,
            on_state=self._on_state,
            state_after=checkpoint.lsn,
            sparse=segment.marks.add,
            delayed=segment.waiting,
        )
        segment.end = found.end
        segment.next_lsn = found.next_lsn
        segment.min_ts = segment.min_ts or found.min_ts
        segment.max_ts = max(segment.max_ts, found.max_ts)
        self._report.records += found.records
        self._synced = max(self._synced, found.synced_lsn)
        return found

    def _promised(self, segments: list[Segment], at: int) -> int:
        """The LSN that a segment must reach, by what the next one or the rest of the folder says."""
        if at + 1 == len(segments):
            return self._synced + 1
        following = segments[at + 1]
        if following.base_lsn:
            return self._prev_lsn[following.number] + 1
        return self._peek(following)

    def _look_behind(self, segments: list[Segment], at: int, found: Scanned) -> list[Hit]:
        """Find what is valid behind the place where a walk stopped; raises H to what it says."""
        hits: list[Hit] = []
        for segment in segments[at:]:
            offset = WAL_HEAD_BYTES
            if segment is segments[at]:
                offset = found.end + ALIGN
            else:
                self._read(segment)
            more = hits_behind(self._scanner, offset, found.next_lsn, segment.epoch)
            self._synced = max([self._synced, *(hit.synced_lsn for hit in more)])
            if segment is segments[at]:
                hits = more
        return hits

    def _cut(self, segments: list[Segment], at: int, found: Scanned, written: int) -> None:
        """Throw away what was never promised: the rest of this segment and all later ones."""
        segment = segments[at]
        dropped = written - found.end
        for later in segments[at + 1 :]:
            self._read(later)
            dropped += self._scanner.written_end(WAL_HEAD_BYTES) - WAL_HEAD_BYTES
            self._dropped.append(later.number)
        del segments[at + 1 :]
        if dropped:
            self._report.truncated_bytes += dropped
            self._warn(
                f"{segment.path}: the log ends at byte {found.end}, LSN {found.next_lsn - 1}; "
                f"{dropped} bytes behind it were never synced and are cut off "
                f"({found.reason or 'a piece is missing'})"
            )

    def _mend(self, segment: Segment, damage: Damage, found: Scanned, hits: list[Hit], follows: int) -> None:
        """Replace a damaged segment by what can be read of it, and list what cannot."""
        self._read(segment)
        self._keep_copy(damage)
        self._lost = True
        segment.gaps = True
        base = segment.base_lsn
        holes = mend(self._files, segment.path, self._scanner, found, hits, base, follows)
        self._report.holes += holes

    def _salvage_head(self, damage: Damage, number: int) -> Head | None:
        """Give a segment whose head is damaged a new one; None when nothing in it can be read."""
        path = damage.path
        self._keep_copy(damage)
        with path.open("rb") as file:
            size = self._scanner.read(file.fileno(), os.fstat(file.fileno()).st_size)
        head = mend_head(self._files, path, self._scanner, self._log_id, number)
        self._report.holes.append(Hole(path, 0, size if head is None else WAL_HEAD_BYTES, 0, 0))
        if head is None:
            self._remove(number)
        return head

    def _keep_copy(self, damage: Damage) -> None:
        copy = quarantine(self._files, self._folder, damage.path)
        _LOG.error("%s; salvaged, a copy is kept in %s", damage.message, copy)

    def _indexes_fit(self, segment: Segment) -> bool:
        """Whether a scanned segment has its index files already."""
        stored = replace(segment)
        try:
            stored.read_time_index(self._folder)
            directory = read_directory(self._folder.feed_index(segment.number), segment.base_lsn)
        except (FileNotFoundError, Damage):
            return False
        if (stored.next_lsn, stored.end) != (segment.next_lsn, segment.end):
            return False
        segment.kept_bytes = kept_bytes(directory, segment)
        segment.waiting = None
        segment.held, segment.thinned = stored.held, stored.thinned
        segment.delayed, segment.delayed_at = stored.delayed, stored.delayed_at
        segment.delayed_last = stored.delayed_last
        return True

    def quarantine(self, path: Path) -> Path | None:
        """Keep a copy of a damaged file; None when there is nothing to copy or no room."""
        if not path.is_file():
            return None
        try:
            return quarantine(self._files, self._folder, path)
        except OSError as error:
            _LOG.error("no copy of %s could be kept: %s", path, error.strerror)
            return None
