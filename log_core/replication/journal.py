"""The port to the system that keeps the entries, which other machines read: one ordered partition.

An implementation promises three things. Entries get consecutive offsets in the order of the partition. An
entry that was answered neither moves nor disappears. A reader sees the entries in the order of their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from penstock.errors import LogError

__all__ = ["Answer", "Bounds", "Follower", "Journal", "JournalFailed", "Trimmed"]

Answer = Callable[[int, int | None, LogError | None], object]
"""`(index, offset, error)`: entry `index` is kept, at `offset` (None: it is not told); or nothing more is."""


class JournalFailed(LogError):
    """The journal cannot be used any more, or not as it is."""


class Trimmed(JournalFailed):
    """The offset to read from is not there any more."""


class Bounds(NamedTuple):
    """The offsets of a journal."""

    first: int
    """Of the oldest entry that is there."""
    end: int
    """Of the next entry."""


class Follower(Protocol):
    """Reads one partition in order, for one thread."""

    def begin(self, first: int) -> None:
        """Go on from the offset `first`."""

    def end(self) -> None:
        """Read no more, until `begin`."""

    def poll(self, seconds: float) -> list[tuple[int, bytes]]:
        """Some entries with their offsets; none: none came in `seconds`. Raises Trimmed, JournalFailed."""

    def end_seen(self) -> int:
        """The journal's end as it was told with the newest entries; nobody is asked."""

    def bounds(self, seconds: float) -> Bounds:
        """As of now. Raises JournalFailed: they are not told in time."""

    def close(self) -> None:
        """End."""


class Journal(Protocol):
    """One partition."""

    @property
    def topic(self) -> str:
        """Its name."""

    def claim(self, raw: bytes) -> int:
        """Append a CLAIM and wait until it is kept; its offset. Raises JournalFailed."""

    def begin(self, answer: Answer) -> None:
        """From now on tell `answer` of appended entries, in order, from a thread of the journal."""

    def append(self, index: int, raw: bytes) -> None:
        """Append an entry behind all earlier ones, without waiting. Raises JournalFailed."""

    def hint(self, raw: bytes) -> int:
        """Append an entry without an index, and wait until it is kept; its offset. Raises JournalFailed."""

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The entries from `first` to `end`, without `end`. Waits for them. Raises JournalFailed."""

    def follow(self, first: int) -> Follower:
        """Read from `first` on. Entries may gather for a moment, which costs less."""

    def follow_closely(self, first: int) -> Follower:
        """The same, but each entry comes at once. `read` uses it, too; it is the journal's to close."""

    def note(self, text: str) -> None:
        """Tell others something about this node; does not wait, and may get lost."""

    def notes(self) -> list[str]:
        """Notes of all nodes, the newest ones last. Raises JournalFailed."""

    def bounds(self) -> Bounds:
        """Raises JournalFailed: the journal does not answer."""

    def trim(self, before: int) -> None:
        """Delete the entries below the offset `before`. Raises JournalFailed."""

    def close(self) -> None:
        """Let go of it; entries that are not kept yet may get lost."""
