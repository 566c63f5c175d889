"""The archive of a log: what `tier` copied out of its cold segments into Parquet, read as rows of the log.

An archive is a table of `table_parquet` with all columns. Its commits follow one another without a gap, each
with the positions it holds; those of another log in the same folder are no part of it. A commit's files stay
as they are, so what was planned can be read later, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.errors import SparkOptionError
from penstock.spark.filters import PROTOCOLS
from penstock.spark.locations import location_of, opened_parquet
from penstock.spark.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.logs.reading import Selection
    from penstock.spark.tables.parquet import Commit

__all__ = ["Archive", "Archived", "archive_path", "covered", "read_archived"]

_SUBJECT: Final = ("protocol", "address", "routing_key")
_SEPARATOR: Final = "\x1f"


def archive_path(uri: str) -> Path:
    """The folder of an archive's URI. Raises SparkOptionError."""
    kind, _, path = uri.partition(":")
    if kind != "parquet" or not path:
        raise SparkOptionError("archive", uri, "give parquet:PATH, what penstock spark tier wrote")
    return location_of(path)


@dataclass(frozen=True)
class Archived:
    """The rows of some files with positions in [first, last)."""

    files: tuple[str, ...]
    """Absolute."""
    first: int
    last: int
    nbytes: int


class Archive:
    """The part of one log that `path` has. Cheap to pickle; commits are read when they are asked for."""

    def __init__(self, path: Path, log_id: str) -> None:
        self.path = path
        self.log_id = log_id
        from penstock.spark.tables.parquet import ParquetFormat  # most queries have no archive

        self._table = ParquetFormat(path)
        self._ends: list[int] = []
        self._commits: dict[int, Commit] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (Archive, (self.path, self.log_id))

    def refresh(self) -> None:
        """Look which commits there are."""
        self._ends = self._table.positions(self.log_id)

    @property
    def empty(self) -> bool:
        """Nothing of this log is in it."""
        return not self._ends

    @property
    def first(self) -> int:
        """From this position on it has everything, up to `position`."""
        return self._commit(0).first

    @property
    def position(self) -> int:
        """Behind the last record it has."""
        return self._ends[-1]

    def _commit(self, index: int) -> Commit:
        end = self._ends[index]
        if end not in self._commits:
            self._commits[end] = self._table.commit(self.log_id, end)
        return self._commits[end]

    def _between(self, first: int, last: int) -> Iterator[Commit]:
        for index in range(bisect_right(self._ends, first), len(self._ends)):
            commit = self._commit(index)
            if commit.first >= last:
                break
            yield commit

    def parts(self, first: int, last: int) -> list[Archived]:
        """Where [first, last) lies, in the order of the log."""
        found = []
        for commit in self._between(first, last):
            files = tuple(str(self.path / file.path) for file in commit.files)
            begin, end = max(first, commit.first), min(last, commit.last)
            found.append(Archived(files, begin, end, sum(file.nbytes for file in commit.files)))
        return found

    def loss_between(self, first: int, last: int) -> list[tuple[int, int]]:
        """Ranges within [first, last) that no commit has."""
        missing, at = [], first
        for commit in self._between(first, last):
            if at < commit.first:
                missing.append((at, commit.first))
            at = commit.last
        if at < last:
            missing.append((at, last))
        return missing

    def before_time(self, time_ms: int) -> int | None:
        """A position at or before the first record not older than `time_ms`; None: none is that young."""
        date = datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()
        for index in range(len(self._ends)):
            commit = self._commit(index)
            for file in commit.files:
                if file.date < date:
                    continue
                with opened_parquet(self.path / file.path) as found:
                    latest = _latest_ms(found.metadata)
                if latest >= time_ms:
                    return commit.first
        return None


def _latest_ms(metadata: Any) -> int:
    column = metadata.schema.names.index("append_time")
    groups = [metadata.row_group(index).column(column).statistics for index in range(metadata.num_row_groups)]
    return max((int(group.max.timestamp() * 1000) for group in groups), default=0)


def read_archived(part: Archived, selection: Selection) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a part, as `reading.read_parts` gives them. Raises OSError."""
    schema = arrow_schema(selection.columns)
    asked = {*selection.columns, "offset"}
    if selection.wanted_vhosts:
        asked.add("vhost")
    if selection.encodings:
        asked.add("protocol")
    if not selection.wanted.everything:
        asked.update(_SUBJECT)
    wanted = _Wanted(part, selection)
    for path in part.files:
        with opened_parquet(location_of(path)) as file:
            names = [name for name in file.schema_arrow.names if name in asked]
            groups = _groups(file.metadata, part)
            for batch in file.iter_batches(16384, row_groups=groups, columns=names):
                rows = wanted.of(batch)
                if rows.num_rows:
                    yield _fitted(rows, schema, selection.payload_max)


def _groups(metadata: Any, part: Archived) -> list[int]:
    """The row groups that have some of the positions."""
    leaf = [metadata.schema.column(index).path for index in range(metadata.num_columns)].index("offset")
    found = []
    for index in range(metadata.num_row_groups):
        statistics = metadata.row_group(index).column(leaf).statistics
        if statistics.max >= part.first and statistics.min < part.last:
            found.append(index)
    return found


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, payload_max: int) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for field in schema:
        if field.name not in batch.schema.names:  # of a version that did not have it
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        if field.name == "payload" and payload_max >= 0:
            column = pc.binary_slice(column, 0, payload_max)
        columns.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Wanted:
    """The filters of a query on rows of Parquet; about each distinct subject `Wanted` is asked once."""

    def __init__(self, part: Archived, selection: Selection) -> None:
        self._part = part
        self._vhosts = [name.decode("utf-8", "replace") for name in selection.wanted_vhosts]
        bits = selection.encodings
        self._protocols = [name for name, number in PROTOCOLS.items() if bits >> number & 1]
        self._matcher = None if selection.wanted.everything else selection.wanted.matcher()
        self._verdicts: dict[str, bool] = {}

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are wanted."""
        import pyarrow as pa
        import pyarrow.compute as pc

        offset = batch.column("offset")
        masks = [pc.and_(pc.greater_equal(offset, self._part.first), pc.less(offset, self._part.last))]
        if self._vhosts:
            masks.append(pc.is_in(batch.column("vhost"), pa.array(self._vhosts)))
        if self._protocols:
            masks.append(pc.is_in(batch.column("protocol"), pa.array(self._protocols)))
        if self._matcher is not None:
            parts = [batch.column(name) for name in _SUBJECT]
            subjects = pc.binary_join_element_wise(*parts, _SEPARATOR).dictionary_encode()
            verdicts = pa.array([self._verdict(text) for text in subjects.dictionary.to_pylist()])
            masks.append(pc.take(verdicts, subjects.indices))
        mask = masks[0]
        for more in masks[1:]:
            mask = pc.and_(mask, more)
        return batch.filter(mask)

    def _verdict(self, text: str) -> bool:
        found = self._verdicts.get(text)
        if found is None:
            assert self._matcher is not None
            protocol, address, key = text.split(_SEPARATOR, 2)
            found = self._matcher.row(protocol, address, key)
            self._verdicts[text] = found
        return found


def covered(
    ranges: Sequence[tuple[int, int]], archive: Archive
) -> tuple[list[Archived], list[tuple[int, int]]]:
    """Where an archive has these ranges, and those it has not."""
    found: list[Archived] = []
    missing: list[tuple[int, int]] = []
    for first, last in ranges:
        found += archive.parts(first, last)
        missing += archive.loss_between(first, last)
    return found, missing
