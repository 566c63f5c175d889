"""A log and its archive as one: the same face as `LogView`, over more of the past.

    positions   | archive.first ...          ... archive.position |
                |            log.first ... log.complete_from ...             ... log.end |
    read from   | archive                    | log

The segments that the log still has whole are read there; before that the archive is complete where the log is
not.
"""

from __future__ import annotations

from pathlib import Path

from penstock.spark.logs.archive import Archive
from penstock.spark.logs.log_view import LogView, Part
from penstock.spark.logs.storage import Storage

__all__ = ["ArchivedLog"]


class ArchivedLog:
    """See the module, and `LogView` for what the methods do."""

    def __init__(self, storage: Storage, archive: Path) -> None:
        self.storage = storage
        self.log = LogView(storage)
        self.archive = Archive(archive, "")

    @property
    def log_id(self) -> str:
        """See `LogView`."""
        return self.log.log_id

    def expect(self, log_id: str) -> None:
        """See `LogView`."""
        self.log.expect(log_id)

    def vhosts(self) -> dict[int, bytes]:
        """See `LogView`."""
        return self.log.vhosts()

    def end(self, *, written: bool = False) -> int:
        """See `LogView`."""
        return self.log.end(written=written)

    def refresh(self) -> None:
        """See `LogView`."""
        self.log.refresh()
        if self.archive.log_id != self.log_id:
            self.archive = Archive(self.archive.path, self.log_id)
        self.archive.refresh()

    def _cuts(self) -> tuple[int, int]:
        """The positions [from, to) that the archive is asked for."""
        if self.archive.empty:
            return (0, 0)
        end = min(self.archive.position, self.log.complete_from)
        return (self.archive.first, max(end, self.archive.first))

    @property
    def first(self) -> int:
        """The least position there is."""
        return self.log.first if self.archive.empty else min(self.log.first, self.archive.first)

    @property
    def complete_from(self) -> int:
        """See `LogView`."""
        whole = self.log.complete_from
        if self.archive.empty or self.archive.position < whole:
            return whole
        return min(whole, self.archive.first)

    def loss_between(self, first: int, last: int) -> list[tuple[int, int]]:
        """See `LogView`."""
        begin, end = self._cuts()
        missing = []
        if first < min(last, begin):
            missing += self.log.loss_between(first, min(last, begin))
        if max(first, begin) < min(last, end):
            missing += self.archive.loss_between(max(first, begin), min(last, end))
        if max(first, end) < last:
            missing += self.log.loss_between(max(first, end), last)
        return missing

    def parts(self, first: int, last: int, split_bytes: int) -> list[Part]:
        """See `LogView`. Archived parts are not split."""
        begin, end = self._cuts()
        found: list[Part] = []
        if first < min(last, begin):
            found += self.log.parts(first, min(last, begin), split_bytes)
        if max(first, begin) < min(last, end):
            found += self.archive.parts(max(first, begin), min(last, end))
        if max(first, end) < last:
            found += self.log.parts(max(first, end), last, split_bytes)
        return found

    def before_time(self, time_ms: int) -> int | None:
        """See `LogView`."""
        begin, end = self._cuts()
        found = self.archive.before_time(time_ms) if end > begin else None
        return self.log.before_time(time_ms) if found is None or found >= end else found
