"""AMQP's queues by the native protocol: declared, bound, consumed, described, emptied, deleted."""

from __future__ import annotations

import pytest

from tests.reference import native_frames as wire
from tests.support.native_golden import FRAMES
from tests.support.native_session import Client, World

CREDIT = wire.credit(5, 1000, 1 << 20)


def publisher(world: World, exchange: str = "amq.topic", key: str = "weather.oslo") -> Client:
    client = Client(world)
    client.request("open_producer", handle=1, exchange=exchange, routing_key=key)
    return client


def test_the_golden_requests_make_a_queue_that_gets_messages(world: World) -> None:
    client = Client(world)
    client.send(FRAMES["declare_queue"] + FRAMES["bind_queue"] + FRAMES["subscribe_queue"])
    assert sorted((kind, id) for kind, id, _ in client.take()) == [(0x06, 21), (0x06, 22), (0x06, 23)]
    publisher(world).produce(1, b"cold")
    client.send(FRAMES["credit"].replace(b"\0\0\0\x02", b"\0\0\0\x05", 1))
    assert client.bodies() == [b"cold"]
    told = client.request("describe", queue="work")
    assert told == {
        "queue": "work",
        "durable": True,
        "ready": 0,
        "unacked": 1,
        "consumers": 1,
        "arguments": {"x-max-length": "1000"},
    }


def test_a_queue_without_a_name_ends_with_its_connection(world: World) -> None:
    client, other = Client(world), Client(world)
    name = client.request("declare_queue", exclusive=True, durable=False)["queue"]
    assert name.startswith("amq.gen-")
    assert client.request("queues") == {"queues": [name]}
    assert other.request("queues") == {"queues": []}
    assert other.request("describe", queue=name)["code"] == "locked"
    client.lose()
    assert other.request("describe", queue=name)["code"] == "not_found"


def test_a_binding_brings_what_was_published_before(world: World) -> None:
    publisher(world).produce(1, b"old")
    client = Client(world)
    client.request("declare_queue", queue="q")
    ends = {"queue": "q", "exchange": "amq.topic", "routing_key": "weather.#"}
    assert client.request("bind", since="-1h", **ends) == {}
    client.request("subscribe", handle=5, queue="q", auto=True)
    client.send(CREDIT)
    publisher(world).produce(1, b"new")
    assert client.bodies() == [b"old", b"new"]
    assert client.request("describe", queue="q")["unacked"] == 0, "auto: what is sent is settled"


def test_it_is_emptied_and_deleted(world: World) -> None:
    client = Client(world)
    client.request("declare_queue", queue="q")
    publisher(world, "", "q").produce(1, b"a", b"b")
    assert client.request("delete_queue", queue="q", if_empty=True)["code"] == "not_empty"
    assert client.request("purge_queue", queue="q") == {"messages": 2}
    assert client.request("delete_queue", queue="q", if_empty=True) == {"messages": 0}
    assert client.request("delete_queue", queue="q") == {"messages": 0}


def test_unbinding_ends_it(world: World) -> None:
    client, producer = Client(world), publisher(world)
    client.request("declare_queue", queue="q")
    ends = {"queue": "q", "exchange": "amq.topic", "routing_key": "weather.*"}
    assert client.request("bind", **ends) == {}
    producer.produce(1, b"a")
    assert client.request("unbind", **ends) == {}
    producer.produce(1, b"b")
    assert client.request("describe", queue="q")["ready"] == 1


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"do": "declare_queue", "queue": "amq.mine"}, "reserved_name"),
        ({"do": "declare_queue", "queue": "q", "arguments": []}, "bad_field"),
        ({"do": "declare_queue", "queue": "r", "arguments": {"x-max-length": "many"}}, "invalid_argument"),
        ({"do": "declare_queue", "queue": "q", "durable": False}, "inequivalent"),
        ({"do": "purge_queue", "queue": "topic"}, "not_a_queue"),
        ({"do": "delete_queue", "queue": "topic"}, "not_a_queue"),
        ({"do": "describe", "queue": "topic"}, "not_a_queue"),
        ({"do": "purge_queue", "queue": "none"}, "not_found"),
        ({"do": "bind", "queue": "q", "exchange": "none", "routing_key": ""}, "not_found"),
        ({"do": "bind", "queue": "q", "exchange": "amq.topic", "since": "soon"}, "backfill_refused"),
        ({"do": "bind", "exchange": "amq.topic"}, "bad_field"),
    ],
)
def test_mistakes_are_named(world: World, request_: dict[str, object], code: str) -> None:
    client = Client(world)
    client.request("create_topic", topic="topic")
    client.request("declare_queue", queue="q")
    told = client.request(**request_)  # type: ignore[arg-type]
    assert told["code"] == code


def test_a_dead_letter_topic_is_made_where_the_topic_may_be(world: World) -> None:
    client = Client(world)
    asked = {"handle": 5, "topic": "t", "subscription": "s", "dead_letter": "t.dead"}
    client.request("create_topic", topic="t")
    assert client.request("subscribe", **asked)["code"] == "not_found"
    assert client.request("subscribe", create=True, **asked) == {"handle": 5}
    assert client.request("topics") == {"topics": ["t", "t.dead"]}
