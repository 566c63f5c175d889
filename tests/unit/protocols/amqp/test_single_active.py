"""x-single-active-consumer: one consumer at a time, and who is next."""

from __future__ import annotations

from typing import Literal

import pytest
from pamqp import commands
from pamqp.commands import Basic

from tests.support.amqp_session import Client, World


def declare(client: Client, kind: Literal["classic", "quorum"] = "classic") -> None:
    arguments = {"x-single-active-consumer": True, "x-queue-type": kind}
    client.call(
        1, commands.Queue.Declare(queue="q", durable=True, arguments=arguments), commands.Queue.DeclareOk
    )


def consume(client: Client, tag: str, *, priority: int = 0, no_ack: bool = False) -> None:
    method = Basic.Consume(queue="q", consumer_tag=tag, no_ack=no_ack, arguments={"x-priority": priority})
    client.call(1, method, Basic.ConsumeOk)


def deliveries(client: Client) -> list[tuple[str, bytes, int]]:
    """(consumer tag, body, delivery tag) of all that came."""
    client.read()
    found = []
    while client.frames:
        method, _, body = client.message(1, Basic.Deliver)
        found.append((method.consumer_tag, body, method.delivery_tag))
    return found


def publish(client: Client, *bodies: bytes) -> None:
    for body in bodies:
        client.publish("", "q", body)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_first_gets_everything_until_it_goes(client: Client, kind: Literal["classic", "quorum"]) -> None:
    declare(client, kind)
    for tag in ("a", "b", "c"):
        consume(client, tag, no_ack=True)
    publish(client, b"1", b"2", b"3")
    assert [who for who, _, _ in deliveries(client)] == ["a"] * 3
    client.call(1, Basic.Cancel("b"), Basic.CancelOk)
    client.call(1, Basic.Cancel("a"), Basic.CancelOk)
    publish(client, b"4")
    assert [who for who, _, _ in deliveries(client)] == ["c"]


def test_a_lost_connection_hands_over_what_it_held(world: World, client: Client) -> None:
    declare(client)
    other = world.client()
    consume(other, "first")
    consume(client, "second")
    publish(client, b"1", b"2")
    assert [body for _, body, _ in deliveries(other)] == [b"1", b"2"]
    client.nothing()
    other.session.lost()
    world.clients.remove(other)
    assert [(who, body) for who, body, _ in deliveries(client)] == [("second", b"1"), ("second", b"2")]


def test_a_full_prefetch_does_not_pass_messages_on(client: Client) -> None:
    declare(client)
    client.call(1, Basic.Qos(0, 1, False), Basic.QosOk)
    consume(client, "a")
    consume(client, "b")
    publish(client, b"1", b"2")
    ((who, _, tag),) = deliveries(client)
    assert who == "a"
    client.send(1, Basic.Ack(tag))
    assert [who for who, _, _ in deliveries(client)] == ["a"]


def test_a_classic_queue_does_not_look_at_priorities(client: Client) -> None:
    declare(client)
    consume(client, "a", no_ack=True)
    consume(client, "b", no_ack=True)
    consume(client, "c", priority=9, no_ack=True)
    publish(client, b"1")
    assert [who for who, _, _ in deliveries(client)] == ["a"]
    client.call(1, Basic.Cancel("a"), Basic.CancelOk)
    publish(client, b"2")
    assert [who for who, _, _ in deliveries(client)] == ["b"]


def test_a_quorum_queue_changes_over_to_a_higher_priority_after_the_drain(client: Client) -> None:
    declare(client, "quorum")
    consume(client, "low")
    publish(client, b"1", b"2")
    tags = [tag for _, _, tag in deliveries(client)]
    consume(client, "high", priority=5)
    consume(client, "middle", priority=3)
    publish(client, b"3")
    assert deliveries(client) == []
    client.send(1, Basic.Ack(tags[0]))
    assert deliveries(client) == []
    client.send(1, Basic.Ack(tags[1]))
    assert [who for who, _, _ in deliveries(client)] == ["high"]
    client.call(1, Basic.Cancel("high"), Basic.CancelOk)
    publish(client, b"4")
    client.send(1, Basic.Ack(0, multiple=True))
    assert [who for who, _, _ in deliveries(client)] == ["middle"]


@pytest.mark.parametrize("first", [True, False])
def test_nobody_consumes_exclusively(client: Client, first: bool) -> None:
    declare(client)
    if not first:
        consume(client, "a")
    client.send(1, Basic.Consume(queue="q", exclusive=True))
    close = client.expect(1, commands.Channel.Close)
    assert close.reply_text == "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"


def test_get_is_refused_by_a_quorum_queue(client: Client) -> None:
    declare(client, "quorum")
    client.send(1, Basic.Get(queue="q"))
    close = client.expect(1, commands.Channel.Close)
    assert (close.reply_code, close.reply_text) == (
        405,
        "RESOURCE_LOCKED - cannot obtain access to locked queue 'q' in vhost '/'. basic.get operations are "
        "not supported by quorum queues with single active consumer",
    )


def test_it_is_still_so_after_a_restart(world: World, client: Client) -> None:
    declare(client)
    world.restart()
    client = world.client()
    consume(client, "a", no_ack=True)
    consume(client, "b", no_ack=True)
    publish(client, b"1", b"2")
    assert [who for who, _, _ in deliveries(client)] == ["a", "a"]
