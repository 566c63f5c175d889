"""Runs of batches out of the page cache. The module text is in _resident.pyx; runs are read in C."""

from collections.abc import Callable

from penstock.log_core.segment import Marks

class SegmentFile:
    """An open segment. Owns its descriptor `fd` (-1: closed)."""

    fd: int
    number: int
    base_lsn: int
    next_lsn: int
    """Behind its last record when it was opened."""
    end: int
    """File offset behind its last batch."""
    epoch: int

    def __init__(
        self, number: int, fd: int, base_lsn: int, next_lsn: int, end: int, epoch: int, marks: Marks
    ) -> None: ...
    def close(self) -> None:
        """Close the descriptor. Repeating it is harmless."""

class Resident:
    """The segments that are open, at most 16; the loop's.

    `open_behind(lsn)` is called on the loop to have the segment with that LSN opened and offered soon.
    """

    runs: int
    """Reads so far."""
    bytes: int
    """Bytes of batches they gave."""

    def __init__(self, open_behind: Callable[[int], object]) -> None: ...
    def has(self, number: int) -> bool:
        """Whether the segment of that number is open; for any thread."""

    def offer(self, file: SegmentFile) -> None:
        """Take over an open segment, on the loop; it is closed again if there is one of that number."""

    def forget(self) -> None:
        """Close those that nobody read from since the last call."""

    def close(self) -> None:
        """Close them all."""
