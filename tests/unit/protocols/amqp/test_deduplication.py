"""Exchanges of type x-message-deduplication: a value of the header goes through once."""

from __future__ import annotations

import pytest
from pamqp import commands
from pamqp.commands import Basic

from tests.support.amqp_session import Client, World

TYPE = "x-message-deduplication"


def declare(client: Client, name: str = "once", **arguments: object) -> None:
    named = {f"x-cache-{key}": value for key, value in {"size": 100, **arguments}.items()}
    client.call(
        1,
        commands.Exchange.Declare(exchange=name, exchange_type=TYPE, durable=True, arguments=named),
        commands.Exchange.DeclareOk,
    )
    client.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    client.call(1, commands.Queue.Bind(queue="q", exchange=name, routing_key="x"), commands.Queue.BindOk)


def publish(client: Client, value: object, exchange: str = "once", **headers: object) -> None:
    client.publish(exchange, "k", b"m", headers={"x-deduplication-header": value, **headers}, delivery_mode=2)


def ready(client: Client) -> int:
    client.read()
    return client.session.vhost.queues["q"].queue.ready_count


def refused(client: Client) -> commands.Channel.Close:
    client.read()
    (close,) = (frame for _, frame in client.frames if isinstance(frame, commands.Channel.Close))
    return close


def test_a_value_goes_through_once_whatever_its_type(client: Client) -> None:
    declare(client)
    for value in ("a", "b", 5, "5", 5, "a", True, ["a"], ["a"]):
        publish(client, value)
    assert ready(client) == 6


def test_without_the_header_everything_goes_through(client: Client) -> None:
    declare(client)
    for _ in range(3):
        client.publish("once", "k", b"m")
    assert ready(client) == 3


def test_each_exchange_remembers_for_itself(client: Client) -> None:
    declare(client)
    declare(client, "other")
    publish(client, "a")
    publish(client, "a", "other")
    assert ready(client) == 2


def test_duplicates_are_confirmed_too_and_not_before_the_first_one(client: Client) -> None:
    declare(client)
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    for _ in range(3):
        publish(client, "a")
    client.read()
    assert [frame for _, frame in client.frames if isinstance(frame, Basic.Nack)] == []
    acks = [frame for _, frame in client.frames if isinstance(frame, Basic.Ack)]
    assert acks[-1].delivery_tag == 3
    assert ready(client) == 1


def test_a_value_counts_for_its_time_which_a_message_may_set(world: World, client: Client) -> None:
    declare(client, ttl=10_000)
    publish(client, "a")
    publish(client, "b", **{"x-cache-ttl": 30_000})
    world.later(1)
    publish(client, "a")
    assert ready(client) == 2
    world.later(10)
    publish(client, "a")
    publish(client, "b")
    assert ready(client) == 3
    world.later(20)
    publish(client, "b")
    assert ready(client) == 4


def test_of_too_many_values_the_oldest_is_forgotten(client: Client) -> None:
    declare(client, size="2")
    for value in ("a", "b", "c", "b", "a"):
        publish(client, value)
    assert ready(client) == 4


@pytest.mark.parametrize(("persistence", "known"), [("disk", True), ("memory", False)])
def test_deduplication_on_disk_survives_a_restart(
    world: World, client: Client, persistence: str, known: bool
) -> None:
    declare(client, size=2, persistence=persistence)
    for value in ("a", "b", "c"):
        publish(client, value)
    client.read()
    world.restart()
    again = world.client()
    for value in ("c", "b"):
        publish(again, value)
    assert ready(again) == 3 + (0 if known else 2)
    publish(again, "a")  # forgotten in either run
    assert ready(again) == 3 + (1 if known else 3)


def test_it_is_forgotten_with_the_exchange(world: World, client: Client) -> None:
    declare(client, persistence="disk")
    publish(client, "a")
    client.call(1, commands.Exchange.Delete(exchange="once"), commands.Exchange.DeleteOk)
    assert not list(world.log.tables.items("seen"))
    declare(client, persistence="disk")
    publish(client, "a")
    assert ready(client) == 2


def test_a_message_refused_by_a_full_queue_may_be_sent_again(client: Client) -> None:
    named = {"x-max-length": 1, "x-overflow": "reject-publish"}
    client.call(1, commands.Queue.Declare(queue="q", durable=True, arguments=named), commands.Queue.DeclareOk)
    client.call(
        1,
        commands.Exchange.Declare(exchange="once", exchange_type=TYPE, arguments={"x-cache-size": 9}),
        commands.Exchange.DeclareOk,
    )
    client.call(1, commands.Queue.Bind(queue="q", exchange="once", routing_key=""), commands.Queue.BindOk)
    for value in ("a", "b"):
        publish(client, value)
    client.call(1, commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    publish(client, "b")
    assert ready(client) == 1


def test_a_transaction_that_is_rolled_back_leaves_nothing_behind(client: Client) -> None:
    declare(client)
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    publish(client, "a")
    client.call(1, commands.Tx.Rollback(), commands.Tx.RollbackOk)
    for _ in range(2):
        publish(client, "a")
    client.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)
    assert ready(client) == 1


def test_exchanges_cannot_be_bound_to_it(client: Client) -> None:
    declare(client)
    client.send(1, commands.Exchange.Bind(destination="once", source="amq.topic", routing_key="#"))
    assert refused(client).reply_text == (
        "PRECONDITION_FAILED - exchange 'once' of type 'x-message-deduplication' takes messages from "
        "publishers only; bind from it, not to it"
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"),
        (
            {"x-cache-size": 0},
            "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0",
        ),
        ({"x-cache-size": 10_000_001}, "Invalid argument, 'x-cache-size' must be at most 10000000"),
        (
            {"x-cache-size": 1, "x-cache-ttl": "soon"},
            "Invalid argument, 'x-cache-ttl' must be an integer greater than 0",
        ),
        (
            {"x-cache-size": 1, "x-cache-persistence": "tape"},
            "Invalid argument, 'x-cache-persistence' must be either 'disk' or 'memory'",
        ),
    ],
)
def test_impossible_arguments_are_refused(client: Client, arguments: dict[str, object], why: str) -> None:
    client.send(1, commands.Exchange.Declare(exchange="e", exchange_type=TYPE, arguments=arguments))  # type: ignore[arg-type]
    close = refused(client)
    assert (close.reply_code, close.reply_text) == (406, f"PRECONDITION_FAILED - {why}")
