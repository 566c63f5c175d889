"""A consumer's unsettled deliveries, against a set of tags."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.native.codec._in_flight import Held

TAG = st.one_of(st.integers(0, 6000), st.just(2**64 - 1))
STEP = st.one_of(
    st.tuples(st.just("deliver"), st.integers(1, 1500), st.just(0)),
    st.tuples(st.just("settle"), TAG, TAG),
    st.tuples(st.just("settle"), st.integers(0, 6000), st.just(2**64 - 1)),
    st.tuples(st.just("out"), TAG, TAG),
)


@given(st.lists(STEP, max_size=30))
def test_unsettled_tags_are_those_delivered_and_not_settled(steps: list[tuple[str, int, int]]) -> None:
    held, out, next = Held(), set[int](), 1
    for step, first, last in steps:
        if step == "deliver":
            assert held.deliver(first) == next
            out |= set(range(next, next + first))
            next += first
            continue
        meant = sorted(tag for tag in out if first <= tag <= last)
        if step == "out":
            assert held.out(first, last) == meant
        else:
            assert held.settle(first, last) == len(meant)
            out -= set(meant)
        assert (held.unacked, held.next) == (len(out), next)
    assert held.out(0, 2**64 - 1) == sorted(out)


@given(st.sets(st.integers(1, 20_000), max_size=40))
def test_long_unsettled_tags_are_set_aside_and_found_again(kept: set[int]) -> None:
    held = Held()
    for _ in range(200):
        first = held.deliver(100)
        for tag in range(first, first + 100):
            if tag not in kept:
                assert held.settle(tag, tag) == 1
    assert held.out(0, 2**64 - 1) == sorted(kept)
    assert held.places <= 2048 + 8 * max(len(kept), 1)
    for tag in sorted(kept, key=lambda tag: tag % 7):
        assert held.settle(tag, tag) == 1
        assert held.settle(tag, tag) == 0
    assert held.unacked == 0
