"""A view of a log's files from outside: segments, positions, the end of the readable part.

Reads only, takes no lock, and may look at the folder of a running penstock, whose CPU it does not use, or be
sent the files by one (`storage`). A view is kept by whoever plans reads (a Spark driver) and `refresh`ed:
closed segments are known from their sparse index, of the one being written only what is new is walked over.
Nothing here is read on an event loop.

The readable end is the last record known to be durable ("synced"), as batches say in `synced_lsn`: what a
power cut could still take back is never handed out. With `written=True` it is the last whole record on disk.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.log_core.batch._scan import Scanner
from penstock.log_core.errors import Damage
from penstock.log_core.files.layout import (
    SALVAGED,
    SEALED,
    TIME_INDEX,
    WAL,
    WAL_HEAD_BYTES,
    Head,
    read_sealed,
)
from penstock.log_core.files.manifest import CleanMark, Manifest
from penstock.log_core.recovery.checkpoint import read_checkpoint
from penstock.log_core.segments.segment import MARK_BYTES, Segment
from penstock.log_core.state.tables import split_key
from penstock.spark.errors import SparkError
from penstock.spark.logs.archive import Archived
from penstock.spark.logs.storage import SegmentFile, Storage, storage_of

__all__ = ["LogPart", "LogView", "Part"]

_STEP_BYTES: Final = 1024 * 1024
_BASE_LSN_AT: Final = 32
_LP_TABLE: Final = "lp"


@dataclass(eq=False)
class _Known:
    """One segment."""

    segment: Segment
    """As the log core describes it; `end` and `next_lsn` are how far it was walked."""
    inode: int
    prev_lsn: int
    """The last LSN before it; 0: it goes on where the one before ends."""
    closed: bool
    synced_lsn: int = 0


@dataclass(frozen=True)
class LogPart:
    """A part of one segment: the records with LSNs in [first, last)."""

    segment: int
    """Its number."""
    first: int
    last: int
    offset: int
    """A batch begins at this byte, at or before `first`, unless the segment was rewritten since."""
    nbytes: int
    """About how much that is on disk."""


Part = LogPart | Archived
"""Where some of the rows lie."""


class LogView:
    """See the module."""

    def __init__(self, storage: Storage | Path | str) -> None:
        """Of a storage, a data folder or the URL of a gateway. Raises SparkError, ClientError."""
        self.storage = storage_of(storage) if isinstance(storage, (Path, str)) else storage
        self.log_id = ""
        self._known: dict[int, _Known] = {}
        self._vhosts: dict[int, bytes] = {0: b"/"}
        self._states_from = 0
        self._clean_lsn = 0
        self._scanner = Scanner()
        self.storage.refresh()

    # Looking

    def expect(self, log_id: str) -> None:
        """Let `refresh` refuse any other log than this one."""
        self.log_id = log_id

    def refresh(self) -> None:
        """Look again. Raises Damage, SparkError (another log lies there now), OSError."""
        self.storage.refresh()
        manifest = self._manifest()
        if self.log_id and manifest.log_id.hex() != self.log_id:
            raise SparkError(
                f"{self.storage} holds another log ({manifest.log_id.hex()}) than before ({self.log_id})",
                remedy="restart the query with a new checkpoint",
            )
        self.log_id = manifest.log_id.hex()
        self._clean_lsn = self._clean()
        numbers = [n for n in sorted(self.storage.segments()) if n >= manifest.first_segment]
        for gone in self._known.keys() - set(numbers):
            del self._known[gone]
        for number in numbers:
            try:
                self._look(number)
            except FileNotFoundError:
                self._known.pop(number, None)  # deleted in the meantime

    def _manifest(self) -> Manifest:
        for attempt in range(3):
            try:
                return Manifest.read(self.storage.folder.manifest)
            except FileNotFoundError:
                if attempt == 2:
                    raise SparkError(
                        f"{self.storage} has no MANIFEST",
                        remedy="start penstock on it once, which makes it anew",
                    ) from None
        raise AssertionError

    def _clean(self) -> int:
        try:
            return CleanMark.read(self.storage.folder.clean).lsn
        except (FileNotFoundError, Damage):
            return 0

    def _look(self, number: int) -> None:
        known = self._known.get(number)
        if known is not None and known.closed and known.inode == self.storage.segments()[number]:
            return
        path = self.storage.path(number)
        with closing(self.storage.open(number)) as file:
            if known is None or known.inode != file.inode:
                raw = file.read(0, WAL_HEAD_BYTES)
                if not any(raw):
                    return  # being prepared
                head = Head.decode(raw, path, WAL)
                segment = Segment(number, path, head.base_lsn, head.epoch, head.base_lsn)
                segment.sealed = bool(head.flags & SEALED)
                segment.gaps = bool(head.flags & (SALVAGED | SEALED))
                known = _Known(segment, file.inode, head.prev_lsn, False)
            if self._take_index(known, file.size) or self._walk(known, file):
                self._known[number] = known

    def _take_index(self, known: _Known, size: int) -> bool:
        """A closed segment needs no walk; its index fits when the file ends where it says."""
        segment = known.segment
        try:
            self.storage.fetch_index(segment.number)
            head, _ = read_sealed(self.storage.folder.time_index(segment.number), TIME_INDEX)
            if segment.base_lsn not in (0, head.base_lsn):
                return False
            found = Segment(segment.number, segment.path, head.base_lsn, segment.epoch, head.base_lsn)
            found.read_time_index(self.storage.folder)
        except (FileNotFoundError, Damage):
            return False
        if found.end != size:
            return False  # of what the segment was before it was rewritten
        found.sealed, found.gaps = segment.sealed, segment.gaps
        known.segment = found
        known.closed = True
        known.synced_lsn = found.next_lsn - 1
        return True

    def _walk(self, known: _Known, file: SegmentFile) -> bool:
        """Walk over what is new; False: there is nothing in it yet."""
        segment = known.segment
        want, size = _STEP_BYTES, file.size
        while segment.end < size:
            length = min(want, size - segment.end)
            if file.fill(self._scanner, length, segment.end) < 96:
                break
            if not segment.base_lsn:
                (segment.base_lsn,) = struct.unpack("<Q", self._scanner.bytes_at(_BASE_LSN_AT, 8))
                segment.next_lsn = segment.base_lsn
            start, latest = segment.end, segment.max_ts

            def mark(lsn: int, offset: int, time_ms: int, start: int = start, latest: int = latest) -> None:
                marks = segment.marks
                assert marks is not None
                if not marks.offsets or start + offset - marks.offsets[-1] >= MARK_BYTES:
                    marks.add(lsn, start + offset, max(time_ms, latest))

            found = self._scanner.scan(
                0,
                segment.next_lsn,
                segment.epoch,
                base=segment.base_lsn,
                gaps=segment.gaps,
                on_state=self._on_state,
                push=False,
                sparse=mark,
            )
            if found.batches:
                segment.end += found.end
                segment.next_lsn = found.next_lsn
                segment.min_ts = segment.min_ts or found.min_ts
                segment.max_ts = max(segment.max_ts, found.max_ts)
                known.synced_lsn = max(known.synced_lsn, found.synced_lsn)
                want = _STEP_BYTES
            elif found.reason is not None and length < size - segment.end:
                want *= 4  # a batch, or an atomic unit, larger than what was read
            else:
                break  # the end, or a write that is under way
        if segment.next_lsn == segment.base_lsn:
            if not known.prev_lsn:
                segment.base_lsn = segment.next_lsn = 0
            return known.prev_lsn > 0
        return True

    # Vhosts

    def vhosts(self) -> dict[int, bytes]:
        """The vhosts' names by log partition. Reads the newest checkpoint, and what was written since."""
        told = self.storage.vhosts()
        if told is not None:
            return told
        manifest = self._manifest()
        for lsn in manifest.checkpoints:
            try:
                where = read_checkpoint(self.storage.folder.checkpoint(lsn), self._on_state)
            except (FileNotFoundError, Damage):
                continue
            self._states_from = max(self._states_from, where.segment)
            break
        for number, known in sorted(self._known.items()):
            if number >= self._states_from and known.closed and not known.segment.sealed:
                with closing(self.storage.open(number)) as file:
                    file.fill(self._scanner, known.segment.end - WAL_HEAD_BYTES, WAL_HEAD_BYTES)
                segment = known.segment
                self._scanner.scan(
                    0,
                    segment.base_lsn,
                    segment.epoch,
                    base=segment.base_lsn,
                    gaps=True,
                    on_state=self._on_state,
                    push=False,
                )
                self._states_from = number + 1
        return dict(self._vhosts)

    def _on_state(self, block: bytes, value: bytes | None) -> None:
        table, key = split_key(block)
        if table == _LP_TABLE and value is not None:
            self._vhosts[int.from_bytes(key, "big")] = bytes(value)

    # Positions

    @property
    def _segments(self) -> list[_Known]:
        return [self._known[number] for number in sorted(self._known)]

    @property
    def first(self) -> int:
        """The LSN that the oldest segment begins with."""
        segments = self._segments
        return segments[0].segment.base_lsn if segments else 1

    @property
    def complete_from(self) -> int:
        """From this LSN on everything that was published is there; below it only what some queue needs."""
        complete, at = self.first, 0
        for known in self._segments:
            if at < self._begins(known):  # those between, which nobody needed, were deleted
                complete = known.segment.base_lsn
            if known.segment.sealed:
                complete = known.segment.next_lsn
            at = known.segment.next_lsn
        return complete

    @staticmethod
    def _begins(known: _Known) -> int:
        """The LSN behind the last one of the segment before it."""
        # LSNs jump after an unclean stop: those between the last LSN and the first of the new file were
        # never used.
        segment = known.segment
        return min(known.prev_lsn + 1, segment.base_lsn) if known.prev_lsn else segment.base_lsn

    def end(self, *, written: bool = False) -> int:
        """The LSN behind the last readable record; see the module."""
        segments = self._segments
        if not segments:
            return 1
        end = segments[-1].segment.next_lsn
        if written:
            return end
        synced = max(self._clean_lsn, *(max(known.synced_lsn, known.prev_lsn) for known in segments))
        return min(end, synced + 1)

    def loss_between(self, first: int, last: int) -> list[tuple[int, int]]:
        """Ranges [from, to) within [first, last) that are in no segment although they were written."""
        missing = []
        at = first
        for known in self._segments:
            begin = self._begins(known)
            if at < min(begin, last):
                missing.append((at, min(begin, last)))
            at = max(at, known.segment.next_lsn)
            if at >= last:
                break
        return missing

    def parts(self, first: int, last: int, split_bytes: int) -> list[Part]:
        """Where [first, last) lies, in log order, in parts of about `split_bytes` at most."""
        found: list[Part] = []
        for known in self._segments:
            segment = known.segment
            if segment.next_lsn <= first or segment.base_lsn >= last:
                continue
            begin, end = max(first, segment.base_lsn), min(last, segment.next_lsn)
            marks = segment.marks
            assert marks is not None
            start = marks.offset_of(begin)
            low = bisect_right(marks.lsns, begin)
            for index in range(low, len(marks.lsns)):
                lsn, offset = marks.lsns[index], marks.offsets[index]
                if lsn >= end:
                    break
                if offset - start >= split_bytes:
                    found.append(LogPart(segment.number, begin, lsn, start, offset - start))
                    begin, start = lsn, offset
            behind = bisect_right(marks.lsns, end - 1)
            stop = marks.offsets[behind] if behind < len(marks.offsets) else segment.end
            found.append(LogPart(segment.number, begin, end, start, max(stop - start, 0)))
        return found

    def closed(self) -> list[tuple[int, int, int]]:
        """The closed segments, oldest first: the first LSN, the one behind the last, and the time of the
        youngest record (ms). Segments that are not known to be durable are not among them.
        """
        end = self.end()
        return [
            (known.segment.base_lsn, known.segment.next_lsn, known.segment.max_ts)
            for known in self._segments
            if known.closed and known.segment.next_lsn <= end
        ]

    def before_time(self, time_ms: int) -> int | None:
        """An LSN at or before the first record not older than `time_ms`, at most about 64 KiB before it.

        None: no record is that young.
        """
        for known in self._segments:
            segment = known.segment
            if segment.max_ts >= time_ms:
                marks = segment.marks
                assert marks is not None
                offset = marks.offset_of_time(time_ms)
                at = bisect_right(marks.offsets, offset) - 1
                return marks.lsns[at] if at >= 0 else segment.base_lsn
        return None
