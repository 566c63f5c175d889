"""Parts of segments to Arrow record batches: what each task of a query does, in whatever process it runs.

A part is found again by its segment's number, not by what the planner saw: meanwhile the segment may have
been rewritten (then it is read from its beginning, and what is gone is reported) or deleted. An open file
stays readable whatever happens to its name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.log_core.errors import Damage
from penstock.log_core.files.layout import SALVAGED, SEALED, WAL, WAL_HEAD_BYTES, Head
from penstock.spark.errors import DataLoss
from penstock.spark.filters import Wanted
from penstock.spark.logs._columns import Rows
from penstock.spark.logs._events import EVENT_NAMES, EventRows
from penstock.spark.logs.archive import Archive, Archived, covered, read_archived
from penstock.spark.logs.archived_log import ArchivedLog
from penstock.spark.logs.log_view import LogPart, LogView, Part
from penstock.spark.logs.storage import SegmentFile, Storage, storage_of
from penstock.spark.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ROWS_MAX", "Selection", "position_at", "read_parts"]

_LOG: Final = logging.getLogger("penstock.spark")

ROWS_MAX: Final = 16384
"""Rows of a record batch, about: a batch of the log is taken whole."""
_BYTES_MAX: Final = 8 << 20
"""Bytes of a record batch, about. From 16 MiB on Arrow's allocator in the JVM takes memory anew for each."""
_READ_BYTES: Final = 2 << 20
"""Of the log at a time, into a buffer that stays: less than a processor's cache."""
_OPENED_MAX: Final = 3


@dataclass(frozen=True)
class Selection:
    """The selection of a query among the records it reads; the same for all tasks."""

    columns: tuple[str, ...]
    table: str = "traffic"
    """Or `events`; of the filters only `wanted_vhosts` holds there."""
    vhosts: tuple[tuple[int, bytes], ...] = ((0, b"/"),)
    """Names by log partition."""
    wanted: Wanted = field(default_factory=Wanted)
    wanted_vhosts: tuple[bytes, ...] = ()
    """Empty: all."""
    encodings: int = 0
    """Bits of the wanted ones; 0: all."""
    payload_max: int = -1
    """Bytes of a payload that are kept; -1: all."""
    archive: Archive | None = None
    """Where to look for what is gone from the log."""
    complete_from: int = 0
    """Records that are missing below this LSN are no loss: they were not needed any more."""
    fail_on_data_loss: bool = True

    def rows(self) -> Rows:
        """An empty collector of such rows."""
        if self.table == "events":
            names = frozenset(self.wanted_vhosts) or None
            return EventRows(self.columns, vhosts={}, wanted_vhosts=names, names=EVENT_NAMES)
        return Rows(
            self.columns,
            vhosts=dict(self.vhosts),
            decide=None if self.wanted.everything else self.wanted.matcher(),
            wanted_vhosts=frozenset(self.wanted_vhosts) or None,
            encodings=self.encodings,
            payload_max=self.payload_max,
        )


def read_parts(
    source: Storage | Path, parts: Iterable[Part], selection: Selection
) -> Iterator[pa.RecordBatch]:
    """The wanted records of `parts`, in their order, out of a storage or a data folder.

    Raises:
        DataLoss: records are missing, and `selection` does not allow that.
        Damage: bytes are not what was written.

    """
    storage = storage_of(source) if isinstance(source, Path) else source
    rows = selection.rows()
    window = _Window()
    schema = arrow_schema(selection.columns, selection.table)
    lost: list[tuple[int, int]] = []
    for part in parts:
        archived: list[Archived] = []
        if isinstance(part, Archived):
            archived.append(part)
        else:
            for _ in _take(storage, part, rows, lost, window):
                yield _batch(rows, schema)
            archived += _moved(lost, selection, part.segment)
            lost.clear()
        if archived:
            if rows.count:
                yield _batch(rows, schema)
            for moved in archived:
                yield from read_archived(moved, selection)
    if rows.count:
        yield _batch(rows, schema)


def _moved(lost: Sequence[tuple[int, int]], selection: Selection, segment: int) -> list[Archived]:
    """Where the archive has what was in a segment when this was planned, and is not any more."""
    found: list[Archived] = []
    if lost and selection.archive is not None:
        selection.archive.refresh()
        found, missing = covered(lost, selection.archive)
    else:
        missing = list(lost)
    report_loss(missing, selection, f"segment {segment} was rewritten or deleted")
    return found


