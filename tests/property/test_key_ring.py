"""Who has which slot of a key-shared group: the kernel against a sorted ring."""

from __future__ import annotations

import bisect
from array import array

from hypothesis import given
from hypothesis import strategies as st

from penstock.subscriptions._keys import KeyShares
from penstock.subscriptions.choosing import SLOTS, points_of

POINTS = st.lists(st.integers(0, SLOTS - 1) | st.sampled_from([0, 1, SLOTS - 1]), min_size=1, max_size=6)


@given(st.lists(POINTS, min_size=1, max_size=5), st.lists(st.integers(0, SLOTS - 1), max_size=20))
def test_a_slot_is_that_of_the_next_point(consumers: list[list[int]], asked: list[int]) -> None:
    keys = KeyShares(lambda: None)
    keys.set_ring([(array("H", points), at + 1) for at, points in enumerate(consumers)])
    ring = sorted((point, at + 1) for at, points in enumerate(consumers) for point in points)
    for slot in [*asked, *(point for point, _ in ring), 0, SLOTS - 1]:
        expected = ring[bisect.bisect_left(ring, (slot, 0)) % len(ring)][1]
        assert keys.owner_of(slot) == expected


@given(st.lists(st.text(max_size=8), min_size=2, max_size=8, unique=True), st.data())
def test_only_what_was_its_own_changes_hands_when_one_leaves(names: list[str], data: st.DataObject) -> None:
    leaver = data.draw(st.sampled_from(names))
    before, after = KeyShares(lambda: None), KeyShares(lambda: None)
    numbers = {name: at + 1 for at, name in enumerate(sorted(names))}
    before.set_ring([(points_of(name), numbers[name]) for name in sorted(names)])
    after.set_ring([(points_of(name), numbers[name]) for name in sorted(names) if name != leaver])
    for slot in range(0, SLOTS, 97):
        if before.owner_of(slot) != numbers[leaver]:
            assert after.owner_of(slot) == before.owner_of(slot)
        else:
            assert after.owner_of(slot) != numbers[leaver]


def test_the_shares_of_many_are_alike() -> None:
    keys = KeyShares(lambda: None)
    keys.set_ring([(points_of(f"worker-{i:02}"), i + 1) for i in range(10)])
    shares = [0] * 10
    for slot in range(SLOTS):
        shares[keys.owner_of(slot) - 1] += 1
    assert max(shares) < 2 * min(shares)


def test_nobody_has_anything_where_there_is_nobody() -> None:
    keys = KeyShares(lambda: None)
    keys.set_ring([])
    assert keys.owner_of(0) == keys.owner_of(SLOTS - 1) == 0
