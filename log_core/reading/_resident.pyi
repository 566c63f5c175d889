"""Runs of batches out of the page cache. The module text is in _resident.pyx; runs are read in C."""

from collections.abc import Callable

from penstock.log_core.segments._segment_file import SegmentFile

class Resident:
    """The segments that are open, at most 16; the loop's.

    `open_behind(lsn)` is called on the loop to have the segment with that LSN opened and offered soon.
    """

    runs: int
    """Reads so far."""
    bytes: int
    """Bytes of batches they gave."""
    sent: int
    """Bytes of batches that went out without being read."""
    brought: int
    """Times that the page cache was asked to get what it lacked ahead of a reader."""

    def __init__(self, open_behind: Callable[[int], object]) -> None: ...
    def has(self, number: int) -> bool:
        """Whether the segment of that number is open; for any thread."""

    def offer(self, file: SegmentFile) -> None:
        """Take over an open segment, on the loop; it is closed again if there is one of that number."""

    def distrust(self, number: int) -> None:
        """There is damage in the segment of that number: what is read of it is looked at."""

    def forget(self) -> None:
        """Close those that nobody read from since the last call."""

    def close(self) -> None:
        """Close them all."""
