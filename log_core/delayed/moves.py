"""Moves delayed records forward, so that a record due late does not hold old segments.

Segments are deleted from the oldest on. If only delayed records hold the oldest segments, and most of
their content is something else, the records of the first one are appended again, with their time and
place. The segment can go when the copies are durable. Until then a moved record has two copies with the
same key, and only the newer one is taken.

At least half of the held data must be unneeded before anything is moved. So moving writes no more than
passes through the log anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.log_core.delayed._delays import ENTRY_BYTES, Key, decode_entry

if TYPE_CHECKING:
    from penstock.log_core.delayed.delays import Delays
    from penstock.log_core.log import Log
    from penstock.log_core.reading.reader import Fetched
    from penstock.log_core.segments.segment import Segment

__all__ = ["Mover"]

_HELD_SEGMENTS: Final = 4
"""So many segments' bytes may be held without a second thought."""
_CHUNK: Final = 512
"""Records moved in one go (about 2 ms)."""

Entry = tuple[int, int, int, int]
"""(due, place, LSN, bytes)."""


class Mover:
    """Moves the records of one segment at a time. Loop thread only."""

    def __init__(self, log: Log, delays: Delays) -> None:
        self._log = log
        self._delays = delays
        self._moving: Segment | None = None
        self._at: Key = (0, 0)
        self._again: Callable[[], None] | None = None
        """Moves that the disk did not answer; done again at the next look."""
        self._left: Segment | None = None
        """The last one of which something could not be moved, since it is damaged."""
        self._ended = False
        self.moved = 0
        """Records that were moved, ever."""

    def end(self) -> None:
        """Append nothing any more: the log closes."""
        self._ended = True

    def look(self, held: Sequence[Segment]) -> None:
        """Begin to move when that is worth it; `held`: the oldest segments, kept by delayed records alone."""
        if self._again is not None:
            again, self._again = self._again, None
            again()
        if self._moving is not None or not held:
            return
        size = sum(segment.end for segment in held)
        waiting = sum(segment.delayed_bytes for segment in held)
        if size <= max(_HELD_SEGMENTS * self._log.options.segment_bytes, 2 * waiting):
            return
        # One whose records were moved may still be there, until that is durable.
        full = next((segment for segment in held if segment.delayed_last > self._delays.mark), None)
        if full is not None and full is not self._left:
            self.move(full)

    def move(self, segment: Segment) -> None:
        """Append what waits in a closed and indexed segment again. Only while no other is being moved."""
        self._moving = segment
        self._at = self._delays.mark
        self._fetch(self._delays.late_in(segment))

    def _fetch(self, entries: list[Entry]) -> None:
        if self._ended:
            return
        segment = self._moving
        assert segment is not None
        wants = [(segment, lsn) for _, _, lsn, _ in entries if segment.base_lsn <= lsn < segment.next_lsn]

        def fetched(found: Fetched) -> None:
            if found.unanswered:
                self._again = lambda: self._fetch(entries)
            else:
                self._append(entries, found)

        self._log.reader.fetch(wants, fetched)

    def _append(self, entries: list[Entry], found: Fetched) -> None:
        log, segment = self._log, self._moving
        assert segment is not None
        if log.failed is not None or self._ended:
            return
        with log.unit():
            for due, place, lsn, size in entries:
                # A late one is listed in the segment that was open at the start, wherever it is.
                elsewhere = not segment.base_lsn <= lsn < segment.next_lsn
                if elsewhere or not self._delays.waits_at((due, place), lsn):
                    continue
                key, record = found.records.get(lsn, (None, None))
                if record is None or key != (due, place):
                    self._left = segment  # it stays where it is; said when it is due
                    continue
                self._delays.moved(segment, due, place, size, record)
                self.moved += 1
        log.flush()
        self._go_on()

    def _go_on(self) -> None:
        assert self._moving is not None
        self._log.reader.read_due([(self._moving, self._at)], _CHUNK, self._read)

    def _read(self, found: list[bytes] | None) -> None:
        segment = self._moving
        assert segment is not None
        if found is None:
            self._again = self._go_on
            return
        raw = found[0]
        if not raw:
            self._moving = None
            if self._left is not segment:
                self._delays.emptied(segment)
            return
        entries = [decode_entry(raw, i) for i in range(len(raw) // ENTRY_BYTES)]
        self._at = entries[-1][:2]
        self._fetch(entries)
