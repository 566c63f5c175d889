"""Segments: the facts about each WAL file, and the sparse index that finds an LSN or a time in it.

    index/NNNNNNNNNN.tix payload, little-endian:
    | next_lsn u64 | end u64 | min_ts i64 | max_ts i64 | marks u64 |
    | LSN u64 * marks | offset u64 * marks | time i64 * marks |
    | partition u32, flags u32, bytes u64 * partitions | entries of delayed records, 32 bytes each |

The head's flags are the number of partitions; 0 means that an older version wrote the file.

There is a mark about every 64 KiB. It says that a batch begins at that offset with that LSN, and that no
record before it in the segment is younger than that time (ms). Times need not rise, because the clock may
be set back. The entries are those of delayed records that still waited when the segment was closed, in
order (`_delays`).
"""

from __future__ import annotations

import logging
import os
import struct
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._scan import Scanner
from penstock.log_core.delayed._delays import (
    ENTRY_BYTES,
    DueHeap,
    Key,
    decode_entry,
    sorted_entries,
    total_size,
)
from penstock.log_core.errors import Damage
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import (
    HEAD_BYTES,
    TIME_INDEX,
    WAL_HEAD_BYTES,
    Folder,
    Head,
    read_sealed,
    write_sealed,
)
from penstock.log_core.files.manifest import Manifest

__all__ = [
    "EVERYBODY",
    "MARK_BYTES",
    "OWN",
    "Marks",
    "Segment",
    "Segments",
    "entries_behind",
    "noted_ends",
    "scan_closed",
]

_LOG: Final = logging.getLogger("penstock.log")
MARK_BYTES: Final = 65536
_FIXED: Final = struct.Struct("<QQqqQ")
_PARTITION: Final = struct.Struct("<IIQ")
_THINNED: Final = 1

OWN: Final = 0xFFFFFFFF
"""In place of a partition: what is nobody's, which is changes of tables, notes and delayed records."""
EVERYBODY: Final = 0xFFFFFFFE
"""In place of a partition: whichever there are."""
_KEPT_MARKS: Final = 64


class Marks:
    """The sparse index of one segment."""

    def __init__(self) -> None:
        self.lsns = array("Q")
        self.offsets = array("Q")
        self.times = array("q")

    def add(self, lsn: int, offset: int, time_ms: int) -> None:
        """A batch begins at `offset` with `lsn`; nothing up to it is younger than `time_ms`."""
        self.lsns.append(lsn)
        self.offsets.append(offset)
        self.times.append(time_ms)

    def offset_of(self, lsn: int) -> int:
        """Where to begin reading to find `lsn`."""
        at = bisect_right(self.lsns, lsn) - 1
        return self.offsets[at] if at >= 0 else WAL_HEAD_BYTES

    def offset_of_time(self, time_ms: int) -> int:
        """Where to begin reading to find the first record not older than `time_ms`."""
        at = bisect_left(self.times, time_ms) - 1
        return self.offsets[at] if at >= 0 else WAL_HEAD_BYTES

    def encode(self) -> bytes:
        """The three columns, little-endian."""
        return self.lsns.tobytes() + self.offsets.tobytes() + self.times.tobytes()

    @classmethod
    def decode(cls, raw: bytes) -> Marks:
        """`encode` undone; `raw` has a multiple of 24 bytes."""
        marks = cls()
        size = len(raw) // 3
        marks.lsns.frombytes(raw[:size])
        marks.offsets.frombytes(raw[size : 2 * size])
        marks.times.frombytes(raw[2 * size :])
        return marks


