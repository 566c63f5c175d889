"""Real measurements as telemetry: the weather files that the package vega_datasets brings along.

Two cities' hourly temperatures of 2010 and Seattle's daily weather of 2012 to 2015, 24,823 readings in the
order of their time of day and year, as sensors would have sent them. No network is used.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass

FAHRENHEIT = "degF"
DAILY = {"precipitation": "mm", "temp_max": "degC", "temp_min": "degC", "wind": "m/s", "weather": ""}


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement as it goes over the wire."""

    topic: str
    """weather/CITY/QUANTITY"""
    payload: bytes
    """JSON: time, value, unit."""
    value: str
    """The value as the file has it."""


def readings() -> list[Reading]:
    """All readings, the oldest first; those of one topic are in the order of the file."""
    from vega_datasets import local_data  # with pandas: half a second

    timed = [
        *_hourly("seattle", local_data.seattle_temps.filepath),
        *_hourly("san-francisco", local_data.sf_temps.filepath),
        *_daily("seattle", local_data.seattle_weather.filepath),
    ]
    timed.sort(key=lambda pair: pair[0])
    return [reading for _, reading in timed]


def _hourly(city: str, path: str) -> Iterator[tuple[str, Reading]]:
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            yield _timed(row["date"], f"weather/{city}/temperature", row["temp"], FAHRENHEIT)


def _daily(city: str, path: str) -> Iterator[tuple[str, Reading]]:
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            for quantity, unit in DAILY.items():
                yield _timed(row["date"], f"weather/{city}/{quantity}", row[quantity], unit)


def _timed(time: str, topic: str, value: str, unit: str) -> tuple[str, Reading]:
    payload = json.dumps({"time": time, "value": value, "unit": unit}).encode()
    return time, Reading(topic, payload, value)
