"""Delayed messages with names: cancelled and replaced while they wait."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from pamqp.commands import Basic

from penstock.router.authorization.permissions import Permission
from tests.support.amqp_session import Client, World

ID = "x-penstock-delay-id"
CANCEL = "x-penstock-cancel"


@pytest.fixture
def queue(client: Client) -> str:
    client.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    for exchange in ("amq.direct", "amq.fanout"):
        client.call(
            1, commands.Queue.Bind(queue="q", exchange=exchange, routing_key="k"), commands.Queue.BindOk
        )
    return "q"


def publish(client: Client, body: bytes, exchange: str = "amq.direct", **headers: Any) -> None:
    named = {f"x-penstock-{name.replace('_', '-')}": value for name, value in headers.items()}
    client.publish(exchange, "k", body, headers=named, delivery_mode=2)
    client.read()


def waiting(world: World) -> int:
    return int(world.broker.delayed.statistics()["delayed"])


def got(client: Client) -> list[tuple[bytes, dict[str, Any]]]:
    found = []
    while True:
        client.send(1, Basic.Get(queue="q", no_ack=True))
        client.read()
        if isinstance(client.frames[0][1], Basic.GetEmpty):
            client.frames.clear()
            return found
        _, header, body = client.message(1, Basic.GetOk)
        found.append((body, dict(header.properties.headers or {})))


def test_a_cancelled_message_never_comes_and_its_name_is_free(
    world: World, client: Client, queue: str
) -> None:
    publish(client, b"one", deliver_after=1_000, delay_id="a")
    publish(client, b"two", deliver_after=1_000, delay_id="b")
    publish(client, b"", cancel="a")
    assert waiting(world) == 1
    publish(client, b"three", deliver_after=1_000, delay_id="a")
    world.later(1.1)
    assert got(client) == [(b"two", {}), (b"three", {})]


def test_a_name_given_again_replaces_what_has_it(world: World, client: Client, queue: str) -> None:
    publish(client, b"old", deliver_after=1_000, delay_id="a")
    publish(client, b"new", deliver_after=2_000, delay_id="a")
    assert waiting(world) == 1
    world.later(1.1)
    assert got(client) == []
    world.later(1.0)
    assert got(client) == [(b"new", {})]


def test_without_a_delay_it_replaces_what_waits_and_comes_at_once(
    world: World, client: Client, queue: str
) -> None:
    publish(client, b"later", deliver_after=1_000, delay_id="a")
    publish(client, b"now", delay_id="a")
    assert got(client) == [(b"now", {})]
    world.later(1.1)
    assert got(client) == []


def test_a_name_belongs_to_its_exchange(world: World, client: Client, queue: str) -> None:
    publish(client, b"one", deliver_after=1_000, delay_id="a")
    publish(client, b"", "amq.fanout", cancel="a")
    assert waiting(world) == 1
    publish(client, b"", cancel="a")
    assert waiting(world) == 0


def test_a_delivered_message_cannot_be_cancelled_and_leaves_no_row(
    world: World, client: Client, queue: str
) -> None:
    publish(client, b"one", deliver_after=1_000, delay_id="a")
    world.later(1.1)
    assert got(client) == [(b"one", {})]
    publish(client, b"", cancel="a")
    assert not list(world.log.tables.items("delay_name"))


def test_mandatory_tells_whether_something_was_cancelled(world: World, client: Client, queue: str) -> None:
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    publish(client, b"one", deliver_after=1_000, delay_id="a")
    client.frames.clear()
    for expected in ([Basic.Ack], [Basic.Return, Basic.Ack]):
        client.publish("amq.direct", "k", b"", mandatory=True, headers={CANCEL: "a"})
        client.read()
        told = [type(frame) for _, frame in client.frames if isinstance(frame, Basic.Return | Basic.Ack)]
        assert told == expected
        client.frames.clear()
    assert waiting(world) == 0


def test_names_survive_a_restart(world: World, client: Client, queue: str) -> None:
    for name in ("a", "b"):
        publish(client, name.encode(), deliver_after=5_000, delay_id=name)
    publish(client, b"", cancel="b")
    world.restart()
    again = world.client()
    assert waiting(world) == 1
    publish(again, b"", cancel="a")
    assert waiting(world) == 0
    world.later(5.1)
    assert got(again) == []
    assert waiting(world) == 0


def test_in_a_transaction_it_is_cancelled_by_the_commit(world: World, client: Client, queue: str) -> None:
    publish(client, b"one", deliver_after=1_000, delay_id="a")
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    publish(client, b"", cancel="a")
    client.call(1, commands.Tx.Rollback(), commands.Tx.RollbackOk)
    assert waiting(world) == 1
    publish(client, b"", cancel="a")
    client.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)
    assert waiting(world) == 0


def test_the_delay_of_a_delayed_exchange_can_have_a_name_too(
    world: World, client: Client, queue: str
) -> None:
    client.call(
        1,
        commands.Exchange.Declare(
            exchange="later", exchange_type="x-delayed-message", arguments={"x-delayed-type": "direct"}
        ),
        commands.Exchange.DeclareOk,
    )
    client.publish("later", "k", b"one", headers={"x-delay": 1_000, ID: "a"})
    client.read()
    assert waiting(world) == 1
    publish(client, b"", "later", cancel="a")
    assert waiting(world) == 0


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({ID: 5}, f"invalid header '{ID}': a text of 1 to 255 bytes is wanted"),
        ({ID: ""}, f"invalid header '{ID}': a text of 1 to 255 bytes is wanted"),
        ({CANCEL: "x" * 256}, f"invalid header '{CANCEL}': a text of 1 to 255 bytes is wanted"),
        ({ID: "a", CANCEL: "a"}, f"headers '{ID}' and '{CANCEL}' in one message; set one of them"),
    ],
)
def test_impossible_names_end_the_channel(client: Client, headers: dict[str, Any], text: str) -> None:
    client.publish("amq.direct", "k", b"m", headers=headers)
    client.read()
    (close,) = (frame for _, frame in client.frames if isinstance(frame, commands.Channel.Close))
    assert (close.reply_code, close.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


def test_a_user_without_write_permission_cancels_nothing(world: World, client: Client, queue: str) -> None:
    publish(client, b"one", deliver_after=1_000, delay_id="a")
    world.broker.administration.set_permission("guest", "/", Permission(".*", "^q$", ".*"))
    publish(client, b"", cancel="a")
    (close,) = (frame for _, frame in client.frames if isinstance(frame, commands.Channel.Close))
    assert close.reply_code == 403
    assert waiting(world) == 1
