"""The demonstration's own parts: its data, and that its check would notice a fault."""

from __future__ import annotations

import json

import pytest

from demo.__main__ import compare
from demo.clients import split
from demo.data import Reading, readings


def reading(number: int, topic: str = "weather/oslo/temperature") -> Reading:
    return Reading(topic, str(number).encode(), str(number))


SENT = [reading(1), reading(2), reading(3, "weather/bergen/wind")]
ARRIVED = [
    ("weather.oslo.temperature", b"1"),
    ("weather.oslo.temperature", b"2"),
    ("weather.bergen.wind", b"3"),
]


def test_the_data_set_is_there_without_network_and_in_order_of_time() -> None:
    found = readings()
    assert len(found) == 24_823
    assert len({item.topic for item in found}) == 7
    times = [json.loads(item.payload)["time"] for item in found]
    assert times == sorted(times)


def test_unchanged_messages_are_no_problem() -> None:
    assert compare(SENT, ARRIVED) == []


@pytest.mark.parametrize(
    ("arrived", "problem"),
    [
        (ARRIVED[1:], "weather.oslo.temperature: 1 missing, 0 doubled or changed"),
        ([*ARRIVED, ARRIVED[0]], "weather.oslo.temperature: 0 missing, 1 doubled or changed"),
        (
            [("weather.oslo.temperature", b"9"), *ARRIVED[1:]],
            "weather.oslo.temperature: 1 missing, 1 doubled",
        ),
        ([ARRIVED[1], ARRIVED[0], ARRIVED[2]], "weather.oslo.temperature: out of order"),
        ([*ARRIVED, ("other", b"1")], "other: 1 messages with a key that nobody sent"),
    ],
)
def test_a_fault_is_noticed(arrived: list[tuple[str, bytes]], problem: str) -> None:
    (found,) = compare(SENT, arrived)
    assert found.startswith(problem)


def test_an_address_is_taken_apart() -> None:
    assert split("127.0.0.1:5672") == ("127.0.0.1", 5672)
    assert split("[::1]:1883") == ("::1", 1883)
