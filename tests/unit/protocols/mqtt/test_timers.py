"""Wills and sessions are due at their time, near or far off."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.mqtt.clients._timers import Timers
from penstock.protocols.mqtt.clients.client import Client
from penstock.router.vhost.vhost import Vhost

START = 1_700_000_000.5


def session(number: int) -> Client:
    return Client(cast(Vhost, object()), str(number), None, number, True)


def told(timers: Timers, now: float) -> list[int]:
    return [client.number for client in timers.due(now)]


@given(st.lists(st.tuples(st.floats(0, 1000), st.booleans()), max_size=20), st.lists(st.floats(0, 300)))
def test_each_is_told_of_at_its_time_and_not_before(
    wanted: list[tuple[float, bool]], steps: list[float]
) -> None:
    timers, expected = Timers(), []
    for number, (after_s, is_will) in enumerate(wanted):
        client, at = session(number), START + after_s
        setattr(client, "will_at" if is_will else "ends_at", at)
        timers.arm(at, client, START)
        expected.append((at, number))
    now, got = START, []
    for step in [*steps, 2000.0]:
        due = timers.next()
        assert due is None or due <= min(at for at, number in expected if number not in got)
        now += step
        new = told(timers, now)
        assert new == [number for at, number in sorted(expected) if at <= now and number not in got]
        got += new
    assert timers.next() is None


def test_a_rearmed_session_is_called_at_its_new_time() -> None:
    timers, client = Timers(), session(1)
    for at in (START + 200, START + 5000):
        client.ends_at = at
        timers.arm(at, client, START)
    assert told(timers, START + 4999) == []
    assert told(timers, START + 5000) == [1]


def test_a_client_that_came_back_is_not_told() -> None:
    timers, client = Timers(), session(1)
    client.ends_at = START + 200
    timers.arm(START + 200, client, START)
    client.ends_at = None
    assert told(timers, START + 500) == []


def test_one_that_leaves_again_and_again_is_told_of_once() -> None:
    timers, client = Timers(), session(1)
    for after_s in (200.0, 201.0, 202.0):
        client.ends_at = START + after_s
        timers.arm(client.ends_at, client, START)
    assert told(timers, START + 201.5) == []
    assert told(timers, START + 202.0) == [1]


def test_a_clock_that_was_set_back_forgets_no_timer() -> None:
    timers, client = Timers(), session(1)
    for _ in range(2):
        client.ends_at = START + 200
        timers.arm(START + 200, client, START)
        assert told(timers, START + 1000) == [1]
