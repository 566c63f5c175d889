"""The port `LogStore` as plainly as it can be said: lists in memory. The suite's second subject.

It has nothing of the embedded log: no files, no batches, no segments, other positions (steps of ten), its own
rules for losses in a crash. A test that passes here and there tests the port, and not one of the stores.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.subscriptions.log_store.port import (
    Appended,
    Bounds,
    Durability,
    FeedId,
    NewRecord,
    OutOfOrder,
    PositionGone,
    ProducerBatch,
    Replaced,
    Row,
    StoredRecord,
    StoreFailed,
)

STEP = 10


@dataclass
class Disk:
    """The state that survives the process."""

    records: list[StoredRecord] = field(default_factory=list)
    tables: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    feeds: dict[FeedId, bool] = field(default_factory=dict)
    producers: dict[str, tuple[int, list[tuple[int, int, tuple[int, ...]]]]] = field(default_factory=dict)
    next_position: int = STEP
    next_feed: int = 1
    first: int = 0


class NaiveStore:
    """One log in a `Disk`; `kept` is its state when it was last asked to be durable."""

    def __init__(self, disk: Disk) -> None:
        self._now = copy.deepcopy(disk)
        self.kept = copy.deepcopy(disk)
        self.failing = False
        # # Records that were not persistent died with the process, except in feeds that keep everything.
        self._now.records = [self._survivor(stored) for stored in self._now.records]
        self._now.next_position += 1000 * STEP

    def _survivor(self, stored: StoredRecord) -> StoredRecord:
        if stored.record.persistent:
            return stored
        feeds = tuple(feed for feed in stored.record.feeds if self._now.feeds.get(feed))
        changed = {name: getattr(stored.record, name) for name in NewRecord.__dataclass_fields__}
        return StoredRecord(stored.position, stored.time_ms, NewRecord(**(changed | {"feeds": feeds})))

    def _keep(self) -> None:
        if self.failing:
            raise StoreFailed("the disk is broken")
        self.kept = copy.deepcopy(self._now)

    async def append(
        self,
        records: Sequence[NewRecord],
        durability: Durability,
        *,
        rows: Sequence[Row] = (),
        producer: ProducerBatch | None = None,
    ) -> Appended:
        if self.failing:
            raise StoreFailed("the disk is broken")
        for record in records:
            if len(record.key) > 65535:
                raise ValueError("a key too large")
            if any(feed not in self._now.feeds for feed in record.feeds):
                raise ValueError("there is no such feed")
        now = self._now
        if producer is not None:
            known = self._known(producer, len(records))
            if known is not None:
                self._keep()
                return Appended(known, duplicate=True)
        positions = []
        for record in records:
            now.records.append(StoredRecord(now.next_position, int(time.time() * 1000), record))
            positions.append(now.next_position)
            now.next_position += STEP
        for row in rows:
            table = now.tables.setdefault(row.table, {})
            if row.value is None:
                table.pop(row.key, None)
            else:
                table[row.key] = row.value
            now.next_position += STEP
        if producer is not None:
            epoch, batches = now.producers.get(producer.name, (producer.epoch, []))
            if epoch != producer.epoch:
                batches = []
            last = (producer.first + len(records) - 1) % 2**31
            batches = [*batches, (producer.first, last, tuple(positions))][-5:]
            now.producers[producer.name] = (producer.epoch, batches)
        if durability is not Durability.MEMORY:
            self._keep()
        return Appended(tuple(positions))

    def _known(self, producer: ProducerBatch, count: int) -> tuple[int, ...] | None:
        if producer.name not in self._now.producers:
            return None
        epoch, batches = self._now.producers[producer.name]
        if producer.epoch < epoch:
            raise Replaced(f"epoch {epoch} has taken over")
        if producer.epoch > epoch:
            if producer.first:
                raise OutOfOrder("an epoch begins at 0")
            return None
        last = (producer.first + count - 1) % 2**31
        for first, end, positions in batches:
            if (first, end) == (producer.first, last):
                return positions
        if producer.first != (batches[-1][1] + 1) % 2**31:
            raise OutOfOrder(f"number {batches[-1][1] + 1} follows")
        return None

    async def bounds(self) -> Bounds:
        last = self._now.next_position - 1
        return Bounds(self._now.first, last, min(last, self.kept.next_position - 1))

    async def read(self, position: int, limit: int) -> list[StoredRecord]:
        if position < self._now.first:
            raise PositionGone(position, self._now.first)
        return [stored for stored in self._now.records if stored.position >= position][:limit]

    async def read_at(self, positions: Sequence[int]) -> Mapping[int, StoredRecord]:
        return {stored.position: stored for stored in self._now.records if stored.position in positions}

    async def position_for_time(self, time_ms: int) -> int:
        found = (stored.position for stored in self._now.records if stored.time_ms >= time_ms)
        return next(found, self._now.next_position)

    async def release(self, position: int) -> None:
        keeping = {feed for feed, keeps_all in self._now.feeds.items() if keeps_all}
        gone = {
            stored.position
            for stored in self._now.records
            if stored.position < position and not keeping & set(stored.record.feeds)
        }
        self._now.records = [stored for stored in self._now.records if stored.position not in gone]
        if not any(stored.position < position for stored in self._now.records):
            self._now.first = max(self._now.first, position)

    async def make_feed(self, *, keeps_all: bool = False) -> FeedId:
        feed = FeedId(self._now.next_feed)
        self._now.next_feed += 1
        self._now.feeds[feed] = keeps_all
        self._keep()
        return feed

    async def drop_feed(self, feed: FeedId) -> None:
        del self._now.feeds[feed]
        self._keep()

    async def read_feed(self, feed: FeedId, position: int, limit: int) -> list[StoredRecord]:
        if feed not in self._now.feeds:
            raise ValueError("there is no such feed")
        found = [stored for stored in self._now.records if feed in stored.record.feeds]
        return [stored for stored in found if stored.position >= position][:limit]

    def row(self, table: str, key: bytes) -> bytes | None:
        return self._now.tables.get(table, {}).get(key)

    def rows(self, table: str) -> Mapping[bytes, bytes]:
        return dict(self._now.tables.get(table, {}))
