"""From positions to tasks: what a query reads, in pieces worth a task each. Nothing of Spark is here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from penstock.log_core.segments.segment import MARK_BYTES
from penstock.spark.errors import SparkOptionError
from penstock.spark.logs.archived_log import ArchivedLog
from penstock.spark.logs.log_view import LogView, Part
from penstock.spark.logs.reading import Selection, position_at, report_loss
from penstock.spark.logs.storage import with_retry
from penstock.spark.options import ReadOptions

__all__ = [
    "View",
    "advance",
    "cuts",
    "ending_position",
    "grouped",
    "open_view",
    "pieces",
    "plan",
    "selection_of",
    "starting_position",
]

_TASK_RECORDS = 1_000_000
_TASK_BYTES_LEAST: Final = 32 << 20
_TASK_BYTES_MOST: Final = 128 << 20
"""Where `taskBytes` does not say it. To start a task costs as much as reading 10 MiB or more, so they are
as large as Spark's own over files, and smaller where cores would have nothing to do."""

View = LogView | ArchivedLog
"""A log as a query sees it."""


def open_view(options: ReadOptions) -> View:
    """The log that the options name. Raises SparkError when there is no log."""
    storage = options.storage
    return LogView(storage) if options.archive is None else ArchivedLog(storage, options.archive)


def starting_position(view: View, options: ReadOptions, default: str) -> int:
    """Where a query begins: by its options, else `default`, `earliest` or `latest`."""
    end = view.end(written=options.written)
    if options.starting_ms is not None:
        return position_at(view, options.starting_ms, end, options.table)
    starting = default if options.starting is None else options.starting
    if isinstance(starting, str) and starting.startswith("cursor:"):
        starting = _cursor(options, "startingOffsets", starting)
    if isinstance(starting, int):
        if starting > end:
            raise SparkOptionError("startingOffsets", starting, f"the log ends at {end}")
        return starting
    return end if starting == "latest" else view.first


def ending_position(view: View, options: ReadOptions) -> int:
    """Where a batch query ends: behind its last record."""
    end = view.end(written=options.written)
    if options.ending_ms is not None:
        return position_at(view, options.ending_ms, end, options.table)
    if options.ending == "earliest":
        raise SparkOptionError("endingOffsets", "earliest", "give latest or an offset")
    ending = options.ending
    if isinstance(ending, str) and ending.startswith("cursor:"):
        ending = _cursor(options, "endingOffsets", ending)
    if isinstance(ending, int):
        if ending > end:
            raise SparkOptionError("endingOffsets", ending, f"the log ends at {end}")
        return ending
    return end


def _cursor(options: ReadOptions, option: str, text: str) -> int:
    """Where the gateway says that a query is."""
    assert options.endpoint is not None
    leases = with_retry(options.endpoint, lambda client: client.leases())
    positions = {str(lease["name"]): int(lease["position"]) for lease in leases}
    name = text.removeprefix("cursor:")
    if name not in positions:
        raise SparkOptionError(
            option, text, f"the gateway's cursors are: {', '.join(sorted(positions)) or 'none'}"
        )
    return positions[name]


def selection_of(view: View, options: ReadOptions, columns: Sequence[str], complete_from: int) -> Selection:
    """The selection of every task of the query."""
    vhosts = view.vhosts() if options.vhosts or "vhost" in columns else {0: b"/"}
    wanted = tuple(name.encode("utf-8", "surrogateescape") for name in options.vhosts)
    return Selection(
        columns=tuple(columns),
        table=options.table,
        vhosts=tuple(vhosts.items()),
        wanted=options.wanted,
        wanted_vhosts=wanted,
        encodings=options.encodings,
        payload_max=options.payload_max,
        archive=view.archive if isinstance(view, ArchivedLog) else None,
        complete_from=complete_from,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def plan(
    view: View, options: ReadOptions, selection: Selection, start: int, end: int
) -> list[tuple[Part, ...]]:
    """The tasks that read [start, end): small parts grouped, large ones split. Raises DataLoss."""
    _report_deleted(view, selection, start, end)
    return _tasks(view, options, start, end)


def cuts(view: View, options: ReadOptions, start: int, end: int) -> list[int]:
    """Where the tasks that read [start, end) begin, but for the first one."""
    return [task[0].first for task in _tasks(view, options, start, end)[1:]]


def pieces(
    view: View, selection: Selection, start: int, end: int, cut: Sequence[int]
) -> list[tuple[Part, ...]]:
    """The tasks that read [start, end), cut there, whatever the files look like by now; one may have nothing
    left to read. Raises DataLoss."""
    _report_deleted(view, selection, start, end)
    bounds = [start, *cut, end]
    return [tuple(view.parts(first, last, 1 << 62)) for first, last in pairwise(bounds)]


def _report_deleted(view: View, selection: Selection, start: int, end: int) -> None:
    report_loss(view.loss_between(start, end), selection, "the segments were deleted by retention")


def _tasks(view: View, options: ReadOptions, start: int, end: int) -> list[tuple[Part, ...]]:
    whole = view.parts(start, end, 1 << 62)
    size = sum(part.nbytes for part in whole)
    most = options.task_bytes
    if most is None:
        most = max(_TASK_BYTES_LEAST, min(_TASK_BYTES_MOST, -(-size // (os.cpu_count() or 1))))
    task_bytes = max(options.task_bytes_min, min(most, -(-size // options.min_partitions)))
    return grouped(view.parts(start, end, task_bytes), task_bytes)


def grouped(parts: Sequence[Part], task_bytes: int) -> list[tuple[Part, ...]]:
    """Neighbours together up to `task_bytes`, in order."""
    tasks: list[tuple[Part, ...]] = []
    task: list[Part] = []
    nbytes = records = 0
    for part in parts:
        count = part.last - part.first
        if task and (nbytes + part.nbytes > task_bytes or records + count > _TASK_RECORDS):
            tasks.append(tuple(task))
            task, nbytes, records = [], 0, 0
        task.append(part)
        nbytes += part.nbytes
        records += count
    if task:
        tasks.append(tuple(task))
    return tasks


def advance(view: View, start: int, end: int, records: int | None, nbytes: int | None) -> int:
    """The furthest LSN in (start, end] with at most so many records and about so many bytes before it.

    At least one mark of the sparse index (64 KiB) further than `start`, so that a query goes on.
    """
    left = records
    room = nbytes
    at = start
    for part in view.parts(start, end, MARK_BYTES):
        count = part.last - part.first
        if left is not None and count >= left:
            return part.first + left
        if room is not None and part.nbytes > room and at > start:
            return at
        at = part.last
        left = None if left is None else left - count
        room = None if room is None else room - part.nbytes
    return end
