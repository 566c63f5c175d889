"""Entries of delayed records in time order: a heap in memory, and its form in index files.

An entry is (due, place, LSN, bytes): when a record is due, in ms since the epoch; the LSN at which it was
scheduled first, which orders those due at the same time; where it is now; its size. Entries are ordered by
(due, place), the higher LSN first where both are equal. Encoded it has `ENTRY_BYTES`.
"""

from typing import Final, final

from typing_extensions import Buffer

Key = tuple[int, int]
"""(due, place)."""

ENTRY_BYTES: Final = 32

@final
class DueHeap:
    """Entries, the first due on top; 32 bytes of memory each."""

    def push(self, due: int, place: int, lsn: int, size: int) -> None:
        """`due` in ms since the epoch, `size` in bytes. Raises MemoryError."""
    def push_between(self, raw: Buffer, due: int, place: int, last_due: int, last_place: int) -> int:
        """Push the encoded entries with (due, place) < key <= (last_due, last_place); how many those were."""
    def first(self) -> Key | None:
        """The key of the first one; None: there is none."""
    def pop(self) -> tuple[int, int, int, int]:
        """Take out the first entry. Raises IndexError."""
    def find(self, due: int, place: int) -> int:
        """The LSN of the entry with this key, the highest if there are two; 0: there is none. Linear."""
    def last(self) -> Key | None:
        """The key of the last one. Linear."""
    def first_behind(self, due: int, place: int, count: int) -> bytes:
        """The first `count` entries with a key above (due, place), encoded and in order.

        The cost is of those before it: nothing at the front, 8 ms behind a million.
        """
    def encode(self) -> bytes:
        """All entries, in no order."""
    def __len__(self) -> int: ...

def sorted_entries(raw: bytes) -> bytes:
    """Encoded entries in order; works without the interpreter's lock."""

def total_size(raw: Buffer) -> int:
    """The bytes of the records that encoded entries stand for."""

def count_by(raw: Buffer, step: int, without: set[int]) -> list[tuple[int, int]]:
    """Of entries in order, how many are due in each span of `step` ms that has some: (its beginning, count).

    Equal keys are one; places in `without` do not count. Raises ValueError: `step` is below 1.
    """

def decode_entry(raw: Buffer, index: int) -> tuple[int, int, int, int]:
    """Entry `index` of encoded ones. Raises IndexError."""
