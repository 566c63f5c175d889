"""The owner of each slot of a key-shared group: the kernel against a sorted ring."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from penstock.subscriptions.cursor._keys import KeyShares, slot
from penstock.subscriptions.dispatch.assignment import SLOTS, Ring


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, SLOTS - 1) | st.sampled_from([0, 1, SLOTS - 1]))),
    st.lists(st.integers(0, SLOTS - 1), max_size=20),
)
def test_a_slot_is_that_of_the_next_point(changes: list[tuple[int, int]], asked: list[int]) -> None:
    """A change is a point and whose it is from then on, 0: nobody's."""
    keys = KeyShares(lambda: None)
    ring: dict[int, int] = {}
    for number, point in changes:
        if number:
            keys.set_point(point, number)
            ring[point] = number
        else:
            keys.clear_point(point)
            ring.pop(point, None)
    points = sorted(ring)
    for one in [*asked, *points, 0, SLOTS - 1]:
        expected = ring[points[bisect.bisect_left(points, one) % len(points)]] if points else 0
        assert keys.owner_of(one) == expected


def ring_of(names: Iterable[str]) -> tuple[KeyShares, Ring]:
    """Consumers have the numbers from 1 on, in this order."""
    keys = KeyShares(lambda: None)
    ring = Ring(keys)
    for number, name in enumerate(names, 1):
        ring.add(name, number)
    return keys, ring


@given(st.lists(st.text(max_size=2), min_size=1, max_size=8), st.data())
def test_a_ring_is_the_same_whoever_was_there_before(names: list[str], data: st.DataObject) -> None:
    leavers = data.draw(st.sets(st.integers(0, len(names) - 1)))
    keys, ring = ring_of(names)
    for at in leavers:
        ring.remove(names[at], at + 1)
    expected = KeyShares(lambda: None)
    fresh = Ring(expected)
    for at, name in enumerate(names):
        if at not in leavers:
            fresh.add(name, at + 1)
    for one in range(0, SLOTS, 97):
        assert keys.owner_of(one) == expected.owner_of(one)


@given(st.lists(st.text(max_size=8), min_size=2, max_size=8, unique=True), st.data())
def test_only_what_was_its_own_changes_hands_when_one_leaves(names: list[str], data: st.DataObject) -> None:
    leaver = data.draw(st.sampled_from(names))
    numbers = {name: at + 1 for at, name in enumerate(sorted(names))}
    before, _ = ring_of(sorted(names))
    after, ring = ring_of(sorted(names))
    ring.remove(leaver, numbers[leaver])
    for one in range(0, SLOTS, 97):
        if before.owner_of(one) != numbers[leaver]:
            assert after.owner_of(one) == before.owner_of(one)
        else:
            assert after.owner_of(one) != numbers[leaver]


def test_the_shares_of_many_are_alike() -> None:
    keys, _ = ring_of(f"worker-{i:02}" for i in range(10))
    shares = [0] * 10
    for one in range(SLOTS):
        shares[keys.owner_of(one) - 1] += 1
    assert max(shares) < 2 * min(shares)


def test_nobody_has_anything_where_there_is_nobody() -> None:
    keys = KeyShares(lambda: None)
    assert keys.owner_of(0) == keys.owner_of(SLOTS - 1) == 0
    ring = Ring(keys)
    ring.add("a", 1)
    assert keys.owner_of(0) == keys.owner_of(SLOTS - 1) == 1
    ring.remove("a", 1)
    assert {keys.owner_of(one) for one in range(SLOTS)} == {0}


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
