"""Group commit: one thread that syncs what is written."""

from collections.abc import Callable

from penstock.log_core.files.files import Files

class Committer:
    """The sync thread of one log."""

    syncs: int
    """Done so far."""
    ns: int
    """Nanoseconds spent in them."""
    def __init__(self, files: Files, done: Callable[[int, int, OSError | None], object]) -> None:
        """`done(lsn, mark, error)` is called by the thread after each sync while no bell hangs, and when one
        fails, which is the last.
        """
    def want(self, descriptors: tuple[int, ...], lsn: int, mark: int) -> None:
        """Sync these files, which hold everything up to `lsn`; `mark` comes back with the answer.

        A call replaces the one before unless that is already being worked on, so `descriptors` names every
        file that is not known to be synced, oldest first.
        """
    def release(self, fd: int) -> None:
        """Close a descriptor that later calls of `want` do not name, once no sync can be using it."""
    def hang_bell(self) -> int:
        """An eventfd that becomes readable with each sync from now on; it stays the committer's."""
    def answer_bell(self) -> tuple[int, int]:
        """The LSN and the mark that the last sync was asked for, (0, 0) before the first; the bell is silent
        again."""
    def take_bell_down(self) -> tuple[int, int]:
        """The same, once more: from now on `done` is called."""
    def stop(self) -> None:
        """End the thread after the sync that is wanted."""
