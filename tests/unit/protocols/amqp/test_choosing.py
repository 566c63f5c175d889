"""Exchanges that look at a message's properties to choose its queue, however the message comes to them."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.support.amqp_session import Client, World

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def client(world: World) -> Client:
    """A connection; exchange `x` hashes message ids to four queues."""
    client = world.client()
    arguments = {"hash-property": "message_id"}
    declare = commands.Exchange.Declare(exchange="x", exchange_type="x-consistent-hash", arguments=arguments)
    client.call(1, declare, commands.Exchange.DeclareOk)
    for name in NAMES:
        client.call(1, commands.Queue.Declare(queue=name), commands.Queue.DeclareOk)
        client.call(1, commands.Queue.Bind(queue=name, exchange="x", routing_key="1"), commands.Queue.BindOk)
    return client


def held(client: Client, name: str) -> list[bytes]:
    """The bodies in a queue; they are taken out."""
    bodies = []
    while True:
        client.send(1, commands.Basic.Get(queue=name, no_ack=True))
        client.read()
        if isinstance(client.frames[0][1], commands.Basic.GetEmpty):
            client.frames.clear()
            return bodies
        bodies.append(client.message(1, commands.Basic.GetOk)[2])


def chosen(client: Client) -> dict[bytes, str]:
    """The queue that each body went to; one each."""
    found = [(body, name) for name in NAMES for body in held(client, name)]
    assert len(found) == len(dict(found))
    return dict(found)


def test_a_property_decides_whichever_way_the_message_comes(client: Client) -> None:
    bodies = [f"{index}".encode() for index in range(40)]
    for body in bodies:
        client.publish("x", "any", body, message_id=body.decode())
    published = chosen(client)
    assert set(published) == set(bodies) and set(published.values()) == set(NAMES)

    # By way of a queue that dead-letters them to it ...
    dead = {"x-dead-letter-exchange": "x", "x-max-length": 0}
    client.call(1, commands.Queue.Declare(queue="dead", arguments=dead), commands.Queue.DeclareOk)
    for body in bodies:
        client.publish("", "dead", body, message_id=body.decode())
    client.world.turn()
    assert chosen(client) == published

    # ... and by way of another exchange.
    bind = commands.Exchange.Bind(destination="x", source="amq.fanout")
    client.call(1, bind, commands.Exchange.BindOk)
    for body in bodies:
        client.publish("amq.fanout", "other", body, message_id=body.decode())
    assert chosen(client) == published


def test_messages_without_the_property_share_one_queue(client: Client) -> None:
    for index in range(20):
        client.publish("x", f"{index}", f"{index}".encode())
    assert len(set(chosen(client).values())) == 1


def test_a_binding_without_a_weight_closes_the_channel(client: Client) -> None:
    close = client.call(
        1, commands.Queue.Bind(queue="a", exchange="x", routing_key="heavy"), commands.Channel.Close
    )
    assert (close.reply_code, close.class_id, close.method_id) == (406, 50, 20)
    assert close.reply_text == 'PRECONDITION_FAILED - The binding key must be an integer: <<"heavy">>'
