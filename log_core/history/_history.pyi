"""The walk over old segments that finds the records of a pattern which had no feed back then."""

from collections.abc import Iterable
from typing import final

from typing_extensions import Buffer

from penstock.log_core.history._content import Content
from penstock.log_core.threads._pace import Pace

@final
class KeyScan:
    """Key blocks met so far and the verdicts about them, and the walks over one segment's bytes at a time.

    A walk looks at the records with LSNs in [first, last) of the segment at `base`, whose batches begin at
    `offset` of `data`. It holds no lock of the interpreter.
    """

    keys: int
    """Key blocks that are known."""
    asks: bool
    """Some entry of the last `take` is to be asked about."""
    damaged: int
    """Places where what should be a batch was none, and was passed over."""
    reached: int
    """The LSN that the last `take` goes on with, as it found as much as it may; 0: it found all."""
    counted: int
    """Records that `pass_over` counted."""
    def __init__(
        self,
        lp: int,
        floor: int = 0,
        retention_feeds: Iterable[tuple[int, int]] = (),
        content: Content | None = None,
        most: int = 0,
        pace: Pace | None = None,
    ) -> None:
        """`lp`: records of other partitions are passed over.

        `floor`: the LSN below which only retention feeds keep records; `retention_feeds`: pairs of a
        feed's id and the LSN from which on it is kept. A record in such feeds is seen when one keeps it.

        `content`: what a record must have besides; `most`: what one `take` finds at most, 0: everything.

        `pace`: when the walks rest, and end `pass_over`; None: they do not.
        """

    def clear(self) -> None:
        """Forget all key blocks."""
    def unknown(self, data: Buffer, offset: int, first: int, last: int, base: int) -> list[tuple[int, bytes]]:
        """(encoding, key block) of records there that nobody decided about, each once, up to 16,384.

        Decide about each before the next walk. Empty: all are decided, `take` may be called.
        """
    def decide(self, enc: int, key: bytes, verdict: int) -> None:
        """0: not wanted, 1: wanted, 2: ask for each record. Raises ValueError for a key never listed."""
    def take(self, data: Buffer, offset: int, first: int, last: int, base: int) -> bytes:
        """Record numbers (LSN - base) of what is wanted, u32 each, ascending; high bit: ask."""

    def pass_over(
        self,
        fd: int,
        ends: Buffer,
        offset: int,
        first: int,
        last: int,
        base: int,
        seconds: float,
        counts: bool,
    ) -> tuple[int, bool, list[tuple[int, bytes]]]:
        """Read the slices of a file up to one where somebody is needed, without the interpreter's lock.

        The first slice begins at `offset`, slice k ends at `ends[k]` (array of "Q"), each at the beginning
        of a batch. It ends after `seconds`, and when the pace says so.

        With `counts` what is wanted is added to `counted`, as far as nobody need be asked about it.

        Returns how many slices are done with; whether the next one has something that is wanted, or cannot
        be read; and the key blocks there that nobody decided about: decide about each, and go on.
        """

    def places_of_batches(self) -> list[int]:
        """With a content: where in the data each entry's batch begins, or the block that it is in."""
