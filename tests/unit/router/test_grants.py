"""The rights that scopes grant: RabbitMQ's form and its globs; an invalid scope grants none."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.router.authorization.grants import Grants, matches


def grants(*scopes: str) -> Grants:
    return Grants.parse(scopes, 0.0)[0]


@pytest.mark.parametrize(
    ("scope", "vhost", "operation", "name", "allowed"),
    [
        ("read:*/*", "any", "read", "thing", True),
        ("read:*/*", "any", "write", "thing", False),
        ("write:%2F/orders", "/", "write", "orders", True),
        ("write:%2F/orders", "/", "write", "orders2", False),
        ("write:%2F/orders", "plant", "write", "orders", False),
        ("configure:plant-*/*.q", "plant-1", "configure", "a.q", True),
        ("configure:plant-*/*.q", "plant", "configure", "a.q", False),
        ("read:v/a*b*c", "v", "read", "a--b--c", True),
        ("read:v/a*b*c", "v", "read", "ac", False),
        ("read:v/ab*b", "v", "read", "ab", False),
        ("read:v/x.y", "v", "read", "x-y", False),
        ("read:v/%2A", "v", "read", "anything", True),
        ("read:v", "v", "read", "anything", False),
        ("read:v/q/k/more", "v", "read", "q", False),
        ("publish:v/q", "v", "publish", "q", False),
        ("read:v/q/some.key", "v", "read", "q", True),
    ],
)
def test_a_scope_allows_what_it_says(
    scope: str, vhost: str, operation: str, name: str, allowed: bool
) -> None:
    assert grants(scope).allow(vhost, operation, name) is allowed


@pytest.mark.parametrize(
    ("scope", "key", "allowed"),
    [
        ("write:v/amq.topic", b"a.b", True),
        ("write:v/amq.topic/a.*", b"a.b", True),
        ("write:v/amq.topic/a.*", b"b.a", False),
        ("write:v/other/a.*", b"a.b", False),
        ("write:v/amq.topic/%2F*", b"/x", True),
        ("read:v/amq.topic/a.*", b"a.b", False),
        ("write:v/amq.topic/*", b"\xff", True),
    ],
)
def test_a_third_part_is_about_routing_keys(scope: str, key: bytes, allowed: bool) -> None:
    assert grants(scope).allow_topic("v", "write", "amq.topic", key) is allowed


def test_a_vhost_is_entered_by_any_scope_about_it() -> None:
    assert grants("read:plant-*/q").enter("plant-7")
    assert not grants("read:plant-*/q").enter("office")
    assert not grants().enter("plant-7")


def test_tags_are_scopes_too() -> None:
    found, tags = Grants.parse(["tag:monitoring", "read:v/q", "openid"], 0.0)
    assert tags == {"monitoring"}
    assert len(found.scopes) == 1


def test_scopes_are_written_as_they_are_read() -> None:
    found = grants("read:%2F/a%2Fb*/k%3A*", "write:*/*")
    assert Grants.parse(found.texts(), 0.0)[0] == found


_TEXTS = st.text("ab*", max_size=12)


@given(_TEXTS, st.text("ab", max_size=12))
def test_a_glob_is_what_the_regular_expression_of_it_is(pattern: str, name: str) -> None:
    said = ".*".join(map(re.escape, pattern.split("*")))
    assert matches(pattern, name) is (re.fullmatch(said, name) is not None)
