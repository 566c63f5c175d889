"""Batches of the log to columns in Arrow's layout, without a Python object per record."""

from collections.abc import Callable, Collection
from typing import final

from typing_extensions import Buffer as BufferLike

COLUMN_NAMES: tuple[str, ...]
"""The columns of the table `traffic`, in their order."""

@final
class Buffer:
    """Memory of one column; exported read-only by the buffer protocol, freed with the last view."""

    def __buffer__(self, flags: int) -> memoryview: ...

Column = tuple[int, Buffer | None, Buffer, Buffer | None]
"""(rows that are null, bitmap of validity or None: none is, values, int32 offsets of text and lists)."""

class Rows:
    """Collects rows out of batches until `release` hands them over as buffers."""

    count: int
    """Rows since the last `release`."""
    nbytes: int
    """Bytes of their records."""
    next_lsn: int
    """Behind the last batch taken; set it to the first LSN wanted before a segment's first `take`."""
    gaps: list[tuple[int, int]]
    """[from, to): LSNs that were expected there and are missing, oldest first. The caller empties it."""
    def __init__(
        self,
        columns: Collection[str],
        *,
        vhosts: dict[int, bytes],
        decide: Callable[[int, bytes], bool] | None = None,
        wanted_vhosts: Collection[bytes] | None = None,
        encodings: int = 0,
        payload_max: int = -1,
        names: tuple[str, ...] = ...,
    ) -> None:
        """Args:
        names: The columns of the table, in their order.
        columns: Those to fill; ValueError for one that is none.
        vhosts: Names by log partition.
        decide: Asked once per distinct (encoding, key block) whether its records are wanted; None: all.
        wanted_vhosts: Only records of these vhosts.
        encodings: Bits (1 << encoding) of the wanted ones; 0: all.
        payload_max: Bytes of a payload that are kept; -1: all.

        """
    def take(
        self, data: BufferLike, at: int, first: int, last: int, epoch: int, rows_max: int, bytes_max: int
    ) -> tuple[int, int, str | None, int, int]:
        """Take the records with LSNs in [first, last) out of whole batches, from byte `at` of `data` on.

        Stops behind the batch that fills `rows_max` or `bytes_max`; one batch adds at most 65,536 rows and
        1 MiB, or one larger record.

        Returns where it stopped, and there: the length of a batch that goes on behind `data` (else 0), what
        is wrong (None: nothing), the expected and the found CRC.
        """
    def release(
        self,
    ) -> tuple[int, list[tuple[str, int, Buffer | None, Buffer, Buffer | None]], int, list[Column]]:
        """Hand over what was collected and begin anew.

        Returns the rows, (name, *Column) of each wanted column in table order, the number of headers in all
        rows, and the columns name, type and value of these (nothing when headers are not wanted).
        """
