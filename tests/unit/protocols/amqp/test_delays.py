"""Delayed messages over AMQP: the delayed exchange as RabbitMQ's plugin has it, and our headers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest
from pamqp import commands
from pamqp.commands import Basic

from penstock.router.messages import delayed
from penstock.router.messages.delayed import HORIZON_MS
from tests.support.amqp_session import Client, World


def declare(client: Client, name: str = "later", inner: object = "direct", **more: object) -> None:
    arguments = {"x-delayed-type": inner, **more}
    client.call(
        1,
        commands.Exchange.Declare(
            exchange=name,
            exchange_type="x-delayed-message",
            durable=True,
            arguments=arguments,  # type: ignore[arg-type]
        ),
        commands.Exchange.DeclareOk,
    )


def bound(
    client: Client, queue: str = "q", exchange: str = "later", key: str = "k", **arguments: Any
) -> None:
    client.call(1, commands.Queue.Declare(queue=queue, durable=True), commands.Queue.DeclareOk)
    client.call(
        1,
        commands.Queue.Bind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments),
        commands.Queue.BindOk,
    )


def got(client: Client, queue: str = "q") -> list[tuple[bytes, dict[str, Any]]]:
    """The bodies and headers in the queue now."""
    found = []
    while True:
        client.send(1, Basic.Get(queue=queue, no_ack=True))
        client.read()
        if isinstance(client.frames[0][1], Basic.GetEmpty):
            client.frames.clear()
            return found
        _, header, body = client.message(1, Basic.GetOk)
        found.append((body, dict(header.properties.headers or {})))


def bodies(client: Client, queue: str = "q") -> list[bytes]:
    return [body for body, _ in got(client, queue)]


def wait_bodies(world: World, client: Client, count: int) -> list[bytes]:
    """The bodies of `count` messages, which must be read from the disk first."""
    found: list[bytes] = []
    deadline = monotonic() + 60
    while len(found) < count:
        assert monotonic() < deadline, f"{found} came"
        world.tick.schedule()
        world.later(0.001)
        found += bodies(client)
    return found


def test_a_message_comes_when_its_delay_is_over_and_says_so(world: World, client: Client) -> None:
    declare(client)
    bound(client)
    client.publish("later", "k", b"one", headers={"x-delay": 5000, "other": "kept"})
    world.later(4.5)
    assert got(client) == []
    world.later(0.6)
    assert got(client) == [(b"one", {"x-delay": -5000, "other": "kept"})]


@pytest.mark.parametrize("delay", [None, 0, -1, -5000, True, {"a": 1}])
def test_without_a_positive_delay_it_is_published_at_once(client: Client, delay: object) -> None:
    declare(client)
    bound(client)
    client.publish("later", "k", b"now", headers={} if delay is None else {"x-delay": delay})
    assert bodies(client) == [b"now"]


@pytest.mark.parametrize("delay", [2000, 2000.9, "2000"])
def test_numbers_of_any_type_count(world: World, client: Client, delay: object) -> None:
    declare(client)
    bound(client)
    client.publish("later", "k", b"x", headers={"x-delay": delay})
    assert bodies(client) == []
    world.later(2.1)
    assert got(client) == [(b"x", {"x-delay": -2000})]


def test_a_delay_above_the_plugins_limit_is_waited_for(world: World, client: Client) -> None:
    """The plugin takes 2^32 ms and more for no delay."""
    declare(client)
    bound(client)
    client.publish("later", "k", b"x", headers={"x-delay": 2**32 + 5})
    assert bodies(client) == []
    world.later(2**32 / 1000 + 1)
    assert got(client) == [(b"x", {"x-delay": -(2**32) - 5})]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"x-delay": "soon"}, "invalid header 'x-delay': 'soon' is no number of milliseconds"),
        (
            {"x-delay": HORIZON_MS + 1},
            f"invalid header 'x-delay': more than {HORIZON_MS} ms (100 years) from now",
        ),
        (
            {"x-penstock-deliver-after": "5"},
            "invalid header 'x-penstock-deliver-after': a number of milliseconds is wanted, not '5'",
        ),
        (
            {"x-penstock-deliver-after": 5, "x-penstock-deliver-at": 5},
            "headers 'x-penstock-deliver-after' and 'x-penstock-deliver-at' in one message; set one of them",
        ),
    ],
)
def test_an_impossible_delay_ends_the_channel(client: Client, headers: dict[str, Any], text: str) -> None:
    declare(client)
    client.publish("later", "k", headers=headers)
    close = client.expect(1, commands.Channel.Close)
    assert (close.reply_code, close.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x-delayed-type": 5}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x-delayed-type": "nope"}, "unknown exchange type 'nope'"),
        ({"x-delayed-type": "x-delayed-message"}, "unknown exchange type 'x-delayed-message'"),
    ],
)
def test_the_type_of_a_delayed_exchange_is_checked(client: Client, arguments: Any, text: str) -> None:
    client.send(
        1,
        commands.Exchange.Declare(exchange="x", exchange_type="x-delayed-message", arguments=arguments),
    )
    close = client.expect(1, commands.Channel.Close)
    assert (close.reply_code, close.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


def test_redeclaring_with_another_delayed_type_is_refused(client: Client) -> None:
    declare(client)
    declare(client)
    with pytest.raises(AssertionError):
        declare(client, inner="topic")


@pytest.mark.parametrize(
    ("inner", "pattern", "arguments"),
    [("fanout", "", {}), ("topic", "k.#", {}), ("headers", "", {"x-match": "all", "kind": "a"})],
)
def test_when_it_is_due_it_is_routed_as_the_delayed_type_says(
    world: World, client: Client, inner: str, pattern: str, arguments: dict[str, Any]
) -> None:
    declare(client, inner=inner)
    bound(client, "before", key=pattern, **arguments)
    client.publish("later", "k.a", b"x", headers={"x-delay": 1000, "kind": "a"})
    bound(client, "after", key=pattern, **arguments)
    client.call(
        1,
        commands.Queue.Unbind(queue="before", exchange="later", routing_key=pattern, arguments=arguments),
        commands.Queue.UnbindOk,
    )
    world.later(1.1)
    assert (bodies(client, "before"), bodies(client, "after")) == ([], [b"x"])


def test_equal_times_keep_the_order_of_publishing_and_others_come_by_time(
    world: World, client: Client
) -> None:
    declare(client)
    bound(client)
    for i, delay in enumerate([300, 100, 200, 300, 100]):
        client.publish("later", "k", bytes((65 + i,)), headers={"x-delay": delay})
    world.later(0.5)
    assert b"".join(bodies(client)) == b"BECAD"


def test_a_delayed_exchange_bound_to_another_delays_what_comes_through_it(
    world: World, client: Client
) -> None:
    declare(client)
    bound(client)
    client.call(1, commands.Queue.Declare(queue="direct"), commands.Queue.DeclareOk)
    bind = commands.Queue.Bind(queue="direct", exchange="amq.direct", routing_key="k")
    client.call(1, bind, commands.Queue.BindOk)
    client.call(
        1,
        commands.Exchange.Bind(destination="later", source="amq.direct", routing_key="k"),
        commands.Exchange.BindOk,
    )
    client.publish("amq.direct", "k", b"x", headers={"x-delay": 1000})
    assert got(client, "direct") == [(b"x", {"x-delay": 1000})]
    assert bodies(client) == []
    world.later(1.1)
    assert got(client) == [(b"x", {"x-delay": -1000})]
    assert bodies(client, "direct") == []


def test_a_second_exchange_does_not_delay_a_message_again(world: World, client: Client) -> None:
    declare(client)
    declare(client, "second")
    bound(client, exchange="second")
    client.call(
        1,
        commands.Exchange.Bind(destination="second", source="later", routing_key="k"),
        commands.Exchange.BindOk,
    )
    client.publish("later", "k", b"x", headers={"x-delay": 1000})
    world.later(1.1)
    assert bodies(client) == [b"x"]


def test_it_is_confirmed_when_it_is_kept_and_survives_a_restart(world: World, client: Client) -> None:
    declare(client)
    bound(client)
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish("later", "k", b"x", headers={"x-delay": 60_000}, delivery_mode=2)
    assert client.expect(1, Basic.Ack).delivery_tag == 1
    world.restart()
    world.later(30)
    client = world.client()
    assert bodies(client) == []
    world.later(31)
    assert wait_bodies(world, client, 1) == [b"x"]
    world.restart()
    assert world.broker.statistics()["delayed"] == 0


def test_messages_due_while_the_broker_was_down_come_at_the_start(world: World, client: Client) -> None:
    declare(client)
    bound(client)
    for body in (b"a", b"b"):
        client.publish("later", "k", body, headers={"x-delay": 5000})
    client.read()
    world.close()
    world.skew_s += 3600
    world._open()
    world.later(0.01)
    assert wait_bodies(world, world.client(), 2) == [b"a", b"b"]


def test_mandatory_asks_where_it_would_go_now(world: World, client: Client) -> None:
    declare(client)
    client.publish("later", "k", b"x", headers={"x-delay": 1000}, mandatory=True)
    returned, _, body = client.message(1, Basic.Return)
    assert (returned.reply_code, returned.reply_text, body) == (312, "NO_ROUTE", b"x")
    bound(client)
    world.later(2)
    assert bodies(client) == []  # it was returned, so it does not come as well
    client.publish("later", "k", b"y", headers={"x-delay": 1000}, mandatory=True)
    client.read()
    assert client.frames == []
    world.later(2)
    assert bodies(client) == [b"y"]


def test_a_message_whose_exchange_is_gone_is_dropped_and_counted(world: World, client: Client) -> None:
    declare(client)
    client.publish("later", "k", b"x", headers={"x-delay": 1000})
    client.call(1, commands.Exchange.Delete(exchange="later"), commands.Exchange.DeleteOk)
    world.later(2)
    statistics = world.broker.statistics()
    assert (statistics["delayed"], statistics["delayed_dropped"]) == (0, 1)


def test_delayed_messages_of_a_transaction_are_kept_by_its_commit(world: World, client: Client) -> None:
    declare(client)
    bound(client)
    client.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish("later", "k", b"no", headers={"x-delay": 1000})
    client.call(1, commands.Tx.Rollback(), commands.Tx.RollbackOk)
    client.publish("later", "k", b"yes", headers={"x-delay": 1000})
    client.call(1, commands.Tx.Commit(), commands.Tx.CommitOk)
    world.later(2)
    assert bodies(client) == [b"yes"]


def test_a_dead_letter_is_delayed_by_its_header_once(world: World, client: Client) -> None:
    declare(client)
    bound(client, "retry")
    arguments = {"x-dead-letter-exchange": "later", "x-dead-letter-routing-key": "k"}
    client.call(1, commands.Queue.Declare(queue="work", arguments=arguments), commands.Queue.DeclareOk)
    client.publish("", "work", b"x", headers={"x-delay": 1000})
    client.send(1, Basic.Get(queue="work"))
    client.message(1, Basic.GetOk)
    client.send(1, Basic.Reject(delivery_tag=1, requeue=False))
    assert bodies(client, "retry") == []
    world.later(1.1)
    ((body, headers),) = got(client, "retry")
    assert (body, headers["x-delay"], headers["x-death"][0]["queue"]) == (b"x", -1000, "work")


def test_any_publish_can_be_delayed_by_our_headers_which_are_taken_out(world: World, client: Client) -> None:
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    now = datetime.fromtimestamp(world.log.wall_ms() // 1000, UTC)
    client.publish("", "q", b"after", headers={"x-penstock-deliver-after": 3000, "a": 1})
    client.publish("", "q", b"at", headers={"x-penstock-deliver-at": world.log.wall_ms() + 2000})
    client.publish("", "q", b"timestamp", headers={"x-penstock-deliver-at": now + timedelta(seconds=10)})
    client.publish("", "q", b"past", headers={"x-penstock-deliver-at": 1_000_000, "b": 2})
    assert got(client) == [(b"past", {"b": 2})]
    world.later(4)
    assert got(client) == [(b"at", {}), (b"after", {"a": 1})]
    world.later(8)
    assert got(client) == [(b"timestamp", {})]


def test_copies_of_a_delayed_message_come_with_it(world: World, client: Client) -> None:
    for name in ("q", "cc", "bcc"):
        client.call(1, commands.Queue.Declare(queue=name), commands.Queue.DeclareOk)
    client.publish("", "q", b"x", headers={"x-penstock-deliver-after": 1000, "CC": ["cc"], "BCC": ["bcc"]})
    assert [bodies(client, name) for name in ("q", "cc", "bcc")] == [[], [], []]
    world.later(1.1)
    assert [bodies(client, name) for name in ("q", "cc", "bcc")] == [[b"x"]] * 3


def test_a_publish_that_is_refused_is_refused_at_once(client: Client) -> None:
    client.publish("gone", "k", headers={"x-penstock-deliver-after": 1000})
    assert client.expect(1, commands.Channel.Close).reply_code == 404


def test_expiration_counts_from_when_it_is_due(world: World, client: Client) -> None:
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    client.publish("", "q", b"x", headers={"x-penstock-deliver-after": 10_000}, expiration="1000")
    world.later(10.1)
    assert bodies(client) == [b"x"]


def test_when_the_clock_is_set_back_what_waits_waits_longer_and_nothing_is_lost(
    world: World, client: Client
) -> None:
    declare(client)
    bound(client)
    client.publish("later", "k", b"1", headers={"x-delay": 1000})
    world.later(2)
    assert bodies(client) == [b"1"]
    client.publish("later", "k", b"2", headers={"x-delay": 5000})
    world.skew_s -= 3600
    client.publish("later", "k", b"3", headers={"x-delay": 1000})
    world.later(2)
    assert bodies(client) == [b"3"]
    world.restart()
    world.later(3600)
    assert wait_bodies(world, world.client(), 1) == [b"2"]


def test_more_than_one_turn_takes_is_published_in_the_next_ones(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed, "_TURN_S", 0.0)
    declare(client)
    bound(client)
    for i in range(600):
        client.publish("later", "k", b"%d" % i, headers={"x-delay": 1000})
    world.later(1.1)
    assert len(bodies(client)) == 600
