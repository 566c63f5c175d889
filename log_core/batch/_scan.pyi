"""The scan of WAL files after an unclean stop: validity, feeds, changes of tables, sparse index."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

from typing_extensions import Buffer

from penstock.log_core.batch._batch import Batch
from penstock.log_core.delayed._delays import DueHeap
from penstock.log_core.feeds._feed import Feed

@dataclass(slots=True)
class Scanned:
    """The result of one walk over a file."""

    end: int = 0
    """File offset behind the last valid batch (or before an atomic unit without its end)."""
    next_lsn: int = 0
    """The LSN expected there."""
    first_lsn: int = 0
    """LSN of the first batch."""
    reason: str | None = None
    """Why the walk stopped; None: at a zero length or at the end of what was read."""
    crc_expected: int = 0
    crc_found: int = 0
    batches: int = 0
    records: int = 0
    synced_lsn: int = 0
    """The highest one in a valid batch."""
    min_ts: int = 0
    max_ts: int = 0
    unit_dropped: int = 0
    """Nonzero when the walk stopped at an atomic unit without its end."""

class Hit(NamedTuple):
    """A valid batch found by a search."""

    offset: int
    length: int
    lsn: int
    next_lsn: int
    synced_lsn: int
    epoch: int

@final
class Scanner:
    """Reads one file after the other into its buffer and walks over the batches there."""

    size: int
    """Bytes read."""
    def know(self, feed: Feed) -> None:
        """Push the records of this feed from now on."""
    def forget(self, feed_id: int) -> None:
        """Push no more to it; fine when it is not known."""
    def read(self, fd: int, size: int, at: int = 0) -> int:
        """Read `size` bytes of a file from byte `at` on into the buffer; how many there were. Raises OSError.

        All other offsets are places in the buffer.
        """
    def written_end(self, offset: int) -> int:
        """Behind the last byte read that is not zero; at least `offset`."""
    def bytes_at(self, offset: int, length: int) -> bytes:
        """A copy of what was read. Raises ValueError: not all of it was."""
    def scan(
        self,
        offset: int,
        lsn: int,
        epoch: int,
        *,
        base: int,
        gaps: bool = False,
        on_state: Callable[[bytes, bytes | None], object] | None = None,
        state_after: int = 0,
        push: bool = True,
        sparse: Callable[[int, int, int], object] | None = None,
        delayed: DueHeap | None = None,
        stride: int = 65536,
    ) -> Scanned:
        """Walk over valid batches from `offset` on, where LSN `lsn` is expected.

        Args:
            base: The segment's base LSN, which feed entries are relative to.
            gaps: LSNs may be missing (a salvaged file).
            on_state: Called with (key block, value; None = deletion) for state records above `state_after`.
            push: Push persistent records to the known feeds, the others to those that keep all.
            sparse: Called with (LSN, offset, largest time so far) about every `stride` bytes.
            delayed: Takes the entries of delayed records.

        """
    def feeds_at(self, base: int) -> list[Feed]:
        """The known feeds whose last chunk is that of the segment at `base`."""
    def held_bytes(self, offset: int, end: int) -> dict[int, int]:
        """Bytes of the batches in [offset, end), which a scan found valid, by partition.

        `segment.OWN`: of what is nobody's. A compressed block counts for the partition of its first record.
        """
    def search(self, offset: int, lsn: int, epoch: int | None = None) -> Hit | None:
        """The next valid batch at or behind `offset` with an LSN from `lsn` on, of that or of any epoch."""
    def collect(
        self, offset: int, lsn: int, epoch: int, feed: Feed, base: int, gaps: bool, transient: bool
    ) -> bytes:
        """The entries of one feed in this file, u32 each; with or without those of transient records."""

def encode_feeds(feeds: list[Feed], base: int) -> tuple[bytes, int, dict[int, int]]:
    """Directory and entries of a feed index file for the segment at `base`, the rows of the directory, and by
    feed id the bytes of the records of those feeds that keep everything.

    The feeds' chunks must have been pushed to here, record by record, since the process began.
    """

def adopt_directory(scanner: Scanner, directory: Buffer, base: int) -> list[Feed]:
    """Give the known feeds their chunk of a closed segment, out of memory; those that got one.

    Only persistent entries count: the transient records of an earlier process are gone.
    """

def persistent_entries(entries: Buffer) -> bytes:
    """The entries without those of transient records."""

def lost_batch(lsn: int, count: int, epoch: int) -> Batch:
    """A batch of kind LOST that stands for records that can no longer be read."""
