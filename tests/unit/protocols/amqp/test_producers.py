"""Repeated messages of a named AMQP producer are confirmed and not appended."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from pamqp.commands import Basic

from tests.support.amqp_session import Client, World


@pytest.fixture
def queue(client: Client) -> str:
    client.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    return "q"


def send(client: Client, sequence: int, name: str = "p", **more: Any) -> None:
    headers = {"x-penstock-producer": name, "x-penstock-sequence": sequence}
    client.publish("", "q", b"%d" % sequence, headers=headers, delivery_mode=2, **more)


def acked(client: Client) -> int:
    """The highest delivery tag of the confirms that came."""
    client.read()
    tags = [frame.delivery_tag for _, frame in client.frames if isinstance(frame, Basic.Ack)]
    assert len(tags) == len(client.frames)
    client.frames.clear()
    return max(tags, default=0)


def ready(world: World) -> int:
    return world.broker.vhost("/").queues["q"].queue.ready_count


def test_repeated_messages_are_confirmed_and_not_appended(world: World, client: Client, queue: str) -> None:
    for sequence in (1, 2, 2, 1, 7, 3):
        send(client, sequence)
    assert (acked(client), ready(world)) == (6, 3)
    send(client, 3, name="other")
    assert (acked(client), ready(world)) == (7, 4)


def test_it_is_known_after_a_restart_and_on_another_connection(
    world: World, client: Client, queue: str
) -> None:
    send(client, 5)
    assert acked(client) == 1
    world.restart()
    again = world.client()
    again.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    send(again, 5)
    send(again, 6)
    assert (acked(again), ready(world)) == (2, 2)


def test_a_rolled_back_number_can_be_sent_again(world: World, client: Client) -> None:
    client.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    send(client, 1)
    client.call(1, commands.Tx.Rollback(), commands.Tx.RollbackOk)
    send(client, 1)
    send(client, 1)
    client.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)
    assert ready(world) == 1


def test_a_number_refused_by_a_full_queue_can_be_sent_again(world: World, client: Client) -> None:
    arguments: Any = {"x-max-length": 1, "x-overflow": "reject-publish"}
    client.call(1, commands.Queue.Declare(queue="q", arguments=arguments), commands.Queue.DeclareOk)
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    send(client, 1)
    send(client, 2)
    client.read()
    assert [type(frame) for _, frame in client.frames] == [Basic.Ack, Basic.Nack]
    client.frames.clear()
    client.call(1, commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    send(client, 2)
    assert (acked(client), ready(world)) == (3, 1)


def test_numbers_behind_a_refused_one_wait_for_it(world: World, client: Client) -> None:
    """Else it would be taken for kept when it comes; and it is nowhere meanwhile."""
    arguments: Any = {"x-max-length": 1, "x-overflow": "reject-publish"}
    client.call(1, commands.Queue.Declare(queue="q", arguments=arguments), commands.Queue.DeclareOk)
    client.call(1, commands.Queue.Declare(queue="other"), commands.Queue.DeclareOk)
    for queue in ("q", "other"):
        client.call(1, commands.Queue.Bind(queue=queue, exchange="amq.fanout"), commands.Queue.BindOk)
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)

    def confirms(*numbers: int) -> list[type]:
        for number in numbers:
            headers = {"x-penstock-producer": "p", "x-penstock-sequence": number}
            client.publish("amq.fanout", "", headers=headers)
        client.read()
        found = [type(frame) for _, frame in client.frames]
        client.frames.clear()
        return found

    assert confirms(1, 2) == [Basic.Ack, Basic.Nack]
    client.call(1, commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    assert confirms(3) == [Basic.Nack]
    assert confirms(2) == [Basic.Ack]
    client.call(1, commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    assert confirms(3) == [Basic.Ack]
    assert confirms(1, 2, 3)[-1] is Basic.Ack
    vhost = world.broker.vhost("/")
    assert [vhost.queues[name].queue.ready_count for name in ("q", "other")] == [1, 3]


def test_a_delayed_message_is_scheduled_once(world: World, client: Client, queue: str) -> None:
    headers = {"x-penstock-producer": "p", "x-penstock-sequence": 1, "x-penstock-deliver-after": 1000}
    for _ in range(2):
        client.publish("", "q", headers=headers)
    assert acked(client) == 2
    world.later(1.1)
    client.read()
    assert ready(world) == 1


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (
            {"x-penstock-producer": "p"},
            "'x-penstock-sequence': an integer from 0 to 2^63 - 1 is wanted, and there is none",
        ),
        (
            {"x-penstock-producer": "p", "x-penstock-sequence": "1"},
            "'x-penstock-sequence': an integer from 0 to 2^63 - 1 is wanted, not '1'",
        ),
        (
            {"x-penstock-sequence": 1},
            "'x-penstock-producer': a text of 1 to 255 bytes is wanted, and there is none",
        ),
        (
            {"x-penstock-producer": "", "x-penstock-sequence": 1},
            "'x-penstock-producer': a text of 1 to 255 bytes is wanted, not ''",
        ),
    ],
)
def test_half_a_number_ends_the_channel(client: Client, headers: dict[str, Any], text: str) -> None:
    client.publish("", "q", headers=headers)
    close = client.expect(1, commands.Channel.Close)
    assert (close.reply_code, close.reply_text) == (406, f"PRECONDITION_FAILED - invalid header {text}")
