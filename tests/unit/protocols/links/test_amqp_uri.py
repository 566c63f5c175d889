"""URIs of AMQP: what they say, what they may not, and what of them is shown."""

from __future__ import annotations

import pytest

from penstock.protocols.links.amqp.uri import UriError, masked, parse_uri


def test_all_parts_of_a_uri() -> None:
    uri = parse_uri("amqps://an%40n:p%2F%3As@[::1]:5001/a%2Fb?heartbeat=3&verify=verify_none&cacertfile=/x")
    assert (uri.host, uri.port, uri.user, uri.password, uri.vhost) == ("::1", 5001, "an@n", "p/:s", "a/b")
    assert uri.tls and uri.heartbeat_s == 3 and uri.parameters["cacertfile"] == "/x"


@pytest.mark.parametrize(
    ("text", "host", "port", "vhost"),
    [
        ("amqp://", "", 5672, "/"),
        ("amqp:///v", "", 5672, "v"),
        ("amqp://h", "h", 5672, "/"),
        ("amqps://h", "h", 5671, "/"),
        ("amqp://h/", "h", 5672, ""),
        ("amqp://h/%2F", "h", 5672, "/"),
        ("AMQP://h/v", "h", 5672, "v"),
    ],
)
def test_the_parts_that_are_left_out(text: str, host: str, port: int, vhost: str) -> None:
    uri = parse_uri(text)
    assert (uri.host, uri.port, uri.vhost) == (host, port, vhost)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mqtt://u:hidden@h",
        "amqp:hidden",
        "amqps://",
        "amqp://u:hidden@h:port",
        "amqp://u:hidden@h/a/b",
        "amqp://u:hidden@h?unknown=1",
        "amqp://u:hidden@h?heartbeat=-1",
        "amqp://u:hidden@h?verify=perhaps",
        "amqp://u:hidden@[h",
    ],
)
def test_a_mistake_is_told_without_the_password(text: str) -> None:
    with pytest.raises(UriError) as told:
        parse_uri(text)
    assert "hidden" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://u:secret@h:1/v", "amqp://u:******@h:1/v"),
        ("amqp://u@h", "amqp://u@h"),
        ("amqp://", "amqp://"),
        ("amqps://:secret@h", "amqps://:******@h"),
        ("amqps://h?password=secret&verify=verify_none", "amqps://h?password=******&verify=verify_none"),
        ("amqp://h/v?x=a:b@c", "amqp://h/v?x=a:b@c"),
    ],
)
def test_passwords_are_not_shown(text: str, shown: str) -> None:
    assert masked(text) == shown
