"""Which messages are traced: a sample by position, the same for all events of a message."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from penstock.subscriptions.cursor import _events as events

MASK = (1 << 64) - 1


def mixed(value: int) -> int:
    """Splitmix64, as its author has it (prng.di.unimi.it/splitmix64.c)."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    yield
    events.stop()


def publish(first: int, count: int) -> None:
    events.published(first, count, vhost="/", connection="c", user="ann", detail="amqp")


@pytest.mark.parametrize("ratio", [0.01, 0.25, 1.0])
def test_the_sample_is_by_the_hash_of_the_position(ratio: float) -> None:
    events.trace(ratio)
    publish(10**12, 20_000)
    found, missed = events.traced()
    wanted = [at for at in range(10**12, 10**12 + 20_000) if mixed(at) <= int(ratio * 2.0**64)]
    assert [one[2] for one in found] == wanted
    assert missed == 0
    assert abs(len(found) - ratio * 20_000) < 300


def test_an_event_says_when_and_who() -> None:
    events.trace(1.0)
    before = time.time_ns()
    publish(7, 1)
    ((at_ns, *rest),) = events.traced()[0]
    assert before <= at_ns <= time.time_ns()
    assert rest == ["publish", 7, False, "/", "", "c", "ann", "amqp"]
    assert events.traced() == ([], 0), "each once"


def test_nothing_is_noted_for_the_log() -> None:
    events.trace(1.0)
    publish(7, 1)
    assert events.kept() == () and not events.is_on()


def test_a_recording_neither_begins_nor_ends_it() -> None:
    events.trace(1.0)
    events.keep(["deliver"])
    events.keep([])
    publish(7, 1)
    assert len(events.traced()[0]) == 1


def test_without_it_nothing_is_traced() -> None:
    events.trace(0.0)
    publish(7, 100)
    assert events.traced() == ([], 0)


def test_events_that_nobody_takes_are_counted() -> None:
    events.trace(1.0)
    publish(0, 100_010)
    found, missed = events.traced()
    assert (len(found), missed) == (100_000, 10)