@dataclass(slots=True, eq=False)
class Segment:
    """One WAL file."""

    number: int
    path: Path
    base_lsn: int
    epoch: int
    next_lsn: int
    """Behind its last record; of the active segment: behind what is written."""
    end: int = WAL_HEAD_BYTES
    """File offset behind its last batch."""
    gaps: bool = False
    """Salvaged or sealed: LSNs are missing."""
    sealed: bool = False
    """Rewritten: of the partitions it was thinned of it holds only what was still needed then."""
    held: dict[int, int] | None = field(default_factory=dict)
    """Bytes of batches by log partition; OWN: of what is nobody's. None: not known yet."""
    thinned: set[int] = field(default_factory=set)
    """The partitions whose traffic is not whole in it; EVERYBODY: those it was thinned of are not known."""
    looked_at: float = 0.0
    """When its survivors were counted last, in seconds since the epoch; 0: never."""
    looked_for: int = -1
    """The signature of what was needed then."""
    recovered: bool = False
    """Written by an earlier process: its transient records are gone from the feeds."""
    min_ts: int = 0
    max_ts: int = 0
    marks: Marks | None = field(default_factory=Marks)
    """None: on disk only."""
    feeds: list[Feed] = field(default_factory=list)
    """The feeds with entries in it."""
    kept_bytes: dict[int, int] = field(default_factory=dict)
    """Of feeds that keep everything, by id: bytes of their records in it. Known once it is indexed."""
    indexed: bool = False
    """Closed, and both index files are durable."""
    waiting: DueHeap | None = None
    """Its delayed records that wait, until they are in its index file."""
    entries: bytes = b""
    """Those that waited when it was closed, for its index file: a crash may undo what was taken since."""
    delayed: int = 0
    """Entries of delayed records in its index file."""
    delayed_at: int = 0
    """Where they begin in it."""
    delayed_bytes: int = 0
    """Of its delayed records that wait, about."""
    delayed_last: Key = (0, 0)
    """The key of the last one of its delayed records; (0, 0): it has none."""

    @property
    def is_empty(self) -> bool:
        """It has no record, but perhaps notes."""
        return self.next_lsn == self.base_lsn

    def note_written(self, lsn: int, offset: int, time_ms: int) -> None:
        """A tick was written at `offset`, beginning with `lsn`."""
        marks = self.marks
        assert marks is not None
        if time_ms > self.max_ts:
            self.max_ts = time_ms
        if not self.min_ts:
            self.min_ts = time_ms
        if not marks.offsets or offset - marks.offsets[-1] >= MARK_BYTES:
            marks.add(lsn, offset, self.max_ts)

    def write_time_index(self, files: Files, folder: Folder, log_id: bytes) -> None:
        """Make the .tix file."""
        assert self.marks is not None
        payload = _FIXED.pack(self.next_lsn, self.end, self.min_ts, self.max_ts, len(self.marks.lsns))
        partitions = self._encode_partitions()
        head = Head(
            kind=TIME_INDEX,
            log_id=log_id,
            epoch=self.epoch,
            number=self.number,
            base_lsn=self.base_lsn,
            flags=len(partitions) // _PARTITION.size,
        )
        path = folder.time_index(self.number)
        payload += self.marks.encode() + partitions
        delayed = sorted_entries(self.entries)
        write_sealed(files, path, head, payload + delayed, "tix")
        self._note_delayed(HEAD_BYTES + len(payload), delayed)

    def _encode_partitions(self) -> bytes:
        if self.held is None:
            return b""
        rows = {lp: 0 for lp in (OWN, *self.thinned)} | self.held
        return b"".join(
            _PARTITION.pack(lp, _THINNED if lp in self.thinned else 0, nbytes)
            for lp, nbytes in sorted(rows.items())
        )

    def _decode_partitions(self, raw: bytes) -> None:
        rows = list(_PARTITION.iter_unpack(raw))
        self.held = {lp: nbytes for lp, _, nbytes in rows if nbytes} if rows else None
        self.thinned = {lp for lp, flags, _ in rows if flags & _THINNED}

    def _note_delayed(self, at: int, entries: bytes) -> None:
        self.delayed_at = at
        self.delayed = len(entries) // ENTRY_BYTES
        if entries:
            self.delayed_last = decode_entry(entries[-ENTRY_BYTES:], 0)[:2]

    def read_time_index(self, folder: Folder) -> None:
        """Take end, times, marks and partitions from the .tix file.

        Raises FileNotFoundError, Damage, StartError.
        """
        path = folder.time_index(self.number)
        head, payload = read_sealed(path, TIME_INDEX)
        if len(payload) < _FIXED.size:
            raise Damage(path, 0, "a sparse index too short")
        next_lsn, end, min_ts, max_ts, count = _FIXED.unpack_from(payload)
        fits = head.base_lsn == self.base_lsn and next_lsn >= head.base_lsn
        partitions_at = _FIXED.size + 24 * count
        delayed_at = partitions_at + _PARTITION.size * head.flags
        if not fits or len(payload) < delayed_at or (len(payload) - delayed_at) % ENTRY_BYTES:
            raise Damage(path, 0, "not the sparse index of its segment")
        self.next_lsn, self.end, self.min_ts, self.max_ts = next_lsn, end, min_ts, max_ts
        self.marks = Marks.decode(payload[_FIXED.size : partitions_at])
        self._decode_partitions(payload[partitions_at:delayed_at])
        self._note_delayed(HEAD_BYTES + delayed_at, payload[delayed_at:])
        self.delayed_bytes = total_size(payload[delayed_at:])


