"""Records that were appended and are not written yet. The module text is in _unwritten.pyx."""

from collections.abc import Callable

from penstock.log_core.batch._appender import Appender
from penstock.log_core.batch._batch import Batch
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.reading._tail import Cache

class Unwritten:
    """Between the appender and the write."""

    holds_back: bool
    """Cursors find a batch when it is durable, not when it is written."""
    on_shown: Callable[[], object] | None
    """Called when there are feeds for `take_dirty` that became durable."""

    def __init__(self, appender: Appender, cache: Cache, holds_back: bool = False) -> None: ...
    def anything(self) -> bool:
        """Whether there may be something to write, or the time of this turn was asked for."""

    def publish(self) -> None:
        """Let cursors find what was appended already before the next write, unless it holds back."""

    def take_dirty(self) -> list[Feed]:
        """The feeds pushed to since the last call; if it holds back, those whose entries became durable."""

    def take(self) -> list[Batch]:
        """All that is to be written, oldest first. It belongs to the caller."""

    def written(self, batches: list[Batch]) -> None:
        """All that was appended is written: let cursors find these too, those that are not published yet."""

    def show(self, lsn: int) -> None:
        """All up to `lsn` is durable: one that holds back lets cursors find it."""
