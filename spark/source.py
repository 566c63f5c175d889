"""The data source `format("penstock")`: batch and streaming reads of the tables `traffic` and `events`.

Spark makes these objects in processes of its own and pickles them, so they hold no file and no connection;
the planner's view of the log lives where the planner runs. Executors read the files of the data folder
themselves, and the gateway does no work; or it sends them the files as they are (`storage`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from penstock.spark.errors import SparkError, SparkOptionError
from penstock.spark.logs.lease import Lease
from penstock.spark.logs.log_view import Part
from penstock.spark.logs.planning import (
    View,
    advance,
    cuts,
    ending_position,
    open_view,
    pieces,
    plan,
    selection_of,
    starting_position,
)
from penstock.spark.logs.reading import Selection, read_parts
from penstock.spark.options import ReadOptions
from penstock.spark.reports import Reporter
from penstock.spark.schema import ddl, names_of
from penstock.spark.worker_heap import spare_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.spark.sink import BatchSink, StreamSink

__all__ = ["PenstockSource"]


class Task(InputPartition):
    """Parts of segments that one task reads, in order, and what it wants of them."""

    def __init__(self, parts: tuple[Part, ...], selection: Selection, needed: int = 0) -> None:
        """`needed`: the position from which on the query still needs the log."""
        super().__init__(0)
        self.needed = needed
        self.parts = parts
        self.selection = selection


class PenstockSource(DataSource):
    """`spark.read.format("penstock")`, `spark.readStream.format("penstock")`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock"

    def schema(self) -> str:
        """All columns, or those of `columns=`."""
        spare_imports()
        options = ReadOptions.parse(self.options)
        return ddl(options.selected, options.table)

    def reader(self, schema: StructType) -> TrafficReader:
        """A batch query."""
        options = ReadOptions.parse(self.options).for_batch()
        return TrafficReader(options, names_of(schema, options.table))

    def streamReader(self, schema: StructType) -> TrafficStream:
        """A streaming query."""
        options = ReadOptions.parse(self.options).for_stream()
        return TrafficStream(options, names_of(schema, options.table))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """Messages out of a frame."""
        from penstock.spark.sink import BatchSink, WriteOptions

        return BatchSink(WriteOptions.parse(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """Messages out of a stream of frames."""
        from penstock.spark.sink import StreamSink, WriteOptions

        return StreamSink(WriteOptions.parse(self.options), schema, overwrite)


class _Reads:
    """The common part of both kinds of query."""

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        spare_imports()
        self.options = options
        self.lease = Lease(options)
        self.columns = columns

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task, in an executor."""
        spare_imports()
        if isinstance(partition, Task):
            parts = partition.parts
            batches = read_parts(self.options.storage, parts, partition.selection)
            if parts:
                batches = self.lease.renewing(partition.needed, batches)
                batches = self._reported(parts, batches)
            yield from batches

    def _reported(
        self, parts: tuple[Part, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        with closing(Reporter(self.options.report, "read", parts[0].first)) as reporter:
            for batch in batches:
                yield batch
                reporter.add(batch.num_rows, 0)
            reporter.add(0, sum(part.nbytes for part in parts))


class TrafficReader(_Reads, DataSourceReader):
    """Reads [start, end) once; both are fixed when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        view = open_view(self.options)
        view.refresh()
        start = starting_position(view, self.options, "earliest")
        end = ending_position(view, self.options)
        # A record asked for by its position is missed when it is not there; `earliest` and a time take
        # what there is.
        asked = self.options.starts_exactly
        if asked and self.options.ending not in (None, "latest") and end < start:
            raise SparkOptionError("endingOffsets", end, f"the query starts behind it, at {start}")
        selection = selection_of(view, self.options, self.columns, 0 if asked else view.complete_from)
        self.lease.renew(start)
        tasks = plan(view, self.options, selection, start, end) if start < end else []
        view.storage.close()
        with closing(Reporter(self.options.report, "plan", 0)) as reporter:
            reporter.add(0, sum(part.nbytes for parts in tasks for part in parts))
        # Spark takes an empty list for one task without a description.
        return [Task(parts, selection, start) for parts in tasks] or [Task((), selection)]


class TrafficStream(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes. Positions are in the checkpoint:

        {"0": next LSN of shard 0, "complete_from": LSN, "log": id of the log, "cuts": [LSN, ...]}

    Below `complete_from` the first start of the query found only what some queue still needed. `cuts` is
    where the tasks of the micro-batch that ends here begin, but for the first one: when it comes again its
    tasks are the same, though the files are others by then (segments were closed, rewritten, archived) or the
    machine is. The sink counts on that, since it numbers the rows of a task. A checkpoint of an older version
    has none.
    """

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        super().__init__(options, columns)
        self._view: View | None = None
        self._target: int | None = None
        self._waiting_since = 0.0

    def _refreshed(self, offset: dict[str, Any] | None = None) -> View:
        view = self._view
        if view is None:
            view = self._view = open_view(self.options)
        if offset is not None and not view.log_id:
            view.expect(str(offset["log"]))
        view.refresh()
        return view

    # Positions

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        view = self._refreshed()
        start = starting_position(view, self.options, "latest")
        complete_from = 0 if self.options.starts_exactly else view.complete_from
        return {"0": start, "complete_from": complete_from, "log": view.log_id}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Ours are options, several of which can hold at once; Spark's classes can say only one."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes."""
        options = self.options
        view = self._refreshed(start)
        at = int(start["0"])
        self.lease.renew(at)
        end = view.end(written=options.written)
        if self._target is not None:
            end = min(end, self._target)
        if end < at:
            raise SparkError(
                f"the checkpoint is at offset {at}, and the log ends at {end}",
                remedy="the log was put back to an older state: restart the query with a new checkpoint",
            )
        if self._target is None and options.min_offsets is not None and not self._due(view, at, end):
            return start
        if options.max_offsets is not None or options.max_bytes is not None:
            end = advance(view, at, end, options.max_offsets, options.max_bytes)
        if end == at:
            return start
        return {**start, "0": end, "cuts": cuts(view, options, at, end)}

    def _due(self, view: View, at: int, end: int) -> bool:
        """Whether enough has come, or too much time passed since something did."""
        assert self.options.min_offsets is not None
        count = sum(part.last - part.first for part in view.parts(at, end, 1 << 62))
        now = time.monotonic()
        if count == 0:
            self._waiting_since = 0.0
            return True
        self._waiting_since = self._waiting_since or now
        if count < self.options.min_offsets and now - self._waiting_since < self.options.max_delay_s:
            return False
        self._waiting_since = 0.0
        return True

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the log, for the query's progress."""
        if self._view is None:
            return None
        return {"0": self._view.end(written=self.options.written)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run."""
        self._target = self._refreshed().end(written=self.options.written)

    # Reading

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one micro-batch."""
        view = self._refreshed(start)
        first, last = int(start["0"]), int(end["0"])
        selection = selection_of(view, self.options, self.columns, int(start["complete_from"]))
        self.lease.renew(first)
        tasks: list[tuple[Part, ...]] = []
        if first < last and "cuts" in end:
            tasks = pieces(view, selection, first, last, end["cuts"])
        elif first < last:
            tasks = plan(view, self.options, selection, first, last)
        return [Task(parts, selection, first) for parts in tasks] or [Task((), selection)]

    def commit(self, end: dict[str, Any]) -> None:
        """The checkpoint has it. Spark says so one micro-batch late, and of the last one never."""
        self.lease.renew(int(end["0"]))

    def stop(self) -> None:
        """The query ends; its lease does by itself."""
        if self._view is not None:
            self._view.storage.close()