class Segments:
    """The live segments in log order, the last one active."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.live: list[Segment] = []
        self._marks: OrderedDict[int, Marks] = OrderedDict()
        self._lock = threading.Lock()
        self.swap = threading.Lock()
        """Held while a segment's file and what is known of it change together, and to open it."""

    def find(self, lsn: int) -> Segment | None:
        """The segment that holds `lsn`."""
        at = bisect_right(self.live, lsn, key=lambda segment: segment.base_lsn) - 1
        if at < 0 or lsn >= self.live[at].next_lsn:
            return None
        return self.live[at]

    def at_base(self, base_lsn: int) -> Segment | None:
        """The segment that begins with `base_lsn`."""
        at = bisect_left(self.live, base_lsn, key=lambda segment: segment.base_lsn)
        if at == len(self.live) or self.live[at].base_lsn != base_lsn:
            return None
        return self.live[at]

    def forget_marks(self, number: int) -> None:
        """The sparse index of a segment has changed."""
        with self._lock:
            self._marks.pop(number, None)

    def marks_of(self, segment: Segment) -> Marks:
        """Its sparse index, from disk when it is not in memory; for any thread. Raises OSError.

        When its file is damaged or gone, the segment is scanned: it has all that the index says.
        """
        marks = segment.marks
        if marks is not None:
            return marks
        with self._lock:
            marks = self._marks.get(segment.number)
            if marks is None:
                try:
                    payload = read_sealed(self._folder.time_index(segment.number), TIME_INDEX)[1]
                    end = _FIXED.size + 24 * _FIXED.unpack_from(payload)[4]
                    marks = Marks.decode(payload[_FIXED.size : end])
                except (FileNotFoundError, Damage) as error:
                    marks = _scanned(segment)
                    _LOG.error("%s: %s is read without it", error, segment.path)
                self._marks[segment.number] = marks
                if len(self._marks) > _KEPT_MARKS:
                    self._marks.popitem(last=False)
        return marks


def _scanned(segment: Segment) -> Marks:
    """The sparse index of a closed segment, from what it holds. Raises OSError."""
    marks = Marks()
    scan_closed(segment, sparse=marks.add)
    return marks


def scan_closed(
    segment: Segment,
    *,
    sparse: Callable[[int, int, int], object] | None = None,
    delayed: DueHeap | None = None,
) -> None:
    """Go through a closed segment, whose index cannot be read, for its places or for its delayed records.

    Reads all of it; blocks. Raises OSError.
    """
    scanner = Scanner()
    with segment.path.open("rb") as file:
        scanner.read(file.fileno(), segment.end)
    scanner.scan(
        WAL_HEAD_BYTES,
        segment.base_lsn,
        segment.epoch,
        base=segment.base_lsn,
        gaps=segment.gaps,
        push=False,
        sparse=sparse,
        delayed=delayed,
    )


def noted_ends(folder: Folder, manifest: Manifest, number: int) -> set[int]:
    """The sizes to which the log itself may have cut a segment, as MANIFEST and its sparse index say."""
    ends = {manifest.last_end} if manifest.last_segment == number else set()
    try:
        payload = read_sealed(folder.time_index(number), TIME_INDEX)[1]
    except (FileNotFoundError, Damage):
        return ends
    return ends | {_FIXED.unpack_from(payload)[1]} if len(payload) >= _FIXED.size else ends


def entries_behind(folder: Folder, segment: Segment, key: Key, count: int) -> bytes:
    """At most `count` entries of delayed records from a segment's index file, from the first behind `key` on.

    Blocks. Raises OSError, Damage: the file ends before its entries do.
    """
    path = folder.time_index(segment.number)
    with path.open("rb") as file:

        def read(index: int, n: int) -> bytes:
            at = segment.delayed_at + index * ENTRY_BYTES
            raw = os.pread(file.fileno(), n * ENTRY_BYTES, at)
            if len(raw) < n * ENTRY_BYTES:
                raise Damage(path, at + len(raw), "the file ends before its entries of delayed records")
            return raw

        low = bisect_right(range(segment.delayed), key, key=lambda i: decode_entry(read(i, 1), 0)[:2])
        return read(low, min(count, segment.delayed - low))
