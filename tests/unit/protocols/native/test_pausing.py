"""Subscriptions and consumers that are paused, and what is told of them."""

from __future__ import annotations

from typing import Any

from tests.reference import native_frames as wire
from tests.support.native_session import Client, World

CREDIT = wire.credit(2, 1000, 1 << 20)
NAMED = {"topic": "t", "subscription": "s"}


def subscribed(world: World, **more: Any) -> Client:
    """A consumer with credit; whoever comes first makes topic and subscription."""
    client = Client(world)
    told = client.request("subscribe", handle=2, create=True, start="earliest", **NAMED, **more)
    assert told == {"handle": 2}
    client.send(CREDIT)
    return client


def sender(world: World) -> Client:
    client = Client(world)
    client.request("open_producer", handle=1, topic="t", create=True)
    return client


def state(client: Client) -> dict[str, Any]:
    described: dict[str, Any] = client.request("describe", topic="t")["subscriptions"]["s"]
    return described


def test_of_a_paused_subscription_nobody_gets_anything_also_after_a_restart(world: World) -> None:
    first, second = subscribed(world), subscribed(world)
    assert second.request("pause", **NAMED) == second.request("pause", **NAMED) == {}
    sender(world).produce(1, b"a", b"b")
    assert (first.bodies(), second.bodies(), state(first)["paused"]) == ([], [], True)
    world.restart()
    again = subscribed(world)
    assert (again.bodies(), state(again)["paused"], state(again)["backlog"]) == ([], True, 2)
    assert again.request("resume", **NAMED) == again.request("resume", **NAMED) == {}
    assert (again.bodies(), state(again)["paused"]) == ([b"a", b"b"], False)
    again.lose()
    world.restart()
    assert subscribed(world).bodies() == [b"a", b"b"]


def test_unsettled_messages_may_be_settled_in_a_pause(world: World) -> None:
    client = subscribed(world)
    sender(world).produce(1, b"a", b"b")
    assert client.bodies() == [b"a", b"b"]
    client.request("pause", **NAMED)
    client.send(wire.ack(2, [(1, 1)]) + wire.nack(2, [(2, 2)]))
    assert (client.bodies(), state(client)["backlog"]) == ([], 1)
    client.request("resume", **NAMED)
    assert client.bodies() == [b"b"]


def test_a_deleted_subscription_takes_its_pause_along(world: World) -> None:
    client = subscribed(world)
    client.request("pause", **NAMED)
    client.request("delete_subscription", **NAMED)
    again = subscribed(world)
    sender(world).produce(1, b"a")
    assert again.bodies() == [b"a"]
    world.restart()
    assert subscribed(world).bodies() == [b"a"]


def test_a_paused_consumer_leaves_it_to_the_others(world: World) -> None:
    first, second = subscribed(world), subscribed(world)
    assert first.request("pause", handle=2) == {}
    sender(world).produce(1, b"a", b"b")
    assert (first.bodies(), second.bodies()) == ([], [b"a", b"b"])
    second.lose()
    assert first.bodies() == []
    assert first.request("resume", handle=2) == {}
    assert first.bodies() == [b"a", b"b"]
    assert first.request("pause", handle=7)["code"] == "unknown_handle"


def test_a_pull_of_a_paused_consumer_waits(world: World) -> None:
    client = subscribed(world)
    client.request("pause", handle=2)
    sender(world).produce(1, b"a")
    client.send(wire.pull(2, 5, 10, 1, 60_000))
    assert client.bodies() == []
    client.request("resume", handle=2)
    assert client.bodies() == [b"a"]


def test_the_age_of_the_head_is_that_of_the_oldest_unsettled_message(world: World) -> None:
    client, producer = subscribed(world), sender(world)
    assert state(client)["head_age_ms"] is None
    producer.produce(1, b"a")
    world.pass_time(5)
    producer.produce(1, b"b")
    assert state(client)["head_age_ms"] == 5000
    client.send(wire.ack(2, [(1, 1)]))
    assert state(client)["head_age_ms"] == 0
    client.send(wire.ack(2, [(2, 2)]))
    assert state(client)["head_age_ms"] is None


def test_the_age_of_a_head_that_is_not_in_memory_is_read(world: World) -> None:
    subscribed(world).lose()
    sender(world).produce(1, b"old")
    world.restart()
    world.pass_time(60)
    described = state(Client(world))
    assert (described["backlog"], described["head_age_ms"]) == (1, 60_000)
