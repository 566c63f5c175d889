"""`penstock log repair`: find what is damaged, keep copies of it, cut it out, and say exactly what is lost.

    MANIFEST, CLEAN, indexes       made anew by the next start: removed, nothing is lost
    a checkpoint                   removed; the one before it and the log have the same, where both are whole
    a feed of the past             removed; what was backfilled by it is lost
    the head of a segment          written anew; nothing is lost
    batches of a segment           cut out (`log_core.recovery.salvage`); their records are lost
    a segment that is missing      an empty one takes its place; its records are lost

Each file that is changed or removed is copied to quarantine/ first, derived ones excepted; without room for
that nothing is done. A torn end, which a start cuts off, is no damage, and left to it. Everything here can
be done again: after a crash in the middle the next run finds what is left to do.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Final

from penstock.errors import StartError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._scan import Scanner
from penstock.log_core.errors import Damage
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import Folder
from penstock.log_core.files.lock import Lock
from penstock.log_core.files.manifest import CleanMark, Manifest
from penstock.log_core.history.history import read_history, read_history_entries
from penstock.log_core.recovery.checkpoint import read_checkpoint
from penstock.log_core.recovery.salvage import Hole, hits_behind, mend, mend_head, quarantine, stand_in
from penstock.log_core.replication.position import refuse_replicated
from penstock.log_core.segments.feed_index import ROW_BYTES, read_directory, read_entries, verify_entries
from penstock.log_core.segments.segment import Segment
from penstock.log_tools.inspection import Walked, walk
from penstock.log_tools.queues import queues
from penstock.log_tools.reading import read_tables

__all__ = ["Finding", "Repair", "repair"]

_FEED_ROW: Final = 4


@dataclass(slots=True)
class Lost:
    """Records that cannot be read any more."""

    first_position: int
    last_position: int
    """Below `first_position`: it is not known which these were."""
    bytes: int
    by_queue: dict[str, int] = field(default_factory=dict)
    """Messages of each queue that it had not finished with; known for segments with a feed index."""


@dataclass(slots=True)
class Finding:
    """One thing that is damaged, and what is done about it."""

    file: str
    problem: str
    action: str
    lost: list[Lost] = field(default_factory=list)
    copy: str = ""
    """Where the copy is, once it was repaired."""


@dataclass(slots=True)
class Repair:
    """All findings."""

    applied: bool
    findings: list[Finding] = field(default_factory=list)

    @property
    def lost(self) -> list[Lost]:
        """All that is lost."""
        return [lost for finding in self.findings for lost in finding.lost]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def repair(folder: Folder, *, apply: bool, files: Files | None = None) -> Repair:
    """Find what is damaged, and with `apply` mend it.

    Raises:
        StartError: a penstock has the folder or it is a node's of a cluster (with `apply`), there is no room
            for copies, or a file is of another version; nothing more was changed.

    """
    if apply:
        refuse_replicated(folder.root)
    run = _Run(folder, files or Files(), apply)
    lock = Lock(folder.lock) if apply else None
    try:
        run.small_files()
        run.segments()
    except OSError as error:
        raise StartError.data_unusable(str(folder.root), error) from error
    finally:
        if lock is not None:
            lock.release()
    return run.report


class _Run:
    def __init__(self, folder: Folder, files: Files, apply: bool) -> None:
        self._folder = folder
        self._files = files
        self._apply = apply
        self._readers: dict[int, list[Any]] | None = None
        self.report = Repair(apply)

    # Files that can be made anew, or done without

    def small_files(self) -> None:
        folder = self._folder
        self._check(folder.manifest, Manifest.read, "removed; the next start makes it anew")
        self._check(folder.clean, CleanMark.read, "removed; the next start scans the log as after a crash")
        for path in sorted(folder.checkpoints.glob("*.ckpt")):
            action = "removed; a start uses another one and the log"
            self._check(path, lambda path: read_checkpoint(path, lambda block, value: None), action)
        for path in sorted(folder.histories.glob("*.his")):
            self._check(path, _check_history, "removed; what was backfilled by it is lost")

    def _check(self, path: Path, read: Callable[[Path], object], action: str) -> None:
        try:
            read(path)
        except FileNotFoundError:
            return
        except Damage as damage:
            self._remove(path, damage, action)

    def _remove(self, path: Path, damage: Damage, action: str, *, derived: bool = False) -> None:
        finding = Finding(str(path), str(damage), action)
        if self._apply:
            if not derived:
                finding.copy = str(quarantine(self._files, self._folder, path))
            self._files.unlink(path)
            self._files.sync_folder(path.parent)
        self.report.findings.append(finding)

    # Segments

    def segments(self) -> None:
        walked = list(walk(self._folder))
        synced = max((w.found.synced_lsn for w in walked if isinstance(w, Walked)), default=0)
        for at, one in enumerate(walked):
            later = [w for w in walked[at + 1 :] if isinstance(w, Walked)]
            before = walked[at - 1] if at else None
            if isinstance(one, Damage):
                self._head(one)
                continue
            if isinstance(before, Walked) and one.number > before.number + 1:
                self._missing(before, one)
            follows = _begins_with(later[0]) if later else 0
            rolled = any(w.found.batches for w in later)
            ends_early = bool(follows) and follows > one.found.next_lsn
            if one.is_broken and (rolled or one.valid_behind or one.found.next_lsn <= synced):
                self._batches(one, one.found.reason or "zeros where a batch was written", follows)
            elif ends_early and later[0].number == one.number + 1:
                self._batches(one, "its end is missing", follows)
            else:
                self._indexes(one)

    def _head(self, damage: Damage) -> None:
        path = damage.path
        finding = Finding(str(path), str(damage), "its head is written anew")
        scanner = _scanned(path)
        if scanner.search(4096, 1, None) is None:
            finding.action = "removed: nothing in it can be read"
            finding.lost.append(Lost(0, -1, scanner.size))
        if self._apply:
            finding.copy = str(quarantine(self._files, self._folder, path))
            number = int(path.stem)
            self._forget_indexes(number)
            if mend_head(self._files, path, scanner, self._log_id(), number) is None:
                self._files.unlink(path)
        self.report.findings.append(finding)

    def _missing(self, before: Walked, after: Walked) -> None:
        first, follows = before.found.next_lsn, _begins_with(after)
        for number in range(before.number + 1, after.number):
            path = self._folder.segment(number)
            finding = Finding(str(path), f"{path} is missing", "an empty segment takes its place")
            finding.lost.append(self._lost(number, Hole(path, 0, 0, first, follows), first))
            if self._apply:
                self._forget_indexes(number)
                epoch = before.head.epoch
                stand_in(self._files, self._folder, number, before.head.log_id, epoch, first, follows)
            self.report.findings.append(finding)
            first = follows

    def _batches(self, one: Walked, reason: str, follows: int) -> None:
        found = one.found
        scanner = _scanned(one.path)
        damage = Damage(one.path, found.end, reason, found.crc_expected, found.crc_found)
        finding = Finding(str(one.path), str(damage), "damaged batches are cut out")
        base = one.head.base_lsn or found.first_lsn or follows
        hits = hits_behind(scanner, found.end + 32, found.next_lsn, one.head.epoch)
        if self._apply:
            finding.copy = str(quarantine(self._files, self._folder, one.path))
        files = self._files if self._apply else _Nothing()
        holes = mend(files, one.path, scanner, found, hits, base, follows)
        finding.lost += [self._lost(one.number, hole, base) for hole in holes]
        if self._apply:
            self._forget_indexes(one.number)
        self.report.findings.append(finding)

    def _indexes(self, one: Walked) -> None:
        base = one.head.base_lsn if one.sealed else one.found.first_lsn
        segment = Segment(one.number, one.path, base, one.head.epoch, base)
        sparse, feeds = self._folder.time_index(one.number), self._folder.feed_index(one.number)

        def check_sparse(path: Path) -> None:
            segment.read_time_index(self._folder)
            if (segment.next_lsn, segment.end) != (one.found.next_lsn, one.found.end):
                raise Damage(path, 0, "it does not fit its segment")

        def check_feeds(path: Path) -> None:
            verify_entries(path, len(read_directory(path, base)) // ROW_BYTES)

        for path, check in ((sparse, check_sparse), (feeds, check_feeds)):
            try:
                check(path)
            except FileNotFoundError:
                continue
            except Damage as damage:
                self._remove(path, damage, "removed; the next start makes it anew", derived=True)

    def _forget_indexes(self, number: int) -> None:
        for path in (self._folder.time_index(number), self._folder.feed_index(number)):
            self._files.unlink(path)
        self._files.sync_folder(self._folder.index)

    def _log_id(self) -> bytes:
        for one in walk(self._folder):
            if isinstance(one, Walked):
                return one.head.log_id
        manifest = Manifest.read(self._folder.manifest)
        return manifest.log_id

    # Whose it was

    def _lost(self, number: int, hole: Hole, base: int) -> Lost:
        lost = Lost(hole.first_lsn, hole.next_lsn - 1, hole.length)
        counted: Counter[str] = Counter()
        try:
            for feed, positions in self._entries(number, base):
                inside = [p for p in positions if hole.first_lsn <= p < hole.next_lsn]
                for state in self._who_reads(feed) if inside else ():
                    needed = sum(
                        state.needs(p)
                        and any(m.feed == feed and m.first <= p < m.end for m in state.memberships)
                        for p in inside
                    )
                    counted[str(state)] += needed
        except (FileNotFoundError, Damage):
            return lost
        lost.by_queue = {name: count for name, count in sorted(counted.items()) if count}
        return lost

    def _entries(self, number: int, base: int) -> Iterator[tuple[int, list[int]]]:
        path = self._folder.feed_index(number)
        directory = read_directory(path, base)
        for at in range(0, len(directory), ROW_BYTES):
            feed = int.from_bytes(directory[at : at + _FEED_ROW], "little")
            raw = memoryview(read_entries(path, base, feed)).cast("I")
            yield feed, [base + (entry & 0x7FFFFFFF) for entry in raw]

    def _who_reads(self, feed: int) -> list[Any]:
        if self._readers is None:
            self._readers = {}
            for state in queues(read_tables(self._folder)[0]):
                for read in {membership.feed for membership in state.memberships}:
                    self._readers.setdefault(read, []).append(state)
        return self._readers.get(feed, [])


class _Nothing(Files):
    """For a trial: writes nothing."""

    def create(self, path: Path) -> int:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)

    def write_all(self, fd: int, data: bytes, offset: int) -> None:
        pass

    def fsync(self, fd: int) -> None:
        pass

    def rename(self, source: Path, target: Path) -> None:
        pass


def _begins_with(walked: Walked) -> int:
    """The LSN behind the end of the segment before this one; 0: this one does not say."""
    if walked.head.base_lsn:
        return walked.head.prev_lsn + 1 if walked.head.prev_lsn else 0
    return walked.found.first_lsn


def _check_history(path: Path) -> None:
    for part in read_history(path):
        read_history_entries(path, part.base)


def _scanned(path: Path) -> Scanner:
    scanner = Scanner()
    with path.open("rb") as file:
        scanner.read(file.fileno(), os.fstat(file.fileno()).st_size)
    return scanner
