"""Wills and sessions are due at their time, near or far off."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.mqtt.clients.client import Client
from penstock.protocols.mqtt.clients.timers import Timers

START = 1_700_000_000.5


class Session:
    """The part of a client that timers use."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.will_at: float | None = None
        self.ends_at: float | None = None

    def __lt__(self, other: Session) -> bool:
        return self.number < other.number


def told(timers: Timers, now: float) -> list[int]:
    return [client.number for client in timers.due(now)]


@given(st.lists(st.tuples(st.floats(0, 1000), st.booleans()), max_size=20), st.lists(st.floats(0, 300)))
def test_each_is_told_of_at_its_time_and_not_before(
    wanted: list[tuple[float, bool]], steps: list[float]
) -> None:
    timers, expected = Timers(), []
    for number, (after_s, is_will) in enumerate(wanted):
        session, at = Session(number), START + after_s
        setattr(session, "will_at" if is_will else "ends_at", at)
        timers.arm(at, cast(Client, session), START)
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
    timers, session = Timers(), Session(1)
    client = cast(Client, cast(Any, session))
    for at in (START + 200, START + 5000):
        session.ends_at = at
        timers.arm(at, client, START)
    assert told(timers, START + 4999) == []
    assert told(timers, START + 5000) == [1]


def test_a_client_that_came_back_is_not_told() -> None:
    timers, session = Timers(), Session(1)
    session.ends_at = START + 200
    timers.arm(START + 200, cast(Client, cast(Any, session)), START)
    session.ends_at = None
    assert told(timers, START + 500) == []
