"""Segments' files that are open to be read on the loop. The module text is in _segment_file.pyx."""

from collections.abc import Callable
from typing import Any

from penstock.log_core.segments.segment import Marks

def count_pages(wanted: bool) -> bool:
    """Ask `cachestat` again, or no more; whether it was asked. For tests."""

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
    whole: bool
    """No damage is known of; else nothing goes out that was not looked at."""

    def __init__(
        self,
        number: int,
        fd: int,
        base_lsn: int,
        next_lsn: int,
        end: int,
        epoch: int,
        marks: Marks,
        submit: Callable[[Callable[[], Any], Callable[[Any], object]], object],
    ) -> None:
        """`submit(work, done)` does `work` on a thread and calls `done` with its result on the loop."""

    def close(self) -> None:
        """Close the descriptor, as soon as no stretch of it waits to be sent. Repeating it is harmless."""

    def stretch(self, offset: int, size: int) -> Stretch:
        """Bytes [offset, offset + size) of it. For tests: kernels make theirs in C."""

class Stretch:
    """Bytes of a segment that go out as they are. Keeps its file open."""

    offset: int
    size: int
    """Of what is left."""
    at: int
    """Before this byte of the output that it belongs to."""

    loads: bool
    """A thread reads it: it is not to be sent before."""

    def bring(self) -> None:
        """Have a thread ask for what of it is not in the page cache, and not wait for it."""

    def load(self, done: Callable[[bytes | OSError], object]) -> None:
        """Have a thread read what is left; `done` gets it on the loop, or why it cannot be read."""
