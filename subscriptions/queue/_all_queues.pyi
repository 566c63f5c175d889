"""The face of the kernel `_all_queues`: questions to the cursors of very many queues."""

from penstock.subscriptions.queue.queue import Queue

def moved(queues: list[Queue], start: int, end: int) -> tuple[list[Queue], list[Queue]]:
    """Of the queues at places [start, end): those never asked about, and those whose counts may have changed.

    A count is what came in, waits, is out or was done, and what `Cursor.touch` was called for. Messages of a
    stream are not looked at.
    """

def lowest(queues: list[Queue], start: int, end: int) -> int:
    """The lowest position that queues at places [start, end) still need, but for streams; 2^64 - 1: none."""
