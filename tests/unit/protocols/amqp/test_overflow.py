"""Publishes that a queue refuses: nacked in their turn, dead-lettered where the queue says so."""

from __future__ import annotations

from pamqp import commands
from pamqp.commands import Basic, Confirm

from tests.support.amqp_session import Client, World


def declare(client: Client, name: str, **arguments: object) -> None:
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    client.call(1, commands.Queue.Declare(queue=name, arguments=named), commands.Queue.DeclareOk)


def confirms(client: Client) -> list[tuple[bool, int]]:
    """The result of each publish: (accepted, its number), in the order of the confirms."""
    client.read()
    found: list[tuple[bool, int]] = []
    for _, frame in client.frames:
        assert isinstance(frame, Basic.Ack | Basic.Nack)
        assert frame.delivery_tag is not None
        first = max((number for _, number in found), default=0) + 1 if frame.multiple else frame.delivery_tag
        accepted = isinstance(frame, Basic.Ack)
        found += [(accepted, number) for number in range(first, frame.delivery_tag + 1)]
    client.frames.clear()
    return found


def bodies(client: Client, queue: str) -> list[bytes]:
    found = []
    while True:
        client.send(1, Basic.Get(queue=queue, no_ack=True))
        client.read()
        if isinstance(client.frames[0][1], Basic.GetEmpty):
            client.frames.clear()
            return found
        found.append(client.message(1, Basic.GetOk)[2])


def test_refused_publishes_are_nacked_between_the_others(client: Client) -> None:
    declare(client, "full", max_length=1, overflow="reject-publish")
    declare(client, "free")
    client.call(1, Confirm.Select(), Confirm.SelectOk)
    for key in ("free", "full", "free", "full", "full", "free", "nowhere"):
        client.publish("", key, delivery_mode=2)
    accepted = [True, True, True, False, False, True, True]
    assert confirms(client) == list(zip(accepted, range(1, 8), strict=True))
    assert bodies(client, "full") == [b"x"]
    client.publish("", "full")
    assert confirms(client) == [(True, 8)]


def test_a_refused_publish_alone_is_nacked(client: Client) -> None:
    declare(client, "q", max_length=0, overflow="reject-publish")
    client.call(1, Confirm.Select(), Confirm.SelectOk)
    client.publish("", "q")
    assert confirms(client) == [(False, 1)]


def test_without_confirms_nothing_is_told_but_of_a_commit(client: Client) -> None:
    """RabbitMQ's words; unlike there nothing of the transaction is kept."""
    declare(client, "other")
    declare(client, "q", max_length=0, overflow="reject-publish")
    client.publish("", "q", mandatory=True)
    client.nothing()
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish("", "q")
    client.publish("", "other")
    client.send(1, commands.Tx.Commit())
    close = client.expect(1, commands.Channel.Close)
    assert (close.reply_code, close.reply_text) == (
        406,
        "PRECONDITION_FAILED - partial tx completion: queue 'q' is full and refuses more",
    )
    client.send(1, commands.Channel.CloseOk())
    client.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    assert bodies(client, "q") == bodies(client, "other") == []


def test_a_refused_message_is_dead_lettered_where_the_queue_says_so(client: Client) -> None:
    declare(client, "dead")
    declare(
        client,
        "q",
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    client.call(1, Confirm.Select(), Confirm.SelectOk)
    client.publish("", "q", b"a")
    client.publish("", "q", b"b", message_id="m")
    assert confirms(client) == [(True, 1), (False, 2)]
    client.send(1, Basic.Get(queue="dead", no_ack=True))
    method, header, body = client.message(1, Basic.GetOk)
    assert (method.exchange, body, header.properties.message_id) == ("", b"b", "m")
    (death,) = header.properties.headers["x-death"]
    assert (death["reason"], death["queue"], death["count"]) == ("maxlen", "q", 1)


def test_a_letter_that_its_own_full_queue_refuses_ends_there(client: Client) -> None:
    arguments = {"max_length": 0, "overflow": "reject-publish-dlx", "dead_letter_exchange": ""}
    declare(client, "q", **arguments)
    client.publish("", "q")
    assert bodies(client, "q") == []


def test_an_expired_letter_does_not_come_back_to_a_queue_that_may_refuse(world: World) -> None:
    client = world.client()
    declare(
        client,
        "q",
        max_length=10,
        overflow="reject-publish",
        dead_letter_exchange="amq.fanout",
        message_ttl=0,
    )
    declare(client, "other")
    for name in ("q", "other"):
        client.call(1, commands.Queue.Bind(queue=name, exchange="amq.fanout"), commands.Queue.BindOk)
    client.publish("", "q", b"x")
    while not client.session.vhost.queues["other"].queue.ready_count:  # its millisecond has to pass
        world.loop.advance(0.001)
    assert bodies(client, "other") == [b"x"]
    assert bodies(client, "q") == []
