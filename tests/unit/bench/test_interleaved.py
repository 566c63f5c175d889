"""Slices in turns: which side is which, and whether the interval of a ratio tells a difference from noise."""

from __future__ import annotations

import random

import pytest

from bench.interleaved import Interval, in_turns, quantile, ratio


def noisy(seed: int, slower: float) -> list[tuple[list[float], list[float]]]:
    """Pairs of slices on a machine whose mood changes from pair to pair."""
    rng = random.Random(seed)

    def slice_(mood: float) -> list[float]:
        return [mood * rng.lognormvariate(0, 0.3) for _ in range(200)]

    moods = [rng.choice((1.0, 1.0, 3.0)) for _ in range(40)]
    return [(slice_(mood), [slower * value for value in slice_(mood)]) for mood in moods]


def test_each_side_gets_its_own_values_in_an_order_of_chance() -> None:
    order: list[bool] = []

    def run(with_it: bool) -> list[float]:
        order.append(with_it)
        return [float(with_it)]

    assert in_turns(50, run) == [([0.0], [1.0])] * 50
    assert 10 < sum(order[::2]) < 40  # which one of a pair is first
    assert all(first is not second for first, second in zip(order[::2], order[1::2], strict=True))


@pytest.mark.parametrize(("slower", "verdict"), [(1.0, "met"), (1.5, "missed")])
def test_the_moods_of_the_machine_are_those_of_both(slower: float, verdict: str) -> None:
    for seed in range(3):
        found = ratio(noisy(seed, slower), 0.99)
        assert found.low <= found.ratio <= found.high
        assert found.ratio == pytest.approx(slower, rel=0.15)
        assert found.verdict(1.2) == verdict


def test_an_interval_around_the_bar_decides_nothing() -> None:
    assert Interval(1.1, 1.0, 1.2).verdict(1.1).startswith("not sure")


def test_a_quantile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile(values, 1.0)) == (50.0, 99.0, 99.0)
