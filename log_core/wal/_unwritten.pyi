"""Records that were appended and are not written yet. The module text is in _unwritten.pyx."""

from penstock.log_core.batch._appender import Appender
from penstock.log_core.batch._batch import Batch
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.reading._tail import Cache

class Unwritten:
    """Between the appender and the write."""

    def __init__(self, appender: Appender, cache: Cache) -> None: ...
    def anything(self) -> bool:
        """Whether there may be something to write, or the time of this turn was asked for."""

    def publish(self) -> None:
        """Let cursors find what was appended already before the next write."""

    def take_dirty(self) -> list[Feed]:
        """The feeds pushed to since the last call."""

    def take(self) -> list[Batch]:
        """All that is to be written, oldest first. It belongs to the caller."""

    def written(self, batches: list[Batch]) -> None:
        """All that was appended is written: let cursors find these too, those that are not published yet."""
