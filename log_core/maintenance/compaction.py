"""Key compaction: in closed segments, only the last record of each key of a stream stays.

This module finds the records that stay, and marks them for the rewrite that seals a segment (`sealing`).
Unmarked records go when the segment leaves traffic retention. Offsets do not change: readers skip those of
removed records. Until then, and in the segment being written, readers also see older values of a key. A
reader that reads to the end has seen the last value of each key.

    1  all closed segments with records of the feed are read: the last LSN of each key, and how many it has
    2  those beyond traffic retention are read again: a record stays when it is the last of its key; not when
       that is a tombstone (no body) older than a day and nothing else of the key is left

Because of the second reading the order of segments does not matter. A tombstone goes only when no older
value is left anywhere, in whatever order segments were rewritten. A feed is compacted again when as much
was written to it as it had before (Kafka's min.cleanable.dirty.ratio = 0.5). So each byte is read a
logarithmic number of times.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.log_core.files.layout import WAL_HEAD_BYTES
from penstock.log_core.maintenance._compact import KeyMap

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.log_core.segments.segment import Segment, Segments

__all__ = ["TOMBSTONES_S", "Compacted", "is_due", "survivors"]

_LOG: Final = logging.getLogger("penstock.log")

TOMBSTONES_S: Final = 86400.0
"""How long a tombstone is kept at least, so that readers see it."""
_KEYS_MAX: Final = 8_000_000
"""Keys of one feed in memory during a run, 64 bytes each at most; what has none of them stays."""
_MARKS_BYTES: Final = 8 << 20
"""Of the marks of one run; the segments beyond it come with the next one."""


class Compacted(NamedTuple):
    """The findings of a run."""

    marks: dict[int, bytes]
    """By base LSN of a segment: a bit per record, set for those of the feed that stay."""
    until: int
    """All records of the feed below this LSN were looked at; 0: the run was not complete."""


def is_due(closed: Sequence[Segment], feed: Feed, since: int) -> bool:
    """Whether as many bytes of the feed came at and behind LSN `since` as lie before it."""

    def size(segment: Segment) -> int:  # of a rewritten segment no more than it has now
        return min(segment.kept_bytes.get(feed.id, 0), segment.end)

    before = sum(size(segment) for segment in closed if segment.base_lsn < since)
    behind = sum(size(segment) for segment in closed if segment.base_lsn >= since)
    return behind > 0 and behind >= before


def survivors(
    segments: Segments, closed: Sequence[Segment], beyond: Sequence[Segment], feed: Feed, now_ms: int
) -> Compacted:
    """Find what stays in the segments `beyond`; all `closed` ones, which include them, are looked at.

    Blocks; no segment may be deleted or rewritten meanwhile. Raises OSError, ValueError (one is damaged).
    """
    keys = KeyMap(feed.id, _KEYS_MAX)
    closed = [segment for segment in closed if feed.id in segment.kept_bytes]
    for segment in closed:
        with _mapped(segments, segment) as data:
            keys.fill(data, WAL_HEAD_BYTES)
    if keys.full:
        _LOG.warning("feed %d has more than %d keys; the others are not compacted", feed.id, _KEYS_MAX)
    marks: dict[int, bytes] = {}
    room = _MARKS_BYTES
    old_ms = now_ms - int(TOMBSTONES_S * 1000)
    for segment in beyond:
        if feed.id not in segment.kept_bytes:
            continue
        room -= (segment.next_lsn - segment.base_lsn) // 8
        if room < 0:
            return Compacted(marks, 0)
        with _mapped(segments, segment) as data:
            marks[segment.base_lsn] = keys.survivors(
                data, WAL_HEAD_BYTES, segment.base_lsn, segment.next_lsn, old_ms
            )
    return Compacted(marks, closed[-1].next_lsn if closed else 0)


@contextmanager
def _mapped(segments: Segments, segment: Segment) -> Iterator[mmap.mmap]:
    with segments.swap:
        file = segment.path.open("rb")
        end = segment.end
    with file, contextlib.closing(mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ)) as data:
        yield data
