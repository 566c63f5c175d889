"""Delayed records: they are in the log, and in no feed until their time.

A delayed record is appended, and confirmed, like any other, with the time when it is due. This module
knows which of them wait. The layer above publishes due records: `take` returns them, and the publish and
`done` are one atomic unit of the log. So no record is lost and none comes twice.

Where the entries are (`_delays` has their order):

    the segment being written, and closed ones until their index is durable    a heap each, in memory
    closed segments                                                            sorted, in their .tix files
    the next entries of all files together, up to `_horizon`                   the heap `_near`

A thread refills `_near`. So the segment size and the refill bound the memory, not the number of records.

Progress is one row, the mark: every entry up to its key was taken. Three kinds of record have a row of
their own: a record that was scheduled before the mark, because the clock was set back; a cancelled one;
and one that is due and cannot be read now (`retries`). A damaged record counts as lost, and is reported
with the other damage of the log.

Times are wall-clock milliseconds. If the clock is set forward, records in between become due. If it is set
back, records wait longer. None is ever early by the clock of the machine.

    table delay            key "mark"               due i64 | place u64
    table delay.late       key place u64 big-endian due i64 | LSN u64 | bytes u32
    table delay.cancelled  key place u64 big-endian due i64
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import Record
from penstock.log_core.delayed._delays import (
    ENTRY_BYTES,
    DueHeap,
    Key,
    count_by,
    decode_entry,
    total_size,
)
from penstock.log_core.delayed.moves import Mover
from penstock.log_core.delayed.retries import DelayedRetries

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.log_core.reading.reader import Fetched
    from penstock.log_core.segments.segment import Segment

__all__ = ["Delays", "DueRecord"]

_LOG: Final = logging.getLogger("penstock.log")
_TABLE: Final = "delay"
_LATE: Final = "delay.late"
_CANCELLED: Final = "delay.cancelled"
_MARK: Final = b"mark"
_KEY: Final = struct.Struct("<qQ")
_PLACE: Final = struct.Struct("<qQI")
_FIRST: Final[Key] = (-(2**63), 0)
_LAST: Final[Key] = (2**63 - 1, 2**64 - 1)
_IN_PROGRESS: Final = 2**64 - 1
"""The LSN of a late record that is under way: no copy of it has it."""
_REFILL: Final = 65536
"""Entries that a refill brings, from all files together."""
_AHEAD: Final = 8
"""How much more than asked for is read at once."""
_REFILL_EACH: Final = 64
"""The least that it reads of one file."""


Found = Callable[[Record | None, bool], object]
"""Gets a record, None: there is none that waits; and whether the disk answered."""


@dataclass(slots=True)
class DueRecord:
    """A record whose time has come."""

    due: int
    place: int
    """The LSN at which it was scheduled."""
    lsn: int
    size: int
    record: Record | None = None
    """None: it was cancelled, it could not be read, or it is damaged."""
    cancelled: bool = False
    unreadable: bool = False
    """The disk did not answer for it: `done` has it wait and be given again."""
    published: bool = False
    """It was published, by whoever took it: it must not be again, though it is given until `done` is."""


class Delays:
    """All that wait in one log. Loop thread only."""

    def __init__(self, log: Log) -> None:
        """For Log only, when it has recovered; `restore` follows."""
        self._log = log
        self._active = DueHeap()
        self._active_last: Key = (0, 0)
        self._near = DueHeap()
        self._mark: Key = (0, 0)
        self._floor: Key = (0, 0)
        """The highest key taken: `_mark` and what is under way."""
        self._horizon: Key = (0, 0)
        """All entries of index files up to it were read."""
        self._stored: dict[Segment, None] = {}
        """Closed segments whose index file has entries behind the horizon."""
        self._held: dict[Segment, None] = {}
        """Closed segments whose entries are in memory."""
        self._late: dict[int, int] = {}
        """Place -> LSN of the records that are below the mark and wait nevertheless."""
        self._cancelled: set[int] = set()
        self._under_way: list[DueRecord] = []
        self._missing = False
        self._refilling = False
        self._indexed: list[Segment] = []
        """Closed segments whose index file became durable during a refill."""
        self._on_ready: Callable[[], None] = lambda: None
        self._now_ms = 0
        """When `take` was called last."""
        self._low = self._candidate = self._candidate_lsn = 0
        self.mover = Mover(log, self)
        """Keeps few records from holding much log."""
        self.retries = DelayedRetries()
        """Records that are due and could not be read yet."""
        self.lost = 0
        """Records that were due and are damaged."""
        self._active_bytes = 0
        self.waiting = 0
        """Records that wait; after a start with cancelled ones or after a crash, at most that many."""

    def restore(self, segments: list[Segment]) -> None:
        """Take over what a start found in the log's segments and tables."""
        tables = self._log.tables
        mark = tables.get(_TABLE, _MARK)
        if mark is not None:
            self._mark = _KEY.unpack(mark)
        self._floor = self._horizon = self._mark
        self._cancelled = {int.from_bytes(key, "big") for key in tables.keys(_CANCELLED)}
        for key, value in tables.items(_LATE):
            due, lsn, size = _PLACE.unpack(value)
            place = int.from_bytes(key, "big")
            self._late[place] = lsn
            self._active.push(due, place, lsn, size)
        for segment in segments:
            if segment.waiting is not None:
                last = segment.waiting.last() or (0, 0)
                held = DueHeap()
                held.push_between(segment.waiting.encode(), *self._mark, *_LAST)
                segment.delayed_bytes = total_size(held.encode())
                segment.waiting = held if len(held) else None
                segment.entries = held.encode()
                segment.delayed_last = last
                self._held[segment] = None
            elif segment.delayed_last > self._mark:
                self._stored[segment] = None
        self.waiting = len(self._active) + sum(
            segment.delayed if segment.waiting is None else len(segment.waiting)
            for segment in (*self._stored, *self._held)
        )
        self.waiting -= len(self._cancelled)

    # Scheduling

    def add(
        self,
        due_ms: int,
        key: bytes,
        props: bytes,
        body: bytes,
        *,
        flags: int = 0,
        priority: int = 0,
        enc: int = 0,
        ttl_ms: int = 0,
    ) -> int:
        """Append a record that is due at `due_ms`, ms since the epoch. Returns its LSN, which is its place.

        Wait for that LSN as for any other. Raises ValueError as `Appender.append_record` does.
        """
        log = self._log
        size = len(key) + len(props) + len(body)
        place = log.appender.next_lsn
        if (due_ms, place) > self._floor:
            log.appender.append_delayed(due_ms, 0, key, props, body, flags, priority, enc, ttl_ms)
        else:
            with log.unit():
                log.appender.append_delayed(due_ms, 0, key, props, body, flags, priority, enc, ttl_ms)
                log.tables.put(_LATE, _row(place), _PLACE.pack(due_ms, place, size))
            self._late[place] = place
        self._active.push(due_ms, place, place, size)
        self._active_last = max(self._active_last, (due_ms, place))
        self._active_bytes += size
        self.waiting += 1
        return place

    def cancel(self, due_ms: int, place: int) -> bool:
        """Have a record that was scheduled never come; False when it does not wait any more.

        It is so after a crash too when the next flush is durable.
        """
        if not self._waits(due_ms, place):
            return False
        for one in self._under_way:
            if (one.due, one.place) == (due_ms, place):
                one.cancelled, one.unreadable, one.record = True, False, None
        self._log.tables.put(_CANCELLED, _row(place), due_ms.to_bytes(8, "little", signed=True))
        self._cancelled.add(place)
        self.waiting -= 1
        return True

    def _waits(self, due_ms: int, place: int) -> bool:
        """Whether a record that was scheduled waits; of others it says nothing."""
        if place in self._cancelled:
            return False
        for one in self._under_way:
            if (one.due, one.place) == (due_ms, place):
                return not one.published
        late = self._late.get(place)
        return late != _IN_PROGRESS if late is not None else (due_ms, place) > self._floor

    def find(self, due_ms: int, place: int, done: Found) -> None:
        """Look for a record that waits, and read it; `done` is called now or later, on the loop.

        A record that is not in memory is looked for in index files, by a thread; it may have come meanwhile,
        which `cancel` knows.
        """
        if not self._waits(due_ms, place):
            done(None, True)
            return
        key = (due_ms, place)
        heaps = [*self._heaps(), self.retries.heap]
        found = [one.lsn for one in self._under_way if (one.due, one.place) == key]
        found += filter(None, (heap.find(*key) for heap in heaps))
        if found:
            self._read_found(key, max(found), done)
        elif place in self._late or key <= self._horizon or not self._stored:
            done(None, True)
        else:

            def looked(lsn: int | None) -> None:
                if lsn:
                    self._read_found(key, lsn, done)
                else:
                    done(None, lsn is not None)

            self._log.reader.find_entry(list(self._stored), key, looked)

    def _read_found(self, key: Key, lsn: int, done: Found) -> None:
        record, segment = self.in_memory(key, lsn), self._log.segment_of(lsn)
        if record is not None or segment is None:
            done(record, True)
            return

        def fetched(found: Fetched) -> None:
            due, record = found.records.get(lsn, (None, None))
            done(record if due == key else None, lsn not in found.unanswered)

        self._log.reader.fetch([(segment, lsn)], fetched)

    # Listing: called by `listing`

    @property
    def floor(self) -> Key:
        """The highest key taken; what is below and waits is in memory."""
        return self._floor

    def entries_to_list(self, behind: Key, count: int) -> tuple[bytes, list[Segment]]:
        """The next `count` entries behind a key in each heap, encoded, and the segments whose index has more;
        some are in both, or do not wait any more (`is_listed`)."""
        heaps = (*self._heaps(), self.retries.heap)
        return b"".join(heap.first_behind(*behind, count) for heap in heaps), list(self._stored)

    def is_listed(self, key: Key, lsn: int) -> bool:
        """Whether a record waits, this copy of it is no old one, and it is not being published."""
        return key[1] not in self._cancelled and self.waits_at(key, lsn)

    def count_by(self, raw: bytes, step_ms: int) -> dict[int, int]:
        """Of entries in order, how many wait, by the beginning of each span of `step_ms`."""
        found: dict[int, int] = {}
        total, at = len(raw) // ENTRY_BYTES, 0
        before: Key | None = None
        while at < total:
            due, place, lsn, _ = decode_entry(raw, at)
            if (due, place) > self._floor:
                break
            # Few: those below the mark that wait nevertheless.
            if (due, place) != before and self.is_listed((due, place), lsn):
                before = due, place
                found[due // step_ms * step_ms] = found.get(due // step_ms * step_ms, 0) + 1
            at += 1
        for beginning, count in count_by(memoryview(raw)[at * ENTRY_BYTES :], step_ms, self._cancelled):
            found[beginning] = found.get(beginning, 0) + count
        return found

    # Due records

    @property
    def reading(self) -> bool:
        """Whether something is being read from disk so that `take` can go on."""
        return self._missing or self._refilling

    def next_due(self) -> int | None:
        """When the next one is due, or when there is something to do to know it; None: nothing waits."""
        if self._under_way:
            return self._under_way[0].due
        heap = self._first_heap()
        first = None if heap is None else heap.first()
        again = self.retries.again
        if self._stored and (first is None or first > self._horizon) and not self.retries.full:
            return 0
        if again is not None and (first is None or self.retries.full or again < first[0]):
            return again
        return None if first is None else first[0]

    def _first_heap(self) -> DueHeap | None:
        found: DueHeap | None = None
        first: Key = _LAST
        for heap in self._heaps():
            key = heap.first()
            if key is not None and key < first:
                found, first = heap, key
        return found

    def _heaps(self) -> list[DueHeap]:
        held = [segment.waiting for segment in self._held if segment.waiting is not None]
        return [self._active, self._near, *held]

    def _try_again(self, now_ms: int) -> None:
        """Have those that were put aside among the first that are due, when it is time to."""
        self._active.push_between(self.retries.take(now_ms), *_FIRST, *_LAST)

    def take(self, now_ms: int, count: int, nbytes: int, ready: Callable[[], None]) -> list[DueRecord]:
        """The next records that are due, in order, at most `count` and about `nbytes` of them; more are read.

        Publish them, note that in each, and call `done` inside one unit; until then they are given again.
        Empty: nothing is due by `next_due`, or something must be read first: then `ready` is called when it
        is there. If it cannot be read now, ask again in a while.
        """
        self._on_ready = ready
        first = self._under_way[0] if self._under_way else None
        if first is not None and not self._missing and first.due > now_ms and not first.published:
            self._give_back()
        self._now_ms = now_ms
        self._try_again(now_ms)
        if not self._under_way and not self.retries.full:
            self._gather(now_ms, _AHEAD * count, _AHEAD * nbytes, ready)
        if self._missing:
            return []
        records: list[DueRecord] = []
        for one in self._under_way[:count]:
            if one.due > now_ms:
                break
            records.append(one)
            nbytes -= one.size
            if nbytes <= 0:
                break
        return records

    def _gather(self, now_ms: int, count: int, nbytes: int, ready: Callable[[], None]) -> None:
        """Have the next ones under way. Records on the disk are read in the order in which they lie there."""
        records: list[DueRecord] = []
        while len(records) < count and nbytes > 0:
            heap = self._first_heap()
            first = None if heap is None else heap.first()
            if self._stored and (first is None or first > self._horizon):
                self._refill()
                break
            if heap is None or first is None or first[0] > now_ms:
                break
            due, place, lsn, size = heap.pop()
            if lsn > self._log.written_lsn:
                heap.push(due, place, lsn, size)
                self._log.when_written(lsn, lambda ok: ready())
                break
            if not self.waits_at(first, lsn):
                continue  # the old copy of one that was moved
            if place in self._late:
                self._late[place] = _IN_PROGRESS
            self._floor = max(self._floor, first)
            records.append(DueRecord(due, place, lsn, size, cancelled=place in self._cancelled))
            nbytes -= size
        self._under_way = records
        wants = []
        for one in records:
            if one.cancelled or self._read(one):
                continue
            segment = self._log.segment_of(one.lsn)
            if segment is not None:
                wants.append((segment, one.lsn))
        if wants:
            self._missing = True
            self._log.reader.fetch(wants, self._fetched)

    def _give_back(self) -> None:
        """The clock was set back before these were published: they wait again."""
        for one in self._under_way:
            self._active.push(one.due, one.place, one.lsn, one.size)
            if one.place in self._late:
                self._late[one.place] = one.lsn
        self._under_way = []
        self._floor = self._mark

    def _read(self, one: DueRecord) -> bool:
        """Take a record from memory, if it is there."""
        one.record = self.in_memory((one.due, one.place), one.lsn)
        return one.record is not None

    def in_memory(self, key: Key, lsn: int) -> Record | None:
        """The record with this key, if its batch is in the cache."""
        batch = self._log.cache.get(lsn)
        if batch is None or batch.delay_of(lsn - batch.base_lsn) != key:
            return None
        return batch.record(lsn - batch.base_lsn)

    def _fetched(self, found: Fetched) -> None:
        for one in self._under_way:
            if one.record is None and not one.cancelled:
                key, record = found.records.get(one.lsn, (None, None))
                one.record = record if key == (one.due, one.place) else None
                one.unreadable = one.lsn in found.unanswered
        self._missing = False
        self._on_ready()

    def done(self, records: list[DueRecord]) -> None:
        """The records that `take` gave were published: part of the same atomic unit.

        If it raises, the same are given again, and it is to be called again: the rows, which may fail, come
        before what is only known here.
        """
        tables = self._log.tables
        mark = max([self._mark, *((one.due, one.place) for one in records)])
        for one in records:
            if one.unreadable:
                tables.put(_LATE, _row(one.place), _PLACE.pack(one.due, one.lsn, one.size))
                continue
            if one.place in self._late:
                tables.delete(_LATE, _row(one.place))
            if one.cancelled:
                tables.delete(_CANCELLED, _row(one.place))
        if mark > self._mark:
            tables.put(_TABLE, _MARK, _KEY.pack(*mark))
        self._mark = mark
        for one in records:
            if one.unreadable:
                self._late[one.place] = one.lsn
                self.retries.add(one.due, one.place, one.lsn, one.size, self._now_ms)
            else:
                self._end(one)
        lost = [one.lsn for one in records if one.record is None and not (one.unreadable or one.cancelled)]
        if lost:
            self.lost += len(lost)
            _LOG.error("%d delayed records are damaged, at LSN %d and on: they are lost", len(lost), lost[0])
        del self._under_way[: len(records)]

    def _end(self, one: DueRecord) -> None:
        """It waits no more: it was published, cancelled, or is lost."""
        self.retries.came(one.place)
        self._late.pop(one.place, None)
        if one.cancelled:
            self._cancelled.discard(one.place)
        else:
            self.waiting -= 1
        segment = self._log.segment_of(one.lsn)
        if segment is not None and segment.delayed_last != (0, 0):
            segment.delayed_bytes -= one.size
        else:
            self._active_bytes -= one.size

    # Refills

    def _refill(self) -> None:
        if self._refilling:
            return
        self._refilling = True
        wanted = list(self._stored)
        count = max(_REFILL // len(wanted), _REFILL_EACH)

        def done(found: list[bytes] | None) -> None:
            self._refilling = False
            if found is None:
                return  # asked again in a while
            self._refilled(wanted, found)
            indexed, self._indexed = self._indexed, []
            for segment in indexed:
                self.indexed(segment)
            self._on_ready()

        self._log.reader.read_due([(segment, self._horizon) for segment in wanted], count, done)

    def _refilled(self, wanted: list[Segment], found: list[bytes]) -> None:
        """Up to the least of the last keys read of the files that go on, everything is known."""
        lasts = [decode_entry(raw[-ENTRY_BYTES:], 0)[:2] if raw else (0, 0) for raw in found]
        ends = [not raw or last >= s.delayed_last for s, raw, last in zip(wanted, found, lasts, strict=True)]
        going_on = [last for last, ended in zip(lasts, ends, strict=True) if not ended]
        horizon = min(going_on) if going_on else max(*lasts, self._horizon)
        for segment, raw, last, ended in zip(wanted, found, lasts, ends, strict=True):
            self._near.push_between(raw, *self._horizon, *horizon)
            if ended and last <= horizon:
                self._stored.pop(segment, None)
        self._horizon = horizon

    # Segments: called by Log

    def closed(self, segment: Segment) -> None:
        """The segment being written was closed; what is scheduled from now on is in the next one."""
        self._held[segment] = None
        segment.waiting = self._active
        under_way = DueHeap()
        for one in self._under_way:
            under_way.push(one.due, one.place, one.lsn, one.size)
        segment.entries = self._active.encode() + under_way.encode()
        segment.delayed_last = self._active_last
        segment.delayed_bytes = max(self._active_bytes, 0)
        self._active = DueHeap()
        self._active_last = (0, 0)
        self._active_bytes = 0

    def indexed(self, segment: Segment) -> None:
        """The index file of a closed segment is durable: its entries need not be in memory."""
        if segment not in self._held:
            return
        if self._refilling:
            self._indexed.append(segment)
            return
        del self._held[segment]
        if segment.waiting is not None:
            self._near.push_between(segment.waiting.encode(), *_FIRST, *self._horizon)
            segment.waiting, segment.entries = None, b""
        if segment.delayed and segment.delayed_last > self._horizon:
            self._stored[segment] = None

    # Moving: called by Mover

    @property
    def mark(self) -> Key:
        """Up to it everything was published, but what is late."""
        return self._mark

    def waits_at(self, key: Key, lsn: int) -> bool:
        """Whether a record waits, and this copy of it is not known to be an old one."""
        late = self._late.get(key[1])
        return key > self._floor if late is None else late == lsn

    def late_in(self, segment: Segment) -> list[tuple[int, int, int, int]]:
        """The entries of the records in a segment that have a row of their own."""
        found = []
        for place, lsn in self._late.items():
            if segment.base_lsn <= lsn < segment.next_lsn:
                row = self._log.tables.get(_LATE, _row(place))
                assert row is not None
                due, _, size = _PLACE.unpack(row)
                found.append((due, place, lsn, size))
        return found

    def moved(self, segment: Segment, due: int, place: int, size: int, record: Record) -> None:
        """Append a record of `segment` that waits once more; inside a unit."""
        log = self._log
        lsn = log.appender.append_delayed(
            due,
            place,
            record.key,
            record.props,
            record.body,
            record.flags,
            record.priority,
            record.enc,
            record.ttl,
        )
        if place in self._late:
            self._late[place] = lsn
            log.tables.put(_LATE, _row(place), _PLACE.pack(due, lsn, size))
        self._active.push(due, place, lsn, size)
        self._active_last = max(self._active_last, (due, place))
        self._active_bytes += size
        segment.delayed_bytes -= size

    def emptied(self, segment: Segment) -> None:
        """Nothing in a segment waits any more that is not elsewhere too."""
        segment.delayed_last = (0, 0)
        self._stored.pop(segment, None)

    # The part of the log that is needed

    def low_water(self, live: Sequence[Segment]) -> int:
        """No LSN below it is of a record that waits; `live` are the log's segments, the active one last.

        It follows what was taken only when that is durable: a crash may undo it.
        """
        log = self._log
        if log.synced_lsn >= self._candidate_lsn:
            self._low = self._candidate
            self._candidate_lsn = log.appender.next_lsn - 1
            self._candidate = min(self._needed(live), log.appender.next_lsn)
        return self._low

    def waits_in(self, segment: Segment) -> bool:
        """Whether a delayed record of a closed segment may wait, or may wait again after a crash."""
        return segment.delayed_last != (0, 0) and segment.next_lsn > self._low

    def _needed(self, live: Sequence[Segment]) -> int:
        needed = [one.lsn for one in self._under_way]
        needed += self._late.values()
        for segment in live:
            last = self._active_last if segment is live[-1] else segment.delayed_last
            if last > self._mark:
                needed.append(segment.base_lsn)
                break
        return min(needed, default=2**64 - 1)


def _row(place: int) -> bytes:
    return place.to_bytes(8, "big")
