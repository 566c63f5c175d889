"""The end of the file that is being written."""

from collections.abc import Callable

from penstock.log_core.batch._batch import Batch
from penstock.log_core.segments.segment import Segment

class ActiveFile:
    """The active segment's file, to which each turn's batches are added. Its descriptor is not its own."""

    segment: Segment
    """The readers' view of the file; kept true with each write."""
    fd: int
    pending: list[Batch]
    """Batches of earlier turns that the disk had no room for."""
    end: int
    """Where the next batch goes."""
    roll_at: int
    """From this length on the file is full; the next turn belongs into another."""

    def __init__(self, write_batches: Callable[[int, list[Batch], int, int], int]) -> None:
        """`write_batches`: as in `_io`."""

    def take(self, segment: Segment, fd: int, roll_at: int) -> None:
        """Go on in this file, behind `segment.end`."""
