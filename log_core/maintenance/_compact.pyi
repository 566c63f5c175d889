"""Which records of a feed are the last ones of their keys: what key compaction keeps."""

from typing import final

from typing_extensions import Buffer

@final
class KeyMap:
    """The keys of one feed; 32 bytes each, at most half full."""

    keys: int
    full: bool
    """There were more than `keys_max` keys: records of the others are kept."""
    def __init__(self, feed: int, keys_max: int) -> None: ...
    def fill(self, data: Buffer, offset: int) -> None:
        """Take in the records of the segment `data`, whose batches begin at `offset`.

        Raises ValueError (a batch is damaged), MemoryError.
        """
    def survivors(self, data: Buffer, offset: int, base: int, end: int, old_ms: int) -> bytes:
        """A bit for each LSN in [base, end): set for the feed's records that stay.

        `old_ms`: tombstones from before that time (ms since 1970) may go. Raises ValueError.
        """
