"""Who has which slot of a key-shared group: the kernel against a sorted ring."""

from __future__ import annotations

import bisect
from array import array
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from penstock.subscriptions._keys import KeyShares, slot
from penstock.subscriptions.choosing import SLOTS, points_of

POINTS = st.lists(st.integers(0, SLOTS - 1) | st.sampled_from([0, 1, SLOTS - 1]), min_size=1, max_size=6)


@given(st.lists(POINTS, min_size=1, max_size=5), st.lists(st.integers(0, SLOTS - 1), max_size=20))
def test_a_slot_is_that_of_the_next_point(consumers: list[list[int]], asked: list[int]) -> None:
    keys = KeyShares(lambda: None)
    keys.set_ring([(array("H", points), at + 1) for at, points in enumerate(consumers)])
    ring = sorted((point, at + 1) for at, points in enumerate(consumers) for point in points)
    for one in [*asked, *(point for point, _ in ring), 0, SLOTS - 1]:
        expected = ring[bisect.bisect_left(ring, (one, 0)) % len(ring)][1]
        assert keys.owner_of(one) == expected


@given(st.lists(st.text(max_size=8), min_size=2, max_size=8, unique=True), st.data())
def test_only_what_was_its_own_changes_hands_when_one_leaves(names: list[str], data: st.DataObject) -> None:
    leaver = data.draw(st.sampled_from(names))
    before, after = KeyShares(lambda: None), KeyShares(lambda: None)
    numbers = {name: at + 1 for at, name in enumerate(sorted(names))}
    before.set_ring([(points_of(name), numbers[name]) for name in sorted(names)])
    after.set_ring([(points_of(name), numbers[name]) for name in sorted(names) if name != leaver])
    for one in range(0, SLOTS, 97):
        if before.owner_of(one) != numbers[leaver]:
            assert after.owner_of(one) == before.owner_of(one)
        else:
            assert after.owner_of(one) != numbers[leaver]


def test_the_shares_of_many_are_alike() -> None:
    keys = KeyShares(lambda: None)
    keys.set_ring([(points_of(f"worker-{i:02}"), i + 1) for i in range(10)])
    shares = [0] * 10
    for one in range(SLOTS):
        shares[keys.owner_of(one) - 1] += 1
    assert max(shares) < 2 * min(shares)


def test_nobody_has_anything_where_there_is_nobody() -> None:
    keys = KeyShares(lambda: None)
    keys.set_ring([])
    assert keys.owner_of(0) == keys.owner_of(SLOTS - 1) == 0


def test_keys_that_differ_in_a_digit_are_spread_over_the_slots() -> None:
    """No half of the slots has all of ten neighbours, and no eighth of them most of a hundred."""
    for name in ("%d", "k%d", "user-%d", "order-%05d", "device/%d/temperature"):
        slots = [slot((name % i).encode()) for i in range(100)]
        for at in range(0, 100, 10):
            assert {one >> 15 for one in slots[at : at + 10]} == {0, 1}, name
        shares = [sum(one >> 13 == eighth for one in slots) for eighth in range(8)]
        assert max(shares) <= 25, (name, shares)
        assert min(shares) >= 3, (name, shares)
    assert all(slot(b"%d" % a) != slot(b"%d" % b) for a, b in combinations(range(20), 2))
