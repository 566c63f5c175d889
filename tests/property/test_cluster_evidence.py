"""An owner's process is believed to have ended exactly when its machine said so: beside the plain rule."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.evidence import GRACE_S, HELD_S, IDLE_S, REFUSALS_MIN, Evidence, Rhythm

CLAIM = 7
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["reached", "other", "ended", "refused", "refused", "refused", "unclear"]),
        st.sampled_from([0.01, GRACE_S / 2, GRACE_S, HELD_S]),
    ),
    max_size=25,
)


@dataclass
class Event:
    kind: str
    at: float


def told(made: type[Evidence], steps: list[tuple[str, float]]) -> tuple[bool, list[Event]]:
    """Its verdict behind these steps, each so many seconds behind the one before."""
    evidence, now, history = made(CLAIM), 0.0, []
    for kind, after_s in steps:
        now += after_s
        history.append(Event(kind, now))
        match kind:
            case "reached":
                evidence.reached(CLAIM, now)
            case "other":
                evidence.reached(CLAIM + 1, now)
            case "ended":
                evidence.ended(now)
            case "refused":
                evidence.refused(now)
            case _:
                evidence.unclear()
    return evidence.is_gone, history


def rule(history: list[Event]) -> bool:
    """The same, of the whole history: the last connection was the owner's, was held, ended; then refusals."""
    refused = []
    while history and history[-1].kind == "refused":
        refused.append(history[-1].at)
        history = history[:-1]
    while history and history[-1].kind in ("refused", "unclear"):
        history = history[:-1]
    if len(refused) < REFUSALS_MIN or refused[0] - refused[-1] < GRACE_S:
        return False
    match history:
        case [*_, Event("reached", since), Event("ended", at)]:
            return at - since >= HELD_S
        case [*before, Event("ended", at)]:
            # Tries while a connection is there do not happen, and change nothing.
            while before and before[-1].kind in ("refused", "unclear"):
                before = before[:-1]
            return bool(before) and before[-1].kind == "reached" and at - before[-1].at >= HELD_S
        case _:
            return False


GONE = [("reached", 0.01), ("ended", HELD_S), *[("refused", GRACE_S / 2)] * REFUSALS_MIN]
"""Examples change a part of it: by chance alone, hardly one has all that is needed."""
NEAR = st.tuples(EVENTS, st.integers(0, len(GONE)), st.integers(0, len(GONE)), EVENTS).map(
    lambda it: [*it[0][:3], *GONE[: it[1]], *it[3][:2], *GONE[it[2] :]]
)


@given(EVENTS | NEAR)
@settings(deadline=None)
def test_an_owner_is_gone_when_its_machine_said_so(steps: list[tuple[str, float]]) -> None:
    found, history = told(Evidence, steps)
    assert found == rule(history)


class AnyClaim(Evidence):
    def reached(self, claim: int, now: float) -> None:
        super().reached(self.claim, now)


class AnyTime(Evidence):
    def ended(self, now: float) -> None:
        super().ended(now + HELD_S)


class AnyAnswer(Evidence):
    def unclear(self) -> None:
        """It is taken for no answer at all."""


class OneRefusal(Evidence):
    @property
    def is_gone(self) -> bool:
        return self.lost and self._refusals > 0


class NeverReached(Evidence):
    def __init__(self, claim: int) -> None:
        super().__init__(claim)
        self.lost = True


REFUSED = GONE[2:]


@pytest.mark.parametrize(
    ("wrong", "steps"),
    [
        (AnyClaim, [("other", 0.01), ("ended", HELD_S), *REFUSED]),
        (AnyTime, [("reached", 0.01), ("ended", GRACE_S), *REFUSED]),
        (AnyAnswer, [("reached", 0.01), ("ended", HELD_S), *REFUSED[:2], ("unclear", 0.01), *REFUSED[:2]]),
        (OneRefusal, [("reached", 0.01), ("ended", HELD_S), ("refused", 0.01)]),
        (NeverReached, REFUSED),
    ],
)
def test_each_part_of_the_rule_is_needed(wrong: type[Evidence], steps: list[tuple[str, float]]) -> None:
    found, history = told(wrong, steps)
    assert found and not rule(history)


@given(st.lists(st.floats(0.001, 10.0), max_size=30), st.floats(0.001, 10.0))
@settings(deadline=None)
def test_a_silence_as_long_as_most_pauses_before_is_no_evidence(pauses: list[float], silent: float) -> None:
    rhythm, now = Rhythm(0.0), 0.0
    for pause in pauses:
        now += pause
        rhythm.heard(now)
    latest = pauses[-9:]
    if silent < GRACE_S or (silent < IDLE_S and sum(pause >= silent for pause in latest) > len(latest) / 2):
        assert not rhythm.is_broken(now + silent)
    if silent > IDLE_S + 0.001:
        assert rhythm.is_broken(now + silent)


def test_the_silence_of_a_busy_owner_says_something_sooner() -> None:
    busy, idle = Rhythm(0.0), Rhythm(0.0)
    for number in range(1, 20):
        busy.heard(0.03 * number)
        idle.heard(0.5 * number)
    assert (busy.unusual_s, idle.unusual_s) == (GRACE_S, IDLE_S)