def report_loss(lost: Sequence[tuple[int, int]], selection: Selection, why: str) -> None:
    """Raise DataLoss, or log it, for those of the ranges that were to be there."""
    ranges = [
        (max(first, selection.complete_from), end) for first, end in lost if end > selection.complete_from
    ]
    if not ranges:
        return
    loss = DataLoss(ranges, why)
    if selection.fail_on_data_loss:
        raise loss
    _LOG.warning("%s", loss.message)


class _Window:
    """Memory for what is read, as much as was needed at a time until now."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def room(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        return memoryview(self._buffer)[:size]


def _take(
    storage: Storage, part: LogPart, rows: Rows, lost: list[tuple[int, int]], window: _Window
) -> Iterator[None]:
    """Fill `rows` from one part; each time they are full the caller releases them."""
    path = storage.path(part.segment)
    rows.next_lsn = part.first
    for _ in range(_OPENED_MAX):
        try:
            with closing(storage.open(part.segment)) as file:
                yield from _take_file(file, path, part, rows, lost, window)
            return
        except FileNotFoundError:
            # A gateway does not keep a file open that is rewritten: go on in the new one, if there is one.
            storage.refresh()
            if part.segment not in storage.segments():
                break
            part = replace(part, first=rows.next_lsn)
    lost.append((rows.next_lsn, part.last))


def _take_file(
    file: SegmentFile,
    path: Path,
    part: LogPart,
    rows: Rows,
    lost: list[tuple[int, int]],
    window: _Window,
) -> Iterator[None]:
    head = Head.decode(file.read(0, WAL_HEAD_BYTES), path, WAL)
    gaps = bool(head.flags & (SEALED | SALVAGED))
    # A rewritten segment has other offsets than the planner may have seen.
    offset = WAL_HEAD_BYTES if gaps else part.offset
    want = min(_READ_BYTES, max(part.nbytes, 4096)) if not gaps else _READ_BYTES
    file.ahead(file.size if gaps else part.offset + part.nbytes)
    while rows.next_lsn < part.last:
        data = window.room(want)
        data = data[: file.read_into(data, offset)]
        if not data and gaps:
            lost.append((rows.next_lsn, part.last))  # a salvaged file has no note at its end
            return
        at = 0
        while True:
            at, need, reason, expected, found = rows.take(
                data, at, part.first, part.last, head.epoch, ROWS_MAX, _BYTES_MAX
            )
            if reason is not None:
                raise Damage(path, offset + at, reason, expected, found)
            if rows.gaps:
                if not gaps:
                    raise Damage(path, offset + at, f"LSNs {rows.gaps[0]} are missing")
                lost += rows.gaps
                rows.gaps.clear()
            if rows.count < ROWS_MAX and rows.nbytes < _BYTES_MAX:
                break
            yield None
        if rows.next_lsn < part.last and at == 0 and need <= len(data) and not gaps:
            raise Damage(path, offset, "the file ends here")
        if not at and need <= len(data):
            lost.append((rows.next_lsn, part.last))
            return
        offset += at
        want = max(_READ_BYTES, need)


def _batch(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    count, columns, headers, children = rows.release()
    arrays: dict[str, Any] = {}
    for name, nulls, valid, values, ends in columns:
        field = schema.field(name).type
        if pa.types.is_list(field):
            struct = field.value_type
            parts = [
                pa.Array.from_buffers(
                    struct.field(index).type, headers, [None, pa.py_buffer(child[3]), pa.py_buffer(child[2])]
                )
                for index, child in enumerate(children)
            ]
            items = pa.StructArray.from_arrays(parts, fields=list(struct))
            arrays[name] = pa.Array.from_buffers(field, count, [None, pa.py_buffer(ends)], children=[items])
            continue
        buffers = [None if valid is None else pa.py_buffer(valid)]
        if ends is not None:
            buffers.append(pa.py_buffer(ends))
        buffers.append(pa.py_buffer(values))
        arrays[name] = pa.Array.from_buffers(field, count, buffers, null_count=nulls)
    return pa.RecordBatch.from_arrays([arrays[field.name] for field in schema], schema=schema)


def position_at(view: LogView | ArchivedLog, time_ms: int, end: int, table: str = "traffic") -> int:
    """The LSN of the first row of a table not older than `time_ms`; `end` when there is none before it."""
    start = view.before_time(time_ms)
    if start is None or start >= end:
        return end
    selection = Selection(("offset", "append_time"), table, complete_from=end)
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.scalar(time_ms * 1000, pa.timestamp("us", tz="UTC"))
    for batch in read_parts(view.storage, view.parts(start, end, 1 << 20), selection):
        found = batch.column(0).filter(pc.greater_equal(batch.column(1), wanted))
        if len(found):
            return int(found[0].as_py())
    return end
