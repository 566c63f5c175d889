"""Exchanges of type x-recent-history where their memory ends, and who else publishes to them."""

from __future__ import annotations

import pytest
from pamqp import commands

from penstock.router.exchanges import recent_history
from penstock.router.names import ENC_MQTT5
from tests.support.amqp_session import Client, World


def declare(client: Client, length: int = 20) -> None:
    arguments = {"x-recent-history-length": length}
    client.call(
        1,
        commands.Exchange.Declare(
            exchange="recent", exchange_type="x-recent-history", durable=True, arguments=arguments
        ),
        commands.Exchange.DeclareOk,
    )


def bound_later(client: Client, queue: str) -> list[bytes]:
    """The messages of a queue that is declared, bound and read now."""
    client.call(1, commands.Queue.Declare(queue=queue), commands.Queue.DeclareOk)
    client.call(1, commands.Queue.Bind(queue=queue, exchange="recent"), commands.Queue.BindOk)
    found = []
    while True:
        client.send(1, commands.Basic.Get(queue=queue, no_ack=True))
        client.read()
        if isinstance(client.frames[0][1], commands.Basic.GetEmpty):
            client.frames.clear()
            return found
        found.append(client.message(1, commands.Basic.GetOk)[2])


def test_the_oldest_leave_when_they_hold_too_much(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_history, "BYTES_MAX", 10_000)
    declare(client)
    for number in range(5):
        client.publish("recent", "k", b"%d" % number + bytes(3000))
    client.publish("recent", "k", bytes(20_000))
    assert bound_later(client, "a") == [], "one that is larger than all may be leaves nothing"
    for number in range(5):
        client.publish("recent", "k", b"%d" % number + bytes(3000))
    assert [body[:1] for body in bound_later(client, "b")] == [b"3", b"4"]


def test_a_restart_begins_with_nothing_and_what_is_not_stored_stays_so(world: World, client: Client) -> None:
    declare(client)
    client.publish("recent", "k", b"before", delivery_mode=2)
    client.read()
    world.restart()
    again = Client(world)
    again.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    again.publish("recent", "k", b"kept")
    again.publish("recent", "k", b"not kept", headers={"x-recent-history-no-store": True})
    assert bound_later(again, "q") == [b"kept"]


def test_messages_of_mqtt_and_dead_letters_are_remembered_too(world: World, client: Client) -> None:
    declare(client)
    bind = commands.Exchange.Bind(destination="recent", source="amq.topic", routing_key="#")
    client.call(1, bind, commands.Exchange.BindOk)
    client.session.vhost.publish(None, ENC_MQTT5, b"a/b", body=b"from mqtt", headers={})
    arguments = {"x-dead-letter-exchange": "recent"}
    client.call(1, commands.Queue.Declare(queue="dying", arguments=arguments), commands.Queue.DeclareOk)
    client.publish("", "dying", b"a dead letter")
    client.send(1, commands.Basic.Get(queue="dying"))
    got = client.expect(1, commands.Basic.GetOk)
    client.send(1, commands.Basic.Reject(delivery_tag=got.delivery_tag, requeue=False))
    client.read()
    client.frames.clear()
    assert bound_later(client, "q") == [b"from mqtt", b"a dead letter"]


def test_a_transaction_is_remembered_when_it_is_committed(client: Client) -> None:
    declare(client)
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish("recent", "k", b"rolled back")
    client.call(1, commands.Tx.Rollback(), commands.Tx.RollbackOk)
    client.publish("recent", "k", b"committed")
    client.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)
    assert bound_later(client, "q") == [b"committed"]
