"""Rewriting a closed segment so that it holds only what somebody still needs."""

from collections.abc import Iterable
from typing import final

from typing_extensions import Buffer

@final
class Needs:
    """Which records of the segment with LSNs [base, end) are still needed; empty at first."""

    base: int
    end: int
    def __init__(self, base: int, end: int) -> None: ...
    def need(self, position: int) -> None:
        """The record at `position`; one that is not in the segment is ignored."""
    def need_feed(self, feed: int, from_pos: int, to_pos: int) -> None:
        """The records of a feed at positions [from_pos, to_pos); called again it only widens the span."""
    def need_partition(self, lp: int) -> None:
        """All records of a partition but those in a retention feed."""
    def need_kept(self, retention_feeds: Iterable[tuple[int, int]]) -> None:
        """`retention_feeds`: pairs of a feed's id and a position; its records from there on are kept."""
    def need_marked(self, bits: Buffer) -> None:
        """The records with a bit that is set; bit n of byte b is record 8 * b + n."""
    def signature(self) -> int:
        """The same for the same marks: what stayed by these stays again."""
    def staying(self, data: Buffer, offset: int, look: int = ...) -> tuple[int, int]:
        """About how many bytes of `data` from `offset` on stay, without blocks, and where to go on, behind
        `look` bytes; the size of `data`: nowhere. Reads heads of batches only.

        Raises ValueError at a head that is damaged.
        """
    def survivors(
        self, data: Buffer, offset: int, room: int = ..., look: int = ...
    ) -> tuple[bytes, int, int, dict[int, int]]:
        """The batches of `data` from `offset` on, those in blocks included, without what is not needed.

        Returns about `room` bytes of them (1 MiB; less at the end, and when `look` bytes of `data` were
        looked at), where to go on (the size of `data`: nowhere), how many records they hold, and how many of
        the bytes are of which partition. Raises ValueError at a batch that is damaged: nothing is thrown away
        that cannot be read.
        """

def end_note(lsn: int, epoch: int, max_ts: int) -> bytes:
    """The batch that ends a rewritten segment and says that `lsn` follows it."""
