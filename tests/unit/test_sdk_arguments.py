"""Wrong arguments of what makes clients, producers and consumers: told where they are given, by name."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from typing import Any

import pytest

import penstock

URL = "penstock://127.0.0.1"
NAN, INFINITE = float("nan"), float("inf")


def connect(url: Any = URL, **said: Any) -> penstock.Client:
    return penstock.connect(url, **said)


def producer(**said: Any) -> object:
    return connect().producer(**{"topic": "t", **said})


def subscribe(**said: Any) -> object:
    return connect().subscribe(**{"topic": "t", "subscription": "s", **said})


def reader(**said: Any) -> object:
    return connect().reader(**said)


def retrying(retry: Any) -> object:
    return connect().retrying("t", "s", retry)


def topics(some: Any, **said: Any) -> object:
    return connect().subscribe_topics(some, "s", **said)


def group(name: Any = "g", check: Any = print, **said: Any) -> object:
    return penstock.Group(name, check, **said)


WRONG: list[tuple[Callable[..., object], dict[str, Any], type[Exception], str]] = [
    (connect, {"url": None}, TypeError, "is text, not NoneType"),
    (connect, {"url": "penstock://[::1"}, penstock.ClientError, "the host.*; write an address of IPv6 in"),
    (
        connect,
        {"url": "penstock://h?tls=1"},
        penstock.ClientError,
        "nothing behind a [?] or #; write options",
    ),
    (connect, {"url": "penstock://u:a#b@h"}, penstock.ClientError, "nothing behind .*; .* %23 is #"),
    (connect, {"url": "penstock://u:a/b@h"}, penstock.ClientError, "the port of 'u' is none; .* %2F is /"),
    (connect, {"tls": "yes"}, TypeError, "tls is an ssl.SSLContext, not str"),
    (connect, {"tls": ssl.create_default_context()}, penstock.ClientError, "without TLS; write penstocks://"),
    (connect, {"user": 5}, TypeError, "user is text, not int"),
    (connect, {"password": b"x"}, TypeError, "password is text, not bytes"),
    (connect, {"token": 5}, TypeError, "token is text, or a function"),
    (connect, {"connect_timeout_s": "1"}, TypeError, "connect_timeout_s is a number, not str"),
    (connect, {"connect_timeout_s": NAN}, ValueError, "connect_timeout_s is a number from 0"),
    (connect, {"close_timeout_s": None}, TypeError, "close_timeout_s is a number, not NoneType"),
    (connect, {"reconnect_timeout_s": -1}, ValueError, "reconnect_timeout_s is a number from 0"),
    (producer, {"routing_key": "k"}, TypeError, "routing_key= goes with exchange=, not with topic="),
    (producer, {"topic": None, "exchange": "x", "routing_key": None}, TypeError, "routing_key is text, not"),
    (producer, {"name": 5}, TypeError, "name is text, not int"),
    (producer, {"name": ""}, ValueError, "name is empty"),
    (producer, {"linger_ms": "5"}, TypeError, "linger_ms is a number, not str"),
    (producer, {"linger_ms": NAN}, ValueError, "linger_ms is a number from 0"),
    (producer, {"batch_bytes": 0}, ValueError, "batch_bytes is a number from 1"),
    (producer, {"batch_messages": 1.5}, ValueError, "batch_messages is a whole number, not 1.5"),
    (producer, {"buffer_bytes": None}, TypeError, "buffer_bytes is a number, not NoneType"),
    (producer, {"group": "g"}, TypeError, "group is a penstock.Group, not str"),
    (subscribe, {"subscription": b"s"}, TypeError, "subscription is text, not bytes"),
    (subscribe, {"routing_key": "k"}, TypeError, "routing_key= goes with exchange=, not with topic="),
    (subscribe, {"prefetch": "5"}, TypeError, "prefetch is a number, not str"),
    (subscribe, {"prefetch": 2**40}, ValueError, "prefetch is a number from 0 to 4,294,967,295"),
    (subscribe, {"prefetch": 1.5}, ValueError, "prefetch is a whole number"),
    (subscribe, {"prefetch_bytes": -1}, ValueError, "prefetch_bytes is a number from 0"),
    (subscribe, {"ack_timeout_s": "5"}, TypeError, "ack_timeout_s is a number, not str"),
    (subscribe, {"ack_timeout_s": INFINITE}, ValueError, "ack_timeout_s is a number from 0"),
    (subscribe, {"nack_backoff_s": 5}, TypeError, "nack_backoff_s is a pair"),
    (subscribe, {"nack_backoff_s": (5,)}, TypeError, "nack_backoff_s is a pair"),
    (subscribe, {"nack_backoff_s": ("a", "b")}, TypeError, "nack_backoff_s is a number, not str"),
    (subscribe, {"nack_backoff_s": (NAN, 5)}, ValueError, "nack_backoff_s is a number from 0"),
    (subscribe, {"max_deliveries": "x"}, TypeError, "max_deliveries is a number, not str"),
    (subscribe, {"max_deliveries": 0}, ValueError, "max_deliveries is a number from 1 to 65,535"),
    (subscribe, {"ranges": 5}, TypeError, "ranges is a list of pairs"),
    (subscribe, {"ranges": [5]}, TypeError, "ranges is a list of pairs"),
    (reader, {"mqtt_filter": "a/#/b"}, ValueError, "'a/#/b' is no MQTT filter"),
    (reader, {"mqtt_filter": "a+/b"}, ValueError, "'a[+]/b' is no MQTT filter"),
    (retrying, {"retry": 5}, TypeError, "retry is a penstock.Retry, not int"),
    (penstock.Retry, {"delay_s": 5}, TypeError, "delay_s is a pair"),
    (penstock.Retry, {"delay_s": ("a", "b")}, TypeError, "delay_s is a number, not str"),
    (penstock.Retry, {"max": -1}, ValueError, "max is a number from 0"),
    (group, {"name": ""}, ValueError, "the name of a group is empty"),
    (group, {"check": None}, TypeError, "the check of a group is a function, not NoneType"),
    (group, {"check_after_s": "x"}, TypeError, "check_after_s is a number, not str"),
    (group, {"expires_s": INFINITE}, ValueError, "expires_s is a number from 0"),
    (group, {"max_checks": 0}, ValueError, "max_checks is a number from 1 to 1,000"),
    (topics, {"some": None}, TypeError, "topics is a list or a compiled pattern, not NoneType"),
    (topics, {"some": re.compile("t"), "look_s": "x"}, TypeError, "look_s is a number, not str"),
]


@pytest.mark.parametrize(("make", "said", "kind", "says"), WRONG)
def test_a_wrong_argument_is_named(
    make: Callable[..., object], said: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says) as raised:
        make(**said)
    assert type(raised.value) is kind


def test_an_error_about_an_address_shows_nothing_of_a_password() -> None:
    for url in ("penstock://u:sec#ret@h", "penstock://u:sec/ret@h", "penstock://u:sec?ret@h"):
        with pytest.raises(penstock.ClientError) as raised:
            penstock.connect(url)
        assert "sec" not in str(raised.value) and "ret" not in str(raised.value)
        assert raised.value.__suppress_context__ or raised.value.__context__ is None


async def test_a_name_that_cannot_be_a_hosts_is_told() -> None:
    for host in ("a" * 300, "a\0b"):
        with pytest.raises(penstock.ClientError, match=r"cannot be connected to.*; correct the address"):
            await penstock.connect(f"penstock://{host}:1")


async def test_workers_need_a_function() -> None:
    consumer = connect().subscribe("t", "s")
    with pytest.raises(TypeError, match="workers: the handler is a function, not NoneType"):
        await consumer.workers(1, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="workers: n is a number, not str"):
        await consumer.workers("1", print)  # type: ignore[arg-type]
