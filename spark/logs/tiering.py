"""Cold segments into the archive: closed ones of which all is old enough, oldest first, one commit each.

The position of the archive's last commit says how far it is, so this may be killed at any time and run again;
files that no commit lists yet are removed when they are a day old. Translating is the work of tasks, which
may run in this process, in others, or in Spark; committing is done here, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.spark.errors import SparkError
from penstock.spark.logs.log_view import LogView, Part
from penstock.spark.logs.reading import Selection, read_parts, report_loss
from penstock.spark.logs.storage import Storage
from penstock.spark.schema import COLUMNS, arrow_schema
from penstock.spark.tables.files import DataFile, write_files
from penstock.spark.tables.parquet import ParquetFormat

__all__ = ["Cold", "Commit", "cold_segments", "tier", "translate"]


@dataclass(frozen=True)
class Cold:
    """One segment to copy: the positions [first, last)."""

    first: int
    last: int
    root: Path
    """Of the archive."""
    log: Storage
    parts: tuple[Part, ...]
    selection: Selection

    @property
    def nbytes(self) -> int:
        """About what it has in the log."""
        return sum(part.nbytes for part in self.parts)


@dataclass(frozen=True)
class Commit:
    """One segment that was copied."""

    first: int
    last: int
    rows: int
    log_bytes: int
    """About what it has in the log."""
    file_bytes: int
    left: int
    """Segments that are still to be copied."""
    left_bytes: int
    """About what those have in the log."""


Mapper = Callable[[Callable[[Cold], Sequence[DataFile]], Iterable[Cold]], Iterator[Sequence[DataFile]]]
"""Like `map`: results come in order, and as soon as they are there."""


def translate(cold: Cold) -> Sequence[DataFile]:
    """The files of one segment. Raises DataLoss, Damage, OSError."""
    return write_files(cold.root, read_parts(cold.log, cold.parts, cold.selection))


def cold_segments(
    view: LogView, archive: ParquetFormat, before_ms: int, *, allow_loss: bool = False
) -> list[Cold]:
    """The segments to be copied: closed ones with nothing younger than `before_ms`, behind the archive's end.

    An empty archive begins where the log is complete. Raises DataLoss when something between its end and
    them is gone, unless that is allowed.
    """
    position = archive.position(view.log_id)
    at = view.complete_from if position is None else position
    selection = Selection(
        tuple(COLUMNS),
        vhosts=tuple(view.vhosts().items()),
        complete_from=at,
        fail_on_data_loss=not allow_loss,
    )
    found = []
    for _, last, newest_ms in view.closed():
        if newest_ms >= before_ms:
            break
        if last <= at:
            continue
        report_loss(view.loss_between(at, last), selection, "the segments were deleted by retention")
        found.append(
            Cold(at, last, archive.path, view.storage, tuple(view.parts(at, last, 1 << 62)), selection)
        )
        at = last
    return found


def tier(
    data: Path | str, to: Path, before_ms: int, run: Mapper = map, *, allow_loss: bool = False
) -> Iterator[Commit]:
    """Copy what is cold; yields after each commit.

    Args:
        data: The data folder of a penstock, which may run, or the URL of one.
        to: The archive's folder, made if there is none.
        before_ms: Records older than this time are cold (ms since the epoch).
        run: Where translating is done.
        allow_loss: Go on without what retention took before it was copied.

    Raises:
        DataLoss: that, and it is not allowed.
        SparkError: another tier job works on this archive.

    """
    view = LogView(data)
    view.refresh()
    archive = ParquetFormat(to)
    archive.create(arrow_schema(tuple(COLUMNS)))
    todo = cold_segments(view, archive, before_ms, allow_loss=allow_loss)
    left, left_bytes = len(todo), sum(cold.nbytes for cold in todo)
    for cold, files in zip(todo, run(translate, todo), strict=True):
        try:
            if archive.position(view.log_id) not in (None, cold.first):
                raise FileExistsError
            archive.publish(view.log_id, files, cold.first, cold.last)
        except FileExistsError:
            for file in files:
                (archive.path / file.path).unlink(missing_ok=True)
            raise SparkError(
                f"another job has put [{cold.first}, {cold.last}) into {to}",
                remedy="run one tier job for a log at a time",
            ) from None
        left, left_bytes = left - 1, left_bytes - cold.nbytes
        rows, nbytes = sum(file.rows for file in files), sum(file.nbytes for file in files)
        yield Commit(cold.first, cold.last, rows, cold.nbytes, nbytes, left, left_bytes)
    archive.compact()
