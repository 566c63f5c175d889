"""The messages that a filter passes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.shared.traffic import Shown
from penstock.protocols.http.webhooks.delivery.filters import Matcher
from penstock.protocols.http.webhooks.settings import settings_of

SHOWN = Shown("x", "orders.north.new", {"type": "sale", "headers": {"shop": "north", "n": 7}}, b"")


def matcher(**wanted: Any) -> Matcher:
    settings = settings_of({"source": {"queue": "q"}, "url": "https://a/", "filter": wanted})
    assert settings_of(settings.stored()) == settings
    return Matcher(settings.filter)


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        ({}, True),
        ({"routing_key": "orders.*.new"}, True),
        ({"routing_key": "orders.#"}, True),
        ({"routing_key": "orders.*"}, False),
        ({"headers": {"shop": "north"}}, True),
        ({"headers": {"shop": "north", "n": 7}}, True),
        ({"headers": {"shop": "north", "n": "7"}}, False),
        ({"headers": {"other": "x"}}, False),
        ({"types": ["refund", "sale"]}, True),
        ({"types": ["refund"]}, False),
        ({"routing_key": "orders.#", "headers": {"shop": "south"}}, False),
    ],
)
def test_all_that_is_said_must_hold(wanted: dict[str, Any], matches: bool) -> None:
    assert matcher(**wanted).matches(SHOWN) is matches


def test_a_message_without_headers_matches_what_asks_for_none() -> None:
    plain = Shown("x", "a", {}, b"")
    assert matcher(routing_key="a").matches(plain)
    assert not matcher(headers={"a": 1}).matches(plain)
    assert not matcher(types=["t"]).matches(plain)


@pytest.mark.parametrize(
    "wanted",
    [
        {"routing_key": 1},
        {"headers": []},
        {"headers": {"a": []}},
        {"types": "sale"},
        {"types": [1]},
        {"key": ""},
    ],
)
def test_mistakes_are_named(wanted: dict[str, Any]) -> None:
    with pytest.raises(HttpError, match="filter"):
        matcher(**wanted)
