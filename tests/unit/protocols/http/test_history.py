"""Histories of counters on a clock of the test's own, beside a plain list of what was noted."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.http.management.history import (
    LEVELS,
    OF_CONNECTION,
    OF_GATEWAY,
    OF_QUEUE,
    History,
)
from penstock.protocols.http.management.plots import Curve, add_samples
from penstock.protocols.http.server.messages import HttpError, Request

BEGAN = 1_000_000_000


class World:
    """A history, and one counter that a sampler notes every 5 s."""

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self.now = float(BEGAN)
        self.history = History(max_bytes, lambda: self.now)
        self.values: dict[object, int] = {}

    def step(self, levels: int = OF_QUEUE, **moved: int) -> None:
        self.now += 5
        for key, more in moved.items():
            before = self.values.get(key, 0)
            self.values[key] = before + more
            if more:
                self.history.note(key, levels, (before,), (before + more,))
        self.history.sweep(lambda key: 1 if key in self.values else None)

    def read(self, key: str, age_s: int, step_s: int, levels: int = OF_QUEUE) -> list[int]:
        samples = self.history.samples(key, levels, (self.values.get(key, 0),), age_s, step_s)
        return [values[0] for _, values in samples]


def test_samples_are_the_totals_of_then_newest_first() -> None:
    world = World()
    for more in (1, 2, 3, 0, 0, 4):
        world.step(a=more)
    assert world.read("a", 25, 5) == [10, 6, 6, 6, 3, 1]
    stamps = [at for at, _ in world.history.samples("a", OF_QUEUE, (10,), 10, 5)]
    assert stamps == [(BEGAN + 30) * 1000, (BEGAN + 25) * 1000, (BEGAN + 20) * 1000]


def test_a_counter_that_never_moved_takes_nothing_and_is_flat() -> None:
    world = World()
    world.values["idle"] = 7
    for _ in range(3):
        world.step(idle=0)
    assert world.history.size == 0
    assert world.read("idle", 10, 5) == [7, 7, 7]


def test_nothing_is_told_of_the_time_before_the_start() -> None:
    world = World()
    world.step(a=1)
    assert len(world.read("a", 600, 5)) <= 3


@given(st.lists(st.integers(0, 3), min_size=1, max_size=900), st.sampled_from([(600, 5), (3600, 60)]))
def test_samples_are_those_of_a_plain_list(moves: list[int], wanted: tuple[int, int]) -> None:
    world = World()
    noted = [(BEGAN, 0)]
    for more in moves:
        world.step(a=more)
        noted.append((int(world.now), world.values["a"]))
    age_s, step_s = wanted
    samples = world.history.samples("a", OF_QUEUE, (world.values["a"],), age_s, step_s)
    assert samples[0][0] == int(world.now) // step_s * step_s * 1000
    for at_ms, values in samples:
        # The newest total of the slot that begins then: coarse slots end later.
        end = at_ms // 1000 + step_s - 1
        row = bisect_right(noted, (end, 1 << 62)) - 1
        assert values[0] == noted[max(row, 0)][1]


def test_a_day_of_traffic_keeps_its_levels_bounded() -> None:
    world = World()
    for _ in range(86_400 // 5):
        world.step(OF_GATEWAY, a=1)
    for span, step in LEVELS:
        values = world.read("a", span, step, OF_GATEWAY)
        assert len(values) == span // step + 1
        assert {a - b for a, b in pairwise(values[1:])} == {step // 5}
    assert world.history.size < 40_000


def test_a_series_that_does_not_move_any_more_is_dropped() -> None:
    world = World()
    world.step(OF_CONNECTION, a=5)
    assert world.history.size > 0
    for _ in range(600 // 5 + 2):
        world.step(OF_CONNECTION, a=0)
    assert world.history.size == 0
    assert world.read("a", 60, 5, OF_CONNECTION) == [5] * 13


def test_an_object_that_is_gone_leaves_nothing() -> None:
    world = World()
    world.step(a=1, b=1)
    world.history.forget("a")
    world.history.forget("b")
    assert world.history.size == 0


def test_the_budget_holds_and_the_gateways_own_stays() -> None:
    world = World(20_000)
    names = [f"q{number}" for number in range(200)]
    for turn in range(50):
        world.step(OF_GATEWAY, whole=1)
        world.step(**{name: 1 for name in names[turn % 100 : turn % 100 + 100]})
        assert world.history.size <= 20_000
    newest = world.read("whole", 60, 5, OF_GATEWAY)
    assert newest[0] - newest[-1] == 6
    assert len(set(world.read("q148", 3600, 60))) > 1  # moved last: its coarser level is there


def test_a_budget_of_0_keeps_nothing() -> None:
    world = World(0)
    world.step(OF_GATEWAY, a=1)
    assert world.history.size == 0


def ask(**query: str) -> Request:
    return cast("Any", Request)("GET", "/", {}, "1.1", query={name: [value] for name, value in query.items()})


def test_samples_stand_beside_rates_when_they_are_asked_for() -> None:
    world = World()
    for more in (10, 20, 0):
        world.step(a=more, b=1)
    curves = [
        Curve(world.history, key, OF_QUEUE, (name,), (world.values[key],))
        for key, name in (("a", "publish"), ("b", "publish"))
    ]
    item = {"publish": 33, "publish_details": {"rate": 0.0}, "get": 4, "get_details": {"rate": 0.0}}
    add_samples(ask(), "msg_rates", item, *curves)
    assert item["publish_details"] == {"rate": 0.0}
    add_samples(ask(msg_rates_age="10", msg_rates_incr="5"), "msg_rates", item, *curves)
    details = cast("dict[str, Any]", item["publish_details"])
    assert [one["sample"] for one in details["samples"]] == [33, 32, 11]
    assert details["avg_rate"] == pytest.approx(2.2)
    assert details["avg"] == pytest.approx(76 / 3)
    assert [one["sample"] for one in cast("dict[str, Any]", item["get_details"])["samples"]] == [4, 4, 4]


@pytest.mark.parametrize(("age", "incr"), [("x", "5"), ("60", ""), ("5", "60"), ("60", "0"), ("9999", "1")])
def test_a_range_that_is_no_range_is_refused(age: str, incr: str) -> None:
    with pytest.raises(HttpError) as caught:
        add_samples(ask(lengths_age=age, lengths_incr=incr), "lengths", {})
    assert caught.value.status == 400


@pytest.mark.parametrize("levels", [OF_QUEUE, OF_GATEWAY])
def test_a_history_that_is_cleared_begins_anew(levels: int) -> None:
    world = World()
    for _ in range(4):
        world.step(levels, a=1)
    assert set(world.read("a", 60, 5, levels)) == {0, 1, 2, 3, 4}
    world.history.clear()
    assert world.history.size == 0
    assert set(world.read("a", 60, 5, levels)) == {4}
    world.step(levels, a=1)
    assert world.read("a", 60, 5, levels)[:2] == [5, 4]
