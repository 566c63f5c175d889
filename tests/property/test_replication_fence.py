"""Owners, zombies, lost answers and trims in any order: no later reader skips what was confirmed.

A partition is a list. Owners append, their entries arrive late and in any mix, and their answers come later
still, some without an offset. Each claim, wherever it falls, fences all owners before it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from penstock.log_core.replication import fence
from penstock.log_core.replication.entries import Entry, Kind
from penstock.log_core.replication.fence import Hole, OwnerFence, ReaderFence, Replaced, Verdict

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["claim", "send", "send", "arrive", "arrive", "answer", "answer", "mute", "hint", "trim"]
        ),
        st.integers(0, 3),
    ),
    max_size=60,
)


GENERATE = settings(max_examples=20_000, deadline=None, database=None, phases=[Phase.generate])


class Owner:
    """An owner, its entries that are on their way, and the answers that are on theirs."""

    def __init__(self, claim: int, make: Callable[[int], OwnerFence]) -> None:
        self.claim = claim
        self.fence = make(claim)
        self.sent = 0
        self.travelling: list[Entry] = []
        self.answers: list[tuple[int, int | None]] = []
        self.confirmed = 0
        self.replaced = False


class World:
    def __init__(
        self, make_owner: Callable[[int], OwnerFence], make_reader: Callable[[], ReaderFence]
    ) -> None:
        self.entries: list[Entry] = []
        self.first = 0
        self.owners: list[Owner] = []
        self.make_owner = make_owner
        self.make_reader = make_reader
        self.promised: set[tuple[int, int]] = set()
        """Claim and index of each entry that was confirmed."""

    def run(self, steps: list[Step]) -> None:
        for what, which in steps:
            if what == "claim":
                self.entries.append(Entry(Kind.CLAIM))
                self.owners.append(Owner(len(self.entries) - 1, self.make_owner))
            elif self.owners:
                getattr(self, what)(self.owners[-1 - which % len(self.owners)])
            self.check()

    def send(self, owner: Owner) -> None:
        if not owner.replaced:
            owner.sent += 1
            owner.travelling.append(Entry(Kind.BEAT, owner.claim, owner.sent))

    def arrive(self, owner: Owner) -> None:
        if owner.travelling:
            entry = owner.travelling.pop(0)
            self.entries.append(entry)
            owner.answers.append((entry.index, len(self.entries) - 1))

    def mute(self, owner: Owner) -> None:
        """The oldest answer loses its offset."""
        if owner.answers:
            owner.answers[0] = (owner.answers[0][0], None)

    def hint(self, owner: Owner) -> None:
        """Its supervisor releases in its name."""
        self.entries.append(Entry(Kind.RELEASE, owner.claim))

    def answer(self, owner: Owner) -> None:
        if not owner.answers or owner.replaced:
            return
        try:
            owner.fence.answered(*owner.answers.pop(0))
            while owner.fence.gap is not None:
                gap = owner.fence.gap
                owner.fence.gap_read([(at, self.entries[at]) for at in range(gap.first, gap.end)])
        except Replaced:
            owner.replaced = True
        for index in range(owner.confirmed + 1, owner.fence.kept + 1):
            self.promised.add((owner.claim, index))
        owner.confirmed = owner.fence.kept

    def trim(self, owner: Owner) -> None:
        """The last owner trims up to an entry of its own that is kept, as when it sent all files again."""
        last = self.owners[-1]
        if last.fence.kept and not last.replaced:
            for offset in range(len(self.entries) - 1, self.first, -1):
                entry = self.entries[offset]
                if (entry.claim, entry.index) == (last.claim, last.fence.kept) and entry.kind == Kind.BEAT:
                    self.promised = {it for it in self.promised if it >= (last.claim, entry.index)}
                    self.first = offset
                    return

    def check(self) -> None:
        """A reader from the start finds all that was promised, in order, and no two readers disagree."""
        reader = self.make_reader()
        found: list[tuple[int, int]] = []
        for offset in range(self.first, len(self.entries)):
            entry = self.entries[offset]
            if reader.take(offset, entry) is Verdict.APPLY:
                found.append((entry.claim, entry.index))
        assert found == sorted(found), "out of order"
        assert self.promised <= set(found), f"confirmed, but not read: {self.promised - set(found)}"


@settings(max_examples=600, deadline=None)
@given(STEPS)
def test_nothing_confirmed_is_skipped(steps: list[Step]) -> None:
    World(OwnerFence, ReaderFence).run(steps)


class GapNotRead(OwnerFence):
    def gap_read(self, entries: Any) -> None:
        super().gap_read(())


class OffsetNotLookedAt(OwnerFence):
    def answered(self, index: int, offset: int | None) -> None:
        self.kept = index


class GapOfTheNewestOnly(OwnerFence):
    """Reads only what lies right before the newest answer."""

    def _go_on(self) -> None:
        super()._go_on()
        if self.gap is not None:
            self.gap = fence.Gap(self.gap.end - 1, self.gap.end)


class AnyClaimCounts(ReaderFence):
    def take(self, offset: int, entry: Entry) -> Verdict:
        return Verdict.APPLY if entry.kind == Kind.BEAT else super().take(offset, entry)


class FirstEntryNotTaken(ReaderFence):
    """Waits for a CLAIM at the start of a journal that was trimmed."""

    def take(self, offset: int, entry: Entry) -> Verdict:
        if self.claim < 0 and entry.kind != Kind.CLAIM:
            return Verdict.SKIP
        return super().take(offset, entry)


class OldClaimsCount(ReaderFence):
    """Compares claims by their order: those that are older count as well."""

    def take(self, offset: int, entry: Entry) -> Verdict:
        if entry.kind == Kind.BEAT and 0 <= entry.claim < self.claim:
            return Verdict.APPLY
        return super().take(offset, entry)


BROKEN_BY: dict[tuple[type[OwnerFence], type[ReaderFence]], list[Step]] = {
    (GapNotRead, ReaderFence): [("claim", 0), ("claim", 0), ("send", 1), ("arrive", 1), ("answer", 1)],
    (OffsetNotLookedAt, ReaderFence): [
        ("claim", 0),
        ("send", 0),
        ("claim", 0),
        ("arrive", 1),
        ("answer", 1),
    ],
    (GapOfTheNewestOnly, ReaderFence): [
        ("claim", 0),
        ("claim", 0),
        ("send", 0),
        ("send", 1),
        ("arrive", 0),
        ("arrive", 1),
        ("answer", 1),
    ],
    (OwnerFence, AnyClaimCounts): [
        ("claim", 0),
        ("send", 0),
        ("claim", 0),
        ("claim", 0),
        ("send", 0),
        ("arrive", 0),
        ("arrive", 2),
    ],
    (OwnerFence, FirstEntryNotTaken): [("claim", 0), ("send", 0), ("arrive", 0), ("answer", 0), ("trim", 0)],
    (OwnerFence, OldClaimsCount): [
        ("claim", 0),
        ("send", 0),
        ("claim", 0),
        ("send", 0),
        ("arrive", 0),
        ("arrive", 1),
    ],
}
"""The shortest history that the search found for each pair of fences that lacks a rule."""


def breaks(owner: type[OwnerFence], reader: type[ReaderFence], steps: list[Step]) -> bool:
    """Whether the property fails with these fences."""
    try:
        World(owner, reader).run(steps)
    except (AssertionError, Hole):
        return True
    return False


@pytest.mark.parametrize(("owner", "reader"), BROKEN_BY)
def test_each_rule_is_needed(owner: type[OwnerFence], reader: type[ReaderFence]) -> None:
    """A history breaks the property when the rule is left out, and holds when it is there."""
    steps = BROKEN_BY[owner, reader]
    assert breaks(owner, reader, steps)
    World(OwnerFence, ReaderFence).run(steps)


if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz":  # make fuzz; the suite has what it found, above

    @pytest.mark.parametrize(("owner", "reader"), BROKEN_BY)
    def test_a_search_finds_each_rule_missing(owner: type[OwnerFence], reader: type[ReaderFence]) -> None:
        """The strategy makes a history that breaks the property without the rule."""
        try:
            find(STEPS, lambda steps: breaks(owner, reader, steps), settings=GENERATE)
        except NoSuchExample:
            pytest.fail("the property holds without this rule")


def test_a_repetition_is_skipped_and_a_hole_is_found() -> None:
    reader = ReaderFence()
    assert reader.take(0, Entry(Kind.CLAIM)) is Verdict.CLAIMED
    assert reader.take(1, Entry(Kind.BEAT, 0, 1)) is Verdict.APPLY
    assert reader.take(2, Entry(Kind.BEAT, 0, 1)) is Verdict.SKIP
    assert reader.take(3, Entry(Kind.RELEASE, 0)) is Verdict.RELEASED
    with pytest.raises(Hole, match="entry 2 is missing, entry 3 follows"):
        reader.take(4, Entry(Kind.BEAT, 0, 3))


def test_an_offset_below_what_was_kept_is_no_answer_of_this_journal() -> None:
    owner = OwnerFence(10)
    owner.answered(1, 11)
    with pytest.raises(fence.OffsetsFell, match="offset 3 came where 12"):
        owner.answered(2, 3)
