"""The embedded log behind the port `LogStore`, for paths that are not hot: one call per unit.

Owns the write turns of a `Log` that nobody else appends to. Units that callers append in one turn of the
loop are written together. Reads that need the disk run on threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.errors import LogError
from penstock.log_core.batch._appender import Target
from penstock.log_core.batch._batch import PERSISTENT, RECORDS, Batch, Record
from penstock.log_core.errors import Damage, OutOfSequence, ProducerFenced
from penstock.log_core.log import Log
from penstock.log_core.segments.segment import Segment
from penstock.log_core.state.tables import FEED_TABLE, feed_key
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

__all__ = ["EmbeddedStore"]

_KEY_MAX: Final = 65535
_FEED_STEP: Final = 1024


class EmbeddedStore:
    """A `LogStore` over one open log. Made on the loop that it is used on."""

    def __init__(self, log: Log) -> None:
        """`log` is the store's from now on, until whoever opened it closes it."""
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._flush_scheduled = False
        self._targets: dict[tuple[FeedId, ...], Target] = {}
        log.attach(self._loop.call_soon_threadsafe)
        log.low_water = lambda: self._released
        self._released = 0

    # Records

    async def append(
        self,
        records: Sequence[NewRecord],
        durability: Durability,
        *,
        rows: Sequence[Row] = (),
        producer: ProducerBatch | None = None,
    ) -> Appended:
        """See `LogStore`."""
        targets = [self._target(record) for record in records]
        try:
            known = self._admit(producer, len(records)) if producer is not None else 0
            if known:
                done = Appended(tuple(range(known, known + len(records))), duplicate=True)
                last = done.positions[-1]
            else:
                done = Appended(self._append(records, targets, rows, producer))
                last = self._log.appender.next_lsn - 1
        except LogError as error:
            raise StoreFailed(error.message, remedy=error.remedy) from error
        self._flush_soon()
        await self._wait(last, durability)
        return done

    def _target(self, record: NewRecord) -> Target:
        if len(record.key) > _KEY_MAX:
            raise ValueError(f"a key of {len(record.key)} bytes; the most is {_KEY_MAX}")
        target = self._targets.get(record.feeds)
        if target is None:
            try:
                target = self._log.target([self._log.feed(feed) for feed in record.feeds], True)
            except KeyError as error:
                raise ValueError(f"there is no feed {error}") from None
            self._targets[record.feeds] = target
        return target

    def _admit(self, producer: ProducerBatch, count: int) -> int:
        if self._log.failed is not None:
            raise StoreFailed(str(self._log.failed))
        last = (producer.first + count - 1) % 2**31
        try:
            return self._log.producers.admit_batch(
                producer.name.encode(), producer.epoch, producer.first, last
            )
        except ProducerFenced as error:
            raise Replaced(error.message, remedy=error.remedy) from error
        except OutOfSequence as error:
            raise OutOfOrder(error.message, remedy=error.remedy) from error

    def _append(
        self,
        records: Sequence[NewRecord],
        targets: Sequence[Target],
        rows: Sequence[Row],
        producer: ProducerBatch | None,
    ) -> tuple[int, ...]:
        log = self._log
        if log.failed is not None:
            raise StoreFailed(str(log.failed))
        positions = []
        with log.unit():
            for record, target in zip(records, targets, strict=True):
                positions.append(
                    log.appender.append_record(
                        0,
                        target,
                        record.key,
                        record.properties,
                        record.body,
                        PERSISTENT if record.persistent else 0,
                        record.priority,
                        record.encoding,
                        record.ttl_ms,
                    )
                )
            for row in rows:
                if row.value is None:
                    log.tables.delete(row.table, row.key)
                else:
                    log.tables.put(row.table, row.key, row.value)
            if producer is not None:
                last = (producer.first + len(records) - 1) % 2**31
                log.producers.open()
                log.producers.note(
                    producer.name.encode(), producer.first, last, positions[0], epoch=producer.epoch
                )
                log.producers.close()
        return tuple(positions)

    def _flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._log.flush()

    async def _wait(self, lsn: int, durability: Durability) -> None:
        if durability is Durability.MEMORY:
            return
        reached: asyncio.Future[bool] = self._loop.create_future()

        def tell(ok: bool) -> None:
            if not reached.done():
                reached.set_result(ok)

        when = self._log.when_written if durability is Durability.WRITTEN else self._log.when_synced
        when(lsn, tell)
        if not await reached:
            raise StoreFailed(str(self._log.failed))

    async def bounds(self) -> Bounds:
        """See `LogStore`."""
        written = self._log.written_lsn
        return Bounds(self._log.statistics()["first_lsn"], written, min(self._log.synced_lsn, written))

    async def read(self, position: int, limit: int) -> list[StoredRecord]:
        """See `LogStore`."""
        bounds = await self.bounds()
        if position < bounds.first:
            raise PositionGone(position, bounds.first)
        return await asyncio.to_thread(self._read, position, limit, bounds.readable)

    def _read(self, position: int, limit: int, last: int) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        for segment in self._log.segments_from(position):
            while len(found) < limit and position < segment.next_lsn:
                batches = self._batches(segment, position)
                for record in (r for batch in batches for r in _records(batch)):
                    if position <= record.lsn <= last and len(found) < limit:
                        found.append(_stored(record))
                if not batches:
                    break
                position = max(position + 1, batches[-1].base_lsn + batches[-1].count)
        return found

    def _batches(self, segment: Segment, position: int) -> list[Batch]:
        try:
            return self._log.reader.read(segment, position)
        except (FileNotFoundError, Damage):
            return []

    async def read_at(self, positions: Sequence[int]) -> Mapping[int, StoredRecord]:
        """See `LogStore`."""
        last = self._log.written_lsn
        return await asyncio.to_thread(self._read_at, [p for p in positions if p <= last])

    def _read_at(self, positions: Sequence[int]) -> dict[int, StoredRecord]:
        found: dict[int, StoredRecord] = {}
        near: dict[int, StoredRecord] = {}
        for position in positions:
            if position not in near:
                segment = self._log.segment_of(position)
                batches = self._batches(segment, position) if segment is not None else []
                near = {record.lsn: _stored(record) for batch in batches for record in _records(batch)}
            if position in near:
                found[position] = near[position]
        return found

    async def position_for_time(self, time_ms: int) -> int:
        """See `LogStore`."""
        return await asyncio.to_thread(self._log.position_for_time, time_ms)

    async def release(self, position: int) -> None:
        """See `LogStore`; what traffic retention wants stays."""
        self._released = max(self._released, position)

    # Feeds

    async def make_feed(self, *, keeps_all: bool = False) -> FeedId:
        """See `LogStore`."""
        with self._log.unit():
            feed = self._log.new_feed(keeps=keeps_all)
            lsn = self._log.tables.put(FEED_TABLE, feed_key(feed.id), b"")
        self._flush_soon()
        await self._wait(lsn, Durability.FSYNC)
        return FeedId(feed.id)

    async def drop_feed(self, feed: FeedId) -> None:
        """See `LogStore`."""
        self._targets = {feeds: target for feeds, target in self._targets.items() if feed not in feeds}
        with self._log.unit():
            self._log.drop_feed(self._log.feed(feed))
            lsn = self._log.tables.delete(FEED_TABLE, feed_key(feed))
        self._flush_soon()
        await self._wait(lsn, Durability.FSYNC)

    async def read_feed(self, feed: FeedId, position: int, limit: int) -> list[StoredRecord]:
        """See `LogStore`."""
        try:
            known = self._log.feed(feed)
        except KeyError:
            raise ValueError(f"there is no feed {feed}") from None
        last = self._log.written_lsn
        found: list[StoredRecord] = []
        index = known.index_of(position)
        while len(found) < limit and index < known.end:
            positions = known.positions(index, min(_FEED_STEP, limit - len(found)))
            if not positions:
                loaded: asyncio.Future[None] = self._loop.create_future()
                self._log.load_feed(known, index, lambda loaded=loaded: loaded.set_result(None))  # type: ignore[misc]
                await loaded
                index = max(index, known.start)
                continue
            if positions[0] > last:
                break
            records = await self.read_at(positions)
            found += records.values()
            index += len(positions)
        return found

    # Rows

    def row(self, table: str, key: bytes) -> bytes | None:
        """See `LogStore`."""
        return self._log.tables.get(table, key)

    def rows(self, table: str) -> Mapping[bytes, bytes]:
        """See `LogStore`."""
        return dict(self._log.tables.items(table))


def _records(batch: Batch) -> list[Record]:
    if batch.kind != RECORDS:
        return []
    return [batch.record(index) for index in range(batch.count)]


def _stored(record: Record) -> StoredRecord:
    return StoredRecord(
        record.lsn,
        record.ts,
        NewRecord(
            body=record.body,
            key=record.key,
            properties=record.props,
            feeds=tuple(FeedId(feed) for feed in record.feeds),
            persistent=bool(record.flags & PERSISTENT),
            encoding=record.enc,
            priority=record.priority,
            ttl_ms=record.ttl,
        ),
    )
