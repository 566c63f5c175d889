"""The kernel that follows confirms, against plain Python, over bytes cut anywhere and in any order."""

from __future__ import annotations

import itertools

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.heartbeat import Heartbeat

from penstock.protocols.links.amqp._in_flight import InFlight

_RUNS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 2000)), min_size=1, max_size=6)
"""Of delivery tags: a gap before it, and how many."""


def ack(number: int, multiple: bool) -> bytes:
    return pamqp.frame.marshal(commands.Basic.Ack(number, multiple=multiple), 1)


def taken(in_flight: InFlight, data: bytes, places: list[int]) -> None:
    """Hand the bytes over in pieces."""
    cuts = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    rest = b""
    for start, end in itertools.pairwise(cuts):
        rest += data[start:end]
        rest = rest[in_flight.take(rest) :]
    assert not rest


@given(
    _RUNS,
    st.lists(st.tuples(st.integers(0, 9000), st.booleans()), max_size=30),
    st.lists(st.integers(0, 2000)),
)
def test_all_is_settled_that_is_confirmed_with_all_before_it(
    runs: list[tuple[int, int]], confirms: list[tuple[int, bool]], places: list[int]
) -> None:
    in_flight, tags, tag = InFlight(), list[int](), 0
    confirmed, settled = set[int](), 0
    for gap, count in runs:
        in_flight.published(tag + gap, count)
        tags += range(tag + gap, tag + gap + count)
        tag += gap + count
        for number, multiple in confirms[:10]:
            if 0 < number <= len(tags):
                confirmed.update(range(1, number + 1) if multiple else (number,))
        taken(in_flight, b"".join(ack(*one) for one in confirms[:10]), places)
        del confirms[:10]
        before = settled
        while settled + 1 in confirmed:
            settled += 1
        assert in_flight.settled() == ((tags[settled - 1], settled - before) if settled > before else (0, 0))
        assert len(in_flight) == len(tags) - settled
    taken(in_flight, ack(len(tags), True), places)
    assert in_flight.settled() == ((tags[-1], len(tags) - settled) if settled < len(tags) else (0, 0))
    assert len(in_flight) == 0


@pytest.mark.parametrize("refusal", [commands.Basic.Nack(2), commands.Basic.Return(312, "NO_ROUTE", "", "q")])
def test_a_confirm_behind_a_refusal_does_not_count(refusal: pamqp.base.Frame) -> None:
    in_flight = InFlight()
    in_flight.published(1, 3)
    beat, frame = pamqp.frame.marshal(Heartbeat(), 0), pamqp.frame.marshal(refusal, 1)
    taken(in_flight, ack(1, False) + beat + frame, [])
    assert in_flight.others == [(1, frame)]
    taken(in_flight, ack(3, True), [])
    assert in_flight.settled() == (1, 1) and len(in_flight) == 2


def test_bytes_that_are_no_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="no frame of AMQP"):
        InFlight().take(ack(1, True)[:-1] + b"x")
