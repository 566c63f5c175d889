"""`penstock log stats`: what is in a data folder, which of it is still needed, by whom, and what that holds.

Walks over the whole log once (record by record in Python) and asks
of each record which durable queue needs it. Exact as of the last record; transient queues, which exist only
in a running gateway, are not known here, nor is what a running gateway has in mind and not yet written
(cursors are written each 50 to 100 ms), nor what the retention of a stream would drop.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import DELAYED_RECORDS, NOTE, PERSISTENT, RECORDS, STATE, Record
from penstock.log_core.errors import Damage
from penstock.log_core.files.layout import SALVAGED, Folder
from penstock.log_core.files.manifest import Manifest
from penstock.log_core.state.tables import Tables
from penstock.log_tools.queues import QueueState, keeping_feeds, queues
from penstock.log_tools.reading import SegmentFile, batches, read_manifest, read_tables, segments
from penstock.router.vhost.partitions import vhosts

__all__ = ["Needed", "SegmentStats", "Stats", "stats"]

RECORD_HEADER_BYTES: Final = 32
_NEWEST: Final = "it is the newest"
_BEHIND_CHECKPOINT: Final = "its state is in no checkpoint yet"
_DELAYED: Final = "delayed messages wait in it"


@dataclass(slots=True)
class Needed:
    """The part of the log that one queue still needs."""

    vhost: str
    kind: str
    name: str
    messages: int = 0
    bytes: int = 0
    """Of their records in the log, headers included."""
    first_position: int = 0
    """0: it needs nothing."""
    first_segment: int = 0
    segments: int = 0
    """Segments with something it needs."""


@dataclass(slots=True)
class SegmentStats:
    """One segment file."""

    number: int
    bytes: int
    """Of the file up to its last batch."""
    first_position: int = 0
    last_position: int = 0
    records: int = 0
    state_changes: int = 0
    from_ms: int = 0
    to_ms: int = 0
    sealed: bool = False
    salvaged: bool = False
    needed_records: int = 0
    """Records that some queue, stream or delay needs."""
    needed_bytes: int = 0
    kept_for: list[str] = field(default_factory=list)
    """Why the file is there; empty: traffic retention alone keeps it, or nothing does."""


@dataclass(slots=True)
class Stats:
    """All of it."""

    log_id: str
    epoch: int
    last_position: int
    files_bytes: dict[str, int]
    """By folder, as the file system counts them."""
    vhosts_bytes: dict[str, int]
    """Bytes of messages in the segments, by vhost; "" = of tables, notes and delayed messages. A compressed
    block counts for the vhost of its first message."""
    rows: dict[str, int]
    """Rows by table."""
    segments: list[SegmentStats] = field(default_factory=list)
    queues: list[Needed] = field(default_factory=list)
    delayed: int = 0
    damage: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def stats(folder: Folder) -> Stats:
    """Count. Raises StartError (version), LogError (a cursor that cannot be read)."""
    manifest = read_manifest(folder)
    tables, last, damages = read_tables(folder)
    known = manifest if isinstance(manifest, Manifest) else Manifest(b"", 0, 1, [])
    rows = Counter({table: len(content) for table, content in tables.snapshot().items()})
    found = Stats(known.log_id.hex(), known.epoch, last, _file_bytes(folder), {}, dict(sorted(rows.items())))
    counting = _Counting(tables, known.checkpoints[-1] if known.checkpoints else 0, damages)
    for segment in segments(folder):
        if not isinstance(segment, Damage):
            found.segments.append(counting.segment(segment))
    for at, counted in enumerate(found.segments):
        counting.explain(counted, newest=at == len(found.segments) - 1)
    found.queues = sorted(
        (counting.needed[state.qid] for state in counting.states),
        key=lambda needed: (-needed.bytes, needed.vhost, needed.name),
    )
    found.vhosts_bytes = dict(sorted(counting.vhosts_bytes.items()))
    found.delayed = counting.delayed
    found.damage = sorted({str(damage) for damage in counting.damages})
    return found


def _file_bytes(folder: Folder) -> dict[str, int]:
    def size(path: Path) -> int:
        total = 0
        for file in path.iterdir() if path.is_dir() else ():
            try:
                total += file.stat().st_blocks * 512
            except FileNotFoundError:
                continue  # gone in the meantime
        return total

    parts = (folder.wal, folder.index, folder.checkpoints, folder.histories, folder.quarantine)
    return {path.name: size(path) for path in parts}


class _Counting:
    """Over the segments in order; knows who needs what."""

    def __init__(self, tables: Tables, checkpoint: int, damages: list[Damage]) -> None:
        self.states = list(queues(tables))
        self.needed = {s.qid: Needed(s.vhost, s.kind, s.name) for s in self.states}
        self.damages = damages
        self.delayed = 0
        self.vhosts_bytes: Counter[str] = Counter()
        self._vhosts = vhosts(tables)
        self._checkpoint = checkpoint
        self._keeping = keeping_feeds(tables)
        self._readers: dict[int, list[QueueState]] = {}
        for state in self.states:
            for feed in {membership.feed for membership in state.memberships}:
                self._readers.setdefault(feed, []).append(state)
        mark = tables.get("delay", b"mark")
        self._due_mark = (
            (int.from_bytes(mark[:8], "little", signed=True), int.from_bytes(mark[8:], "little"))
            if mark is not None
            else (-(2**63), 0)
        )
        self._late = {int.from_bytes(key, "big") for key in tables.keys("delay.late")}
        self._cancelled = {int.from_bytes(key, "big") for key in tables.keys("delay.cancelled")}
        self._waiting: dict[int, int] = {}  # place -> the segment that has it last: it may have been moved
        self._by_queue: dict[int, Counter[int]] = {}  # segment -> messages needed by queue

    def segment(self, segment: SegmentFile) -> SegmentStats:
        counted = SegmentStats(
            segment.number, 4096, sealed=segment.sealed, salvaged=bool(segment.head.flags & SALVAGED)
        )
        by_queue = self._by_queue[segment.number] = Counter()
        for found in batches(segment):
            if isinstance(found, Damage):
                self.damages.append(found)
                continue
            batch = found.batch
            if found.offset >= counted.bytes:  # else it is in the block that was counted
                name = self._vhosts.get(batch.lp, f"partition {batch.lp}") if batch.kind == RECORDS else ""
                self.vhosts_bytes[name] += found.size
            counted.bytes = found.offset + found.size
            if batch.kind == NOTE:
                continue
            counted.first_position = counted.first_position or batch.base_lsn
            counted.last_position = batch.base_lsn + batch.count - 1
            counted.from_ms = counted.from_ms or batch.base_ts
            counted.to_ms = max(counted.to_ms, batch.max_ts)
            if batch.kind == STATE:
                counted.state_changes += batch.count
                continue
            counted.records += batch.count
            for index in range(batch.count):
                record = batch.record(index)
                size = RECORD_HEADER_BYTES + len(record.key) + len(record.props) + len(record.body)
                if batch.kind == DELAYED_RECORDS:
                    needed = self._waits(batch.delay_of(index) or (0, 0), segment.number)
                else:
                    needed = self._needed_by(record, size, by_queue)
                counted.needed_records += needed
                counted.needed_bytes += size * needed
        for qid in by_queue:
            self.needed[qid].segments += 1
            self.needed[qid].first_segment = self.needed[qid].first_segment or segment.number
        return counted

    def _waits(self, due: tuple[int, int], number: int) -> bool:
        place = due[1]
        if place in self._cancelled or (due <= self._due_mark and place not in self._late):
            return False
        if place not in self._waiting:
            self.delayed += 1
        self._waiting[place] = number
        return True

    def _needed_by(self, record: Record, size: int, by_queue: Counter[int]) -> bool:
        position = record.lsn
        readers: dict[int, QueueState] = {}
        for feed in record.feeds:
            if not record.flags & PERSISTENT and feed not in self._keeping:
                continue
            for state in self._readers.get(feed, ()):
                if _belongs(state, feed, position):
                    readers[state.qid] = state
        for qid in readers:
            needed = self.needed[qid]
            needed.messages += 1
            needed.bytes += size
            needed.first_position = needed.first_position or position
            by_queue[qid] += 1
        return bool(readers)

    def explain(self, counted: SegmentStats, *, newest: bool) -> None:
        """Say why a segment is kept."""
        reasons = counted.kept_for
        if newest:
            reasons.append(_NEWEST)
        if counted.last_position > self._checkpoint:
            reasons.append(_BEHIND_CHECKPOINT)
        if counted.number in self._waiting.values():
            reasons.append(_DELAYED)
        for qid, count in self._by_queue[counted.number].most_common():
            needed = self.needed[qid]
            reasons.append(f"{needed.kind} {needed.name!r} in vhost {needed.vhost!r} needs {count} messages")


def _belongs(state: QueueState, feed: int, position: int) -> bool:
    return state.needs(position) and any(
        membership.feed == feed and membership.first <= position < membership.end
        for membership in state.memberships
    )
