"""Channels that keep deliveries longer than their queue's `x-consumer-timeout` are closed."""

from __future__ import annotations

from pamqp import commands
from pamqp.commands import Basic

from penstock.router.policies.policies import Policy
from tests.support.amqp_session import Client, World


def declare(client: Client, name: str, **arguments: object) -> None:
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    client.call(1, commands.Queue.Declare(queue=name, arguments=named), commands.Queue.DeclareOk)


def take(client: Client, queue: str) -> int:
    client.publish("", queue, b"m")
    client.send(1, Basic.Get(queue=queue))
    method, _, _ = client.message(1, Basic.GetOk)
    assert method.delivery_tag is not None
    return method.delivery_tag


def look(client: Client, now: float) -> object:
    """The close of the channel, if it was closed by then."""
    client.session.look_at_timeouts(now)
    client.read()
    found = [frame for _, frame in client.frames if isinstance(frame, commands.Channel.Close)]
    return found[0] if found else None


def test_the_channel_is_closed_in_rabbitmqs_words_and_the_message_comes_back(client: Client) -> None:
    declare(client, "q", consumer_timeout=10_000)
    take(client, "q")
    assert look(client, 100) is None
    assert look(client, 109.9) is None
    close = look(client, 110)
    assert isinstance(close, commands.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 0, 0)
    assert close.reply_text == (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. "
        "Timeout value used: 10000 ms. This timeout value can be configured, "
        "see consumers doc guide to learn more"
    )
    other = client.world.client()
    other.send(1, Basic.Get(queue="q"))
    method, _, _ = other.message(1, Basic.GetOk)
    assert method.redelivered


def test_a_consumer_that_acknowledges_in_time_continues(client: Client) -> None:
    declare(client, "q", consumer_timeout=10_000)
    for now in range(0, 100, 5):
        tag = take(client, "q")
        assert look(client, now) is None
        assert look(client, now + 4) is None
        client.send(1, Basic.Ack(tag))
    assert look(client, 200) is None


def test_each_queue_has_its_own_time(client: Client) -> None:
    declare(client, "short", consumer_timeout=1_000)
    declare(client, "long", consumer_timeout=60_000)
    declare(client, "none")
    take(client, "long")
    take(client, "none")
    assert look(client, 0) is None
    client.send(1, Basic.Ack(take(client, "short")))
    for now in range(1, 60):
        assert look(client, now) is None
    assert look(client, 60) is not None


def test_a_later_delivery_is_not_blamed_for_an_older_one(client: Client) -> None:
    declare(client, "short", consumer_timeout=5_000)
    declare(client, "none")
    take(client, "none")
    for now in range(20):
        assert look(client, now) is None
    take(client, "short")
    assert look(client, 20) is None
    assert look(client, 24) is None
    assert look(client, 25) is not None


def test_a_policy_sets_it_too(world: World, client: Client) -> None:
    declare(client, "q")
    take(client, "q")
    policy = Policy("p", "^q$", {"consumer-timeout": 3_000}, apply_to="queues")
    world.broker.vhost("/").set_policy("policy", policy)
    assert look(client, 0) is None
    assert look(client, 2.9) is None
    assert look(client, 3) is not None
