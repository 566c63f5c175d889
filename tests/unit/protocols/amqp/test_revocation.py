"""A permission that is taken back ends what went on by it: consumers, the connection, publishes."""

from __future__ import annotations

import pytest
from pamqp import commands

from penstock.router.authorization.permissions import Permission, TopicPermission
from tests.support.amqp_session import CAPABILITIES, Client, World

NO_READ = "ACCESS_REFUSED - read access to queue '{}' in vhost '/' refused for user 'guest'"
NO_TOPIC = (
    "ACCESS_REFUSED - {} access to topic '{}' in exchange 'amq.topic' in vhost '/' refused for user 'guest'"
)


def consumer(client: Client) -> None:
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    client.call(1, commands.Queue.Declare(queue="r"), commands.Queue.DeclareOk)
    for queue in "qr":
        client.call(1, commands.Basic.Consume(queue=queue, consumer_tag=queue), commands.Basic.ConsumeOk)
    client.publish("", "q", b"1")
    assert client.bodies() == [b"1"]


def test_a_consumer_that_may_not_read_any_more_is_cancelled(world: World) -> None:
    client = world.client()
    consumer(client)
    world.broker.authorizer.set("guest", "/", Permission(read="^r$"))
    assert client.expect(1, commands.Basic.Cancel).consumer_tag == "q"
    client.publish("", "q", b"2")
    client.publish("", "r", b"3")
    assert client.bodies() == [b"3"]
    # The client keeps the messages that it already had.
    client.send(1, commands.Basic.Ack(1))
    client.nothing()


def test_a_client_that_knows_no_cancel_loses_the_channel(world: World) -> None:
    client = world.client(capabilities={**CAPABILITIES, "consumer_cancel_notify": False})
    consumer(client)
    world.broker.authorizer.set("guest", "/", Permission(read="^q$"))
    close = client.expect(1, commands.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (403, 60, 20)
    assert close.reply_text == NO_READ.format("r")
    client.nothing()


def test_a_consumer_whose_start_waits_is_asked_again(world: World) -> None:
    client = world.client()
    client.send(
        1,
        commands.Queue.Declare(queue="q", durable=True),
        commands.Basic.Consume(queue="q", consumer_tag="t"),
    )
    # Nothing is synced yet: both answers wait.
    world.broker.authorizer.set("guest", "/", Permission(read=""))
    client.expect(1, commands.Queue.DeclareOk)
    close = client.expect(1, commands.Channel.Close)
    assert close.reply_text == NO_READ.format("q")


def test_a_user_without_the_vhost_is_out(world: World) -> None:
    world.broker.authorizer.set("ann", "/", Permission())
    client, other = world.client(), world.client(user="ann")
    world.broker.authorizer.clear("ann", "/")
    close = other.expect(0, commands.Connection.Close)
    assert (close.reply_code, close.reply_text) == (
        530,
        "NOT_ALLOWED - access to vhost '/' refused for user 'ann'",
    )
    client.nothing()
    assert world.broker.connections.of(user="ann") == []


def test_a_forced_close_says_why(world: World) -> None:
    client = world.client()
    (member,) = world.broker.connections
    member.force_close("Closed via management plugin")
    close = client.expect(0, commands.Connection.Close)
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - Closed via management plugin")
    assert (close.class_id, close.method_id) == (0, 0)
    client.send(0, commands.Connection.CloseOk())
    assert client.session.ended == "CONNECTION_FORCED - Closed via management plugin"


@pytest.mark.parametrize("headers", [None, {"CC": ["b"]}])
def test_a_key_that_may_not_be_written_closes_the_channel(
    world: World, headers: dict[str, object] | None
) -> None:
    client = world.client()
    world.broker.authorizer.set_topic("guest", "/", "amq.topic", TopicPermission("^a" if headers else "^c"))
    client.publish("amq.topic", "a", **({"headers": headers} if headers else {}))
    close = client.expect(1, commands.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (403, 60, 40)
    assert close.reply_text == NO_TOPIC.format("write", "b" if headers else "a")


def test_a_key_that_may_not_be_read_cannot_be_bound(world: World) -> None:
    client = world.client()
    world.broker.authorizer.set_topic("guest", "/", "amq.topic", TopicPermission(read="^a"))
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    close = client.call(
        1, commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="#"), commands.Channel.Close
    )
    assert close.reply_text == NO_TOPIC.format("read", "#")
