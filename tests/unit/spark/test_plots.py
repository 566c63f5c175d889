"""Plots: heights add up, the axis is round, what stands in a tooltip is the value."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta

import pytest

from penstock.spark.jobs.shared.plots import Layer, areas, columns

START = datetime(2026, 5, 1, 12, 0, 3, tzinfo=UTC)


def marks(svg: str, css: str) -> list[ET.Element]:
    return [mark for mark in ET.fromstring(svg) if mark.get("class") == css]


def axis(svg: str) -> list[str]:
    return [mark.text or "" for mark in marks(svg, "y")]


def test_areas_are_stacked() -> None:
    times = [START + timedelta(seconds=index) for index in range(4)]
    layers = [Layer("low", "a", [10.0, 0.0, 5.0, 10.0]), Layer("high", "b", [0.0, 40.0, 5.0, 0.0])]
    svg = areas(times, layers, lambda value: f"{value:g}", height=240)
    assert axis(svg) == ["0", "10", "20", "30", "40"]
    (low,), (high,) = marks(svg, "a"), marks(svg, "b")
    # The axis spans 200: 12 at the top is 40, 212 at the bottom 0.
    upper = [float(point.split(",")[1]) for point in (high.get("points") or "").split()][:8:2]
    assert upper == [162.0, 12.0, 162.0, 162.0]
    under = [float(point.split(",")[1]) for point in (low.get("points") or "").split()][:8:2]
    assert under == [162.0, 212.0, 187.0, 162.0]
    tips = [mark[0].text for mark in marks(svg, "tip")]
    assert tips[1] == "2026-05-01 12:00:04 UTC\nhigh: 40"
    assert [mark.text for mark in marks(svg, "x")] == ["12:00:03", "12:00:04", "12:00:05", "12:00:06"]


def test_columns_are_stacked_and_named() -> None:
    svg = columns(["64 B", "<1 KiB>"], [Layer("x", "a", [3, 0]), Layer("y", "b", [1, 2])], str, height=140)
    heights = [float(mark.get("height") or 0) for css in "ab" for mark in marks(svg, css)]
    assert heights == [75.0, 25.0, 50.0]
    assert marks(svg, "b")[1][0].text == "<1 KiB>, y: 2"


@pytest.mark.parametrize(
    ("most", "binary", "wanted"),
    [
        (0.0, False, ["0.0", "0.5", "1.0"]),
        (7.0, False, ["0.0", "2.0", "4.0", "6.0", "8.0"]),
        (1e6, False, ["0.0", "500000.0", "1000000.0"]),
        (600_000.0, True, ["0.0", "262144.0", "524288.0", "786432.0"]),
    ],
)
def test_values_on_the_axis_are_round(most: float, binary: bool, wanted: list[str]) -> None:
    assert axis(areas([START], [Layer("x", "a", [most])], str, binary=binary)) == wanted


@pytest.mark.parametrize(
    ("minutes", "wanted"),
    [(1, r"\d\d:\d\d:\d0"), (60, r"\d\d:\d[05]|\d\d:\d0"), (60 * 24 * 9, r"\d\d [A-Z][a-z][a-z]")],
)
def test_times_on_the_axis_are_round_and_few(minutes: int, wanted: str) -> None:
    step = timedelta(minutes=minutes) / 60
    times = [START + step * index for index in range(60)]
    svg = areas(times, [Layer("x", "a", [1.0] * 60)], str)
    shown = [mark.text or "" for mark in marks(svg, "x")]
    assert 4 <= len(shown) <= 10
    assert all(re.fullmatch(wanted, text) for text in shown), shown
