"""Patterns as expressions against the oracle of the broker's tries, and what options do with them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.spark.filters import Wanted, amqp_pattern, mqtt_filter
from tests.reference.topics import dotted_matches, slashed_matches

WORDS = st.sampled_from(["", "a", "b", "a.", "$x"])
DOTTED = st.lists(st.sampled_from(["", "a", "b", "*", "#"]), min_size=1, max_size=5).map(".".join)
KEYS = st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=5).map(".".join)
TOPICS = st.lists(st.sampled_from(["", "a", "b", "$x"]), min_size=1, max_size=5).map("/".join)


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.sampled_from(["", "a", "b", "+", "$x"]), max_size=4))
    if draw(st.booleans()) or not levels:
        levels = [*levels, "#"]
    return "/".join(levels)


@given(DOTTED, KEYS)
@example("#.a", "a")
@example("#", "")
@example("#.#", "a.b")
@example("a.#.b", "a.b")
@example("#.*.#", "")
@example("*", "")
def test_an_amqp_pattern_matches_what_the_broker_matches(pattern: str, key: str) -> None:
    expected = dotted_matches(pattern.encode(), key.encode())
    assert bool(amqp_pattern(pattern).fullmatch(key.encode())) == expected


@given(topic_filters(), TOPICS)
@example("#", "")
@example("a/#", "a")
@example("+/#", "$x/a")
def test_a_topic_filter_matches_what_the_broker_matches(pattern: str, topic: str) -> None:
    expected = slashed_matches(pattern.encode(), topic.encode())
    assert bool(mqtt_filter(pattern).fullmatch(topic.encode())) == expected


def key(exchange: bytes, routing_key: bytes) -> bytes:
    return bytes([len(exchange)]) + exchange + bytes([len(routing_key)]) + routing_key


def test_a_topic_filter_takes_mqtt_and_what_amqp_sends_to_amq_topic() -> None:
    matcher = Wanted(topics=("plant/+/temp",)).matcher()
    assert matcher(2, b"plant/1/temp")
    assert not matcher(2, b"plant/1/pressure")
    assert matcher(1, key(b"amq.topic", b"plant.1.temp"))
    assert not matcher(1, key(b"other", b"plant.1.temp"))


def test_a_routing_key_pattern_takes_any_exchange_and_mqtt_with_dots() -> None:
    matcher = Wanted(routing_keys=("*.eu.#", "x")).matcher()
    assert matcher(1, key(b"orders", b"new.eu.de"))
    assert matcher(1, key(b"", b"x"))
    assert matcher(2, b"new/eu/de")
    assert not matcher(1, key(b"orders", b"new.us"))


def test_all_options_have_to_agree() -> None:
    matcher = Wanted(exchanges=("orders",), routing_keys=("a.#",)).matcher()
    assert matcher(1, key(b"orders", b"a.b"))
    assert not matcher(1, key(b"other", b"a.b"))
    assert not matcher(2, b"a/b")
    assert Wanted(exchanges=("amq.topic",)).matcher()(2, b"a/b")
