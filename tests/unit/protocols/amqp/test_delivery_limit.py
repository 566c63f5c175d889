"""Delivery limits: how often a message comes again, what it says of that, where it goes then."""

from __future__ import annotations

from time import monotonic

import pytest
from pamqp import commands
from pamqp.commands import Basic

from tests.support.amqp_session import Client, World


def declare(client: Client, name: str, *, durable: bool = False, **arguments: object) -> None:
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    client.call(
        1, commands.Queue.Declare(queue=name, durable=durable, arguments=named), commands.Queue.DeclareOk
    )


def fail(client: Client, queue: str) -> object:
    """Get a message and give it back; the x-delivery-count it had, None without."""
    client.send(1, Basic.Get(queue=queue))
    deadline = monotonic() + 60
    while not client.frames:  # it may come from the disk
        assert monotonic() < deadline
        client.world.tick.schedule()
        client.read()
    method, header, _ = client.message(1, Basic.GetOk)
    count = (header.properties.headers or {}).get("x-delivery-count")
    assert method.delivery_tag is not None
    client.send(1, Basic.Reject(method.delivery_tag, requeue=True))
    return count


def left(client: Client, queue: str) -> int:
    declared = client.call(1, commands.Queue.Declare(queue=queue, passive=True), commands.Queue.DeclareOk)
    assert declared.message_count is not None
    return declared.message_count


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_a_message_comes_once_more_often_than_its_limit_and_is_dead_lettered(
    client: Client, queue_type: str
) -> None:
    declare(client, "dead")
    declare(
        client,
        "q",
        durable=True,
        queue_type=queue_type,
        delivery_limit=2,
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    client.publish("", "q", message_id="m")
    assert [fail(client, "q") for _ in range(3)] == [None, 1, 2]
    assert left(client, "q") == 0
    client.send(1, Basic.Get(queue="dead", no_ack=True))
    _, header, _ = client.message(1, Basic.GetOk)
    assert header.properties.headers["x-death"][0]["reason"] == "delivery_limit"
    assert header.properties.message_id == "m"


def test_without_a_dead_letter_exchange_what_is_over_an_explicit_limit_is_dropped(client: Client) -> None:
    declare(client, "q", delivery_limit=0)
    client.publish("", "q")
    assert fail(client, "q") is None
    assert left(client, "q") == 0


def test_a_quorum_queue_has_a_limit_of_20_only_with_a_dead_letter_exchange(client: Client) -> None:
    declare(client, "dead")
    declare(client, "keeps", durable=True, queue_type="quorum")
    dead = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    declare(client, "limited", durable=True, queue_type="quorum", **dead)
    declare(client, "unlimited", durable=True, queue_type="quorum", delivery_limit=-1, **dead)
    for name in ("keeps", "limited", "unlimited"):
        client.publish("", name)
        assert [fail(client, name) for _ in range(21)] == [None, *range(1, 21)]
    assert [left(client, name) for name in ("keeps", "limited", "unlimited", "dead")] == [1, 0, 1, 1]


def test_a_classic_queue_without_a_limit_says_nothing(client: Client) -> None:
    declare(client, "q")
    client.publish("", "q")
    assert [fail(client, "q") for _ in range(30)] == [None] * 30


def test_the_count_survives_a_restart(world: World) -> None:
    client = world.client()
    declare(client, "q", durable=True, delivery_limit=3)
    client.publish("", "q", delivery_mode=2)
    assert [fail(client, "q") for _ in range(2)] == [None, 1]
    client.send(1, Basic.Get(queue="q"))
    client.message(1, Basic.GetOk)
    world.restart()
    client = world.client()
    assert fail(client, "q") == 3
    assert left(client, "q") == 0


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"content_type": "a", "content_encoding": "b", "delivery_mode": 2, "app_id": "z"},
        {"content_type": "a", "headers": {"one": 1, "x-delivery-count": "theirs", "two": [1, {"a": None}]}},
        {"headers": {}, "correlation_id": "c"},
    ],
)
def test_the_header_is_put_into_any_properties(client: Client, properties: dict[str, object]) -> None:
    declare(client, "q", delivery_limit=5)
    client.publish("", "q", **properties)
    fail(client, "q")
    client.send(1, Basic.Get(queue="q"))
    _, header, _ = client.message(1, Basic.GetOk)
    found = {name: value for name, value in header.properties if value not in (None, "")}
    headers = properties.get("headers", {})
    assert isinstance(headers, dict)
    assert found == {**properties, "headers": {**headers, "x-delivery-count": 1}}
