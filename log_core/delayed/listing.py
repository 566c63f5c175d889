"""Looking at the records that wait, some at a time in the order of their times. Nothing changes by it.

A listing holds nothing between its calls: each begins behind the key that the one before came to. The next
entries in memory are copied on the loop; a thread reads those in index files, and puts both in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.log_core.delayed._delays import ENTRY_BYTES, Key, decode_entry

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record
    from penstock.log_core.log import Log
    from penstock.log_core.reading.reader import Fetched
    from penstock.log_core.segments.segment import Segment

__all__ = ["BEFORE_ALL", "Counted", "Listed", "count_waiting", "list_waiting"]

BEFORE_ALL: Key = (-(2**63), 0)
"""The key to begin behind."""


class Listed(NamedTuple):
    """Some of those that wait."""

    records: Sequence[tuple[Key, Record]]
    """In order, each with (when it is due, its place)."""
    next: Key | None
    """The key to go on behind; None: it was the last one."""


class Counted(NamedTuple):
    """How many of those that wait are due when."""

    counts: Mapping[int, int]
    """By the beginning of each span, in ms since the epoch."""
    next: Key | None
    """The key to go on behind; None: it was the last one."""


def count_waiting(
    log: Log, behind: Key, count: int, step_ms: int, done: Callable[[Counted | None], object]
) -> None:
    """Count the next `count` records that wait by spans of `step_ms`, by their entries: none is read.

    `done` gets the counts on the loop; None: the disk does not answer.
    """
    delays = log.delays

    def found(raw: bytes | None) -> None:
        if raw is None:
            done(None)
            return
        total = len(raw) // ENTRY_BYTES
        last = decode_entry(raw, total - 1)[:2] if total == count else None
        done(Counted(delays.count_by(raw, step_ms), last))

    raw, segments = delays.entries_to_list(behind, count)
    log.reader.first_waiting(raw, segments, max(behind, delays.floor), count, found)


def list_waiting(
    log: Log, behind: Key, count: int, nbytes: int, done: Callable[[Listed | None], object]
) -> None:
    """Read the next records that wait, at most `count` and about `nbytes` of them, at least one.

    `done` gets them on the loop; None: the disk does not answer. A record that was scheduled, cancelled or
    came meanwhile may be missing or in it, and so is one that is being published.
    """
    delays = log.delays

    def found(raw: bytes | None) -> None:
        if raw is None:
            done(None)
            return
        wanted: dict[Key, int] = {}
        last: Key | None = None
        size = 0
        total = len(raw) // ENTRY_BYTES
        for index in range(total):
            due, place, lsn, width = decode_entry(raw, index)
            key = due, place
            # The newer copy of one that was moved is the first.
            if key not in wanted and delays.is_listed(key, lsn):
                if wanted and size + width > nbytes:
                    break
                wanted[key] = lsn
                size += width
            last = key
        else:
            if total < count:
                last = None
        _read(log, wanted, last, done)

    raw, segments = delays.entries_to_list(behind, count)
    log.reader.first_waiting(raw, segments, max(behind, delays.floor), count, found)


def _read(
    log: Log, wanted: dict[Key, int], last: Key | None, done: Callable[[Listed | None], object]
) -> None:
    records: dict[Key, Record] = {}
    missing: list[tuple[Segment, int]] = []
    for key, lsn in wanted.items():
        record, segment = log.delays.in_memory(key, lsn), log.segment_of(lsn)
        if record is not None:
            records[key] = record
        elif segment is not None:
            missing.append((segment, lsn))

    def listed() -> None:
        done(Listed([(key, records[key]) for key in wanted if key in records], last))

    def fetched(found: Fetched) -> None:
        if found.unanswered:
            done(None)
            return
        for key, lsn in wanted.items():
            of, record = found.records.get(lsn, (None, None))
            if record is not None and of == key:
                records[key] = record
        listed()

    if missing:
        log.reader.fetch(missing, fetched)
    else:
        listed()
