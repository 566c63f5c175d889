"""One native connection without sockets: its login, the requests that are refused, its end."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from penstock import errors
from penstock.protocols.native.codec.errors import code_of
from penstock.protocols.native.options import LOGIN_MAX
from penstock.protocols.native.session.session import State
from penstock.router.authorization.identity import Identity
from penstock.router.authorization.permissions import Permission
from tests.reference import native_frames as wire
from tests.support.native_session import Client, World, opened

HELLO = Client.json_frame(0x01, {"versions": [1]})


# Before the login


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"AMQP\0\0\x09\x01", "preface"),
        (b"PENSTOCK" + wire.frame(0x10, 1, b"x"), "unexpected_frame"),
        (b"PENSTOCK" + HELLO + wire.frame(0x05, 1, b"{}"), "unexpected_frame"),
        (b"PENSTOCK" + wire.frame(0x01, 0, b"no JSON"), "malformed"),
        (b"PENSTOCK" + wire.frame(0x01, 0, b"[1]"), "malformed"),
        (b"PENSTOCK" + Client.json_frame(0x01, {"versions": [7]}), "version"),
        (b"PENSTOCK" + Client.json_frame(0x01, {"versions": [1], "more": 1}), "bad_field"),
        (b"PENSTOCK" + struct.pack(">I", LOGIN_MAX + 1), "frame_size"),
        (b"PENSTOCK" + struct.pack(">I", 3), "frame_size"),
        (b"PENSTOCK" + struct.pack(">IBBHI", 8, 1, 1, 0, 0), "malformed"),
        (b"PENSTOCK" + HELLO + Client.json_frame(0x03, {"user": "a"}), "bad_field"),
        (b"PENSTOCK" + HELLO + Client.json_frame(0x03, {"mechanism": "EXTERNAL"}), "login_refused"),
    ],
)
def test_a_mistake_before_the_login_ends_the_connection(world: World, data: bytes, code: str) -> None:
    client = Client(world, login=False)
    client.send(data)
    assert client.ended()["code"] == code
    assert client.session.ended is not None


def test_every_split_of_the_greeting_is_understood(world: World) -> None:
    data = b"PENSTOCK" + HELLO
    for cut in range(1, len(data)):
        client = Client(world, login=False)
        client.send(data[:cut])
        assert not client.frames
        client.send(data[cut:])
        assert [kind for kind, _, _ in client.take()] == [0x02]
        assert client.session.state is State.LOGIN


def test_nothing_behind_the_login_is_looked_at_before_it_is_checked(world: World) -> None:
    client = Client(world, login=False)
    login = Client.json_frame(0x03, {"user": "guest", "password": "guest"})
    client.send(b"PENSTOCK" + HELLO + login + Client.json_frame(0x05, {"do": "topics"}, 9))
    assert [kind for kind, _, _ in client.take()] == [0x02]
    client.log_in()
    client.send(b"")
    assert [(kind, id) for kind, id, _ in client.take()] == [(0x04, 0), (0x06, 9)]


def test_a_login_to_a_vhost_without_permission_is_refused(world: World) -> None:
    client = Client(world, login=False)
    client.send(b"PENSTOCK" + HELLO + Client.json_frame(0x03, {"user": "ann", "password": "x"}))
    login, client.session.login = client.session.login, None
    assert login is not None
    client.session.authenticated(login, Identity("ann"))
    assert client.ended()["code"] == "access_refused"


# Requests


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"do": "nothing"}, "unknown_request"),
        ({}, "bad_field"),
        ({"do": "open_producer", "handle": -1, "topic": "t"}, "bad_field"),
        ({"do": "open_producer", "handle": 1, "topic": "nowhere"}, "not_found"),
        ({"do": "open_producer", "handle": 1, "topic": "t", "create": True, "wrong": 1}, "bad_field"),
        ({"do": "open_producer", "handle": 1, "exchange": "nowhere"}, "not_found"),
        ({"do": "subscribe", "handle": 1, "topic": "t", "create": True, "subscription": ""}, "bad_field"),
        (
            {
                "do": "subscribe",
                "handle": 1,
                "topic": "t",
                "create": True,
                "subscription": "s",
                "start": "noon",
            },
            "bad_field",
        ),
        (
            {
                "do": "subscribe",
                "handle": 1,
                "topic": "t",
                "create": True,
                "subscription": "s",
                "kind": "odd",
            },
            "bad_field",
        ),
        ({"do": "subscribe", "handle": 1, "queue": "nowhere"}, "not_found"),
        ({"do": "read", "handle": 1, "topic": "nowhere"}, "not_found"),
        ({"do": "describe", "topic": "nowhere"}, "not_found"),
        ({"do": "create_topic", "topic": "amq.mine"}, "reserved_name"),
        ({"do": "create_topic", "topic": "t", "max_age": "long"}, "invalid_argument"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_and_the_connection_goes_on(
    world: World, request_: dict[str, Any], code: str
) -> None:
    client = Client(world)
    client.send(Client.json_frame(0x05, request_, 77))
    ((kind, id, payload),) = client.take()
    told = json.loads(payload)
    assert (kind, id, told["code"]) == (0x0F, 77, code)
    assert told["message"]
    assert client.request("topics") is not None


def test_a_handle_is_used_once(world: World) -> None:
    client = Client(world)
    assert client.request("open_producer", handle=1, topic="t", create=True) == {"handle": 1, "epoch": 0}
    assert client.request("open_producer", handle=1, topic="t")["code"] == "handle_in_use"
    assert client.request("close", handle=1) == {}
    assert client.request("open_producer", handle=1, topic="t") == {"handle": 1, "epoch": 0}


def test_a_user_may_only_read_and_write_what_its_permissions_say(world: World) -> None:
    guest = Client(world)
    guest.request("create_topic", topic="open")
    guest.request("create_topic", topic="secret")
    world.broker.authorizer.set("ann", "/", Permission("", "", "open"))
    ann = Client(world, user="ann")
    assert ann.request("topics") == {"topics": ["open"]}
    assert ann.request("read", handle=1, topic="secret")["code"] == "access_refused"
    assert ann.request("open_producer", handle=1, topic="open")["code"] == "access_refused"
    assert ann.request("create_topic", topic="mine")["code"] == "access_refused"
    subscribed = ann.request("subscribe", handle=2, topic="open", subscription="s")
    assert subscribed == {"handle": 2}
    ann.take()
    world.broker.authorizer.set("ann", "/", Permission("", "", "nothing"))
    assert [event["event"] for event in ann.events()] == ["closed"]


def test_a_connection_ends_with_its_user(world: World) -> None:
    admin = world.broker.administration
    world.broker.users.set_user("ann", "", ())
    world.broker.authorizer.set("ann", "/", Permission(".*", ".*", ".*"))
    ann, other = Client(world, user="ann"), opened(world)
    ann.request("subscribe", handle=2, topic="t", subscription="s", kind="shared", start="earliest")
    ann.send(wire.credit(2, 1, 1 << 20))
    other.produce(1, b"held", b"waited for")
    assert ann.bodies() == [b"held"]
    ann.send(wire.pull(2, 9, 10, 10, 60_000))  # which would wait for a minute
    admin.delete_user("ann")
    assert ann.ended()["code"] == "closed"
    ann.lose()
    other.request("subscribe", handle=3, topic="t", subscription="s", kind="shared")
    other.send(wire.credit(3, 10, 1 << 20))
    assert other.bodies() == [b"held", b"waited for"]


def test_a_connection_ends_with_the_access_to_its_vhost(world: World) -> None:
    world.broker.users.set_user("ann", "", ())
    world.broker.authorizer.set("ann", "/", Permission(".*", ".*", ".*"))
    ann = Client(world, user="ann")
    ann.request("open_producer", handle=1, topic="t", create=True)
    world.broker.authorizer.set("ann", "/", Permission("", "nothing", ""))
    ann.produce(1, b"not any more")
    assert [json.loads(payload)["code"] for kind, _, payload in ann.take() if kind == 0x13] == [
        "access_refused"
    ]
    world.broker.authorizer.clear("ann", "/")
    assert "withdrawn" in ann.ended()["message"]


def test_every_error_of_the_broker_has_a_code() -> None:
    def below(kind: type[errors.PenstockError]) -> list[type[errors.PenstockError]]:
        return [kind, *(one for sub in kind.__subclasses__() for one in below(sub))]

    for kind in below(errors.RoutingError) + below(errors.SubscriptionError) + below(errors.LogError):
        error = kind.__new__(kind)
        error.reason = "credentials"  # type: ignore[attr-defined]
        assert code_of(error).replace("_", "").isalpha()
        assert code_of(error) == code_of(error).lower()


# The end


def test_the_log_that_fails_refuses_what_waits_and_ends_the_connection(world: World) -> None:
    client = opened(world)
    client.session.codec.expect(1, 0, 5, 10**9, 10**9, True, True)
    client.session.durable(False)
    world.clients.remove(client)
    client.frames += wire.frames(client.out.take())
    assert [(kind, json.loads(payload)["code"]) for kind, _, payload in client.frames] == [
        (0x13, "log_failed"),
        (0x0F, "log_failed"),
    ]
