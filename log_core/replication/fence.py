"""The rules by which one partition decides who owns it, without I/O and without a clock.

A node becomes the owner by appending a CLAIM. The owner is the node whose CLAIM is the last one. The journal
keeps one order, and what it has confirmed neither moves nor disappears. From this two rules follow.

Reader (`ReaderFence`): an entry counts if its `claim` is the last CLAIM before it, and its `index` is the
next one. A lower index is a repetition. Another claim belongs to a replaced owner. Both are skipped. A higher
index is a hole, which cannot be.

Owner (`OwnerFence`): entry k belongs at offset `base + k`, where `base` is the offset of the CLAIM. A higher
offset in an answer says that somebody wrote in between. The owner reads that gap before it confirms anything
more. A CLAIM in it means that the owner was replaced. Otherwise `base` moves up by the foreign entries.

So an owner confirms entry k only if no other CLAIM lies before it. Every later owner reads up to its own
CLAIM, and therefore has entry k.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final

from penstock.errors import LogError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.replication.entries import Entry, Kind

__all__ = ["Gap", "Hole", "OffsetsFell", "OwnerFence", "ReaderFence", "Replaced", "Verdict"]


class Replaced(LogError):
    """Another node has claimed the journal: nothing more of this owner counts."""

    def __init__(self, offset: int) -> None:
        super().__init__(
            f"another node claimed the log at offset {offset}",
            remedy="nothing is lost: this node starts again as a standby",
        )
        self.offset = offset


class Hole(LogError):
    """An entry is missing in the middle of the journal."""

    def __init__(self, offset: int, expected: int, found: int) -> None:
        super().__init__(
            f"the journal has a hole at offset {offset}: entry {expected} is missing, entry {found} follows",
            remedy="do not delete records of the topic; set log.engine to local on the last owner to go on",
        )


class OffsetsFell(LogError):
    """An answer has a lower offset than entries that were kept before."""

    def __init__(self, offset: int, expected: int) -> None:
        super().__init__(
            f"the journal lost entries: offset {offset} came where {expected} or more belongs",
            remedy="the topic was deleted or truncated; see docs/how-to/cluster.md, Kafka lost its data",
        )


class Verdict(Enum):
    """The meaning of an entry for a reader."""

    APPLY = "it counts"
    SKIP = "a repetition, or of a replaced owner"
    CLAIMED = "the journal has a new owner"
    RELEASED = "the present owner serves no more"


# A look-up of a member costs 0.1 us in Python 3.11, and a standby makes several for each entry.
_APPLY: Final = Verdict.APPLY
_CLAIM: Final = Kind.CLAIM
_RELEASE: Final = Kind.RELEASE


class ReaderFence:
    """Decides for each entry, in order of their offsets, whether it counts."""

    def __init__(self, claim: int = -1, index: int = 0) -> None:
        """`claim`: offset of the last CLAIM that was read, -1 = none; `index`: the last one that counted."""
        self.claim = claim
        self.index = index

    def take(self, offset: int, entry: Entry) -> Verdict:
        """Decide about the entry at `offset`. Raises Hole."""
        if entry.kind is _CLAIM:
            self.claim, self.index = offset, 0
            return Verdict.CLAIMED
        if self.claim < 0:
            # The journal is trimmed up to an entry that counts, so the first one is one.
            self.claim, self.index = entry.claim, entry.index - 1
        if entry.claim != self.claim:
            return Verdict.SKIP
        if entry.kind is _RELEASE:
            return Verdict.RELEASED
        if entry.index <= self.index:
            return Verdict.SKIP
        if entry.index != self.index + 1:
            raise Hole(offset, self.index + 1, entry.index)
        self.index = entry.index
        return _APPLY


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that must be read before anything more is confirmed: `first` to `end`, without `end`."""

    first: int
    end: int


class OwnerFence:
    """Says how far the entries of one owner are kept, from the journal's answers in their order."""

    def __init__(self, claim: int) -> None:
        """`claim`: offset of the owner's CLAIM."""
        self.kept = 0
        """The highest index that is kept: it may be confirmed."""
        self.gap: Gap | None = None
        """Answers are not looked at until it is read."""
        self._base = claim
        self._answers: deque[tuple[int, int]] = deque()

    def answered(self, index: int, offset: int | None) -> None:
        """The journal has kept entry `index`, at `offset`; None: it does not say where.

        Raises OffsetsFell.
        """
        if offset is None:
            return  # the next answer tells
        self._answers.append((index, offset))
        if self.gap is None:
            self._go_on()

    def offset_of(self, index: int) -> int:
        """The offset of entry `index`, the one that was kept last."""
        return self._base + index

    def gap_read(self, entries: Iterable[tuple[int, Entry]]) -> None:
        """`entries`: all with their offsets in `gap`. Raises Replaced, OffsetsFell."""
        assert self.gap is not None
        for offset, entry in entries:
            if entry.kind == Kind.CLAIM:
                raise Replaced(offset)
        index, offset = self._answers.popleft()
        self._base = offset - index
        self.kept = index
        self.gap = None
        self._go_on()

    def _go_on(self) -> None:
        while self._answers:
            index, offset = self._answers[0]
            expected = self._base + index
            if offset < expected:
                raise OffsetsFell(offset, expected)
            if offset > expected:
                self.gap = Gap(self._base + self.kept + 1, offset)
                return
            self._answers.popleft()
            self.kept = index
