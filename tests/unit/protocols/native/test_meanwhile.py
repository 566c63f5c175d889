"""A request or a delivery while something else is in progress."""

from __future__ import annotations

import pytest

from penstock.router.arguments import decode_table, encode_table
from penstock.router.rows import row_key
from tests.reference import native_frames as wire
from tests.support.native_kinds import consumer, producer
from tests.support.native_session import Client, World

MANY_BYTES = 1 << 20


def at_once(world: World, *requests: dict[str, object]) -> list[bytes]:
    """Ask all in one read; the answers, in the order of the requests."""
    client = Client(world)
    client.send(b"".join(client.json_frame(0x05, fields, i) for i, fields in enumerate(requests)))
    world.wait(lambda: len(client.frames) == len(requests))
    return [payload for _, _, payload in sorted(client.take(), key=lambda frame: frame[1])]


# A position is looked for, and what it is for is deleted


def test_a_subscription_to_a_stream_that_goes_meanwhile_is_refused(world: World) -> None:
    producer(world).produce(1, b"0")
    subscribe = {"do": "subscribe", "handle": 1, "topic": "t", "subscription": "s", "start": "-1h"}
    refused, deleted = at_once(world, subscribe, {"do": "delete_topic", "topic": "t"})
    assert (b'"not_found"' in refused, deleted) == (True, b"{}")
    world.restart()
    assert Client(world).request("topics")["topics"] == []


def test_a_subscription_without_its_stream_is_forgotten_at_the_next_start(world: World) -> None:
    """As a row of an older version may be."""
    consumer(world, "shared", "a", credit=0).lose()
    kept = world.log.tables.get("queue", row_key("/", "subscription", "t", "s"))
    assert kept is not None
    row = decode_table(kept)
    rows = [row_key("/", "subscription", topic, "s") for topic in ("gone", "plain")]
    for number, (at, topic) in enumerate(zip(rows, ("gone", "plain"), strict=True)):
        arguments = {**row["arguments"], "x-stream": topic}
        lost = {**row, "qid": 10 + number, "name": f"{topic}/s", "arguments": arguments}
        world.log.tables.put("queue", at, encode_table(lost))
    world.broker.vhost("/").declare_queue("plain", Client(world).session.actor, durable=True)
    world.restart()
    assert [world.log.tables.get("queue", at) for at in rows] == [None, None]
    assert list(Client(world).request("describe", topic="t")["subscriptions"]) == ["s"]


def test_a_subscription_that_goes_meanwhile_is_not_sought(world: World) -> None:
    producer(world).produce(1, b"0")
    consumer(world, "shared", "a", credit=0)
    place = {"topic": "t", "subscription": "s"}
    refused, deleted = at_once(
        world, {"do": "seek", **place, "to": "-1h"}, {"do": "delete_subscription", **place}
    )
    assert (b'"not_found"' in refused, deleted) == (True, b"{}")


def test_a_reader_of_a_stream_that_goes_meanwhile_is_refused(world: World) -> None:
    producer(world).produce(1, b"0")
    read = {"do": "read", "handle": 1, "topic": "t", "start": "-1h"}
    refused, deleted = at_once(world, read, {"do": "delete_topic", "topic": "t"})
    assert (b'"not_found"' in refused, deleted) == (True, b"{}")


def test_a_transient_subscription_is_made_again_when_its_consumer_turns_out_to_be_dead(world: World) -> None:
    producer(world)
    asked = {"topic": "t", "subscription": "s", "kind": "exclusive", "durable": False}
    dead = consumer(world, "exclusive", "a", durable=False)
    dead.alive = False
    second, third = Client(world), Client(world)
    for client in (second, third):
        client.send(client.json_frame(0x05, {"do": "subscribe", "handle": 7, **asked}, 99))
    world.pass_time(5.1)
    world.wait(lambda: second.frames and third.frames)
    assert [payload for _, _, payload in second.take()] == [b'{"handle":7}']
    assert [b"subscription_busy" in payload for _, _, payload in third.take()] == [True]


# A take-over, and what nobody holds


@pytest.mark.parametrize("delay_ms", [1500, 3000])
def test_a_take_over_does_not_bring_back_what_waits(world: World, delay_ms: int) -> None:
    """It came to the new one at once, and, while that had it, a second time when its wait was over."""
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0", b"1")
    assert first.bodies() == [b"0", b"1"]
    first.send(wire.nack(7, [(1, 1)], delay_ms=delay_ms))
    second = consumer(world, "failover", "b", priority=5)
    world.pass_time(1.2)
    assert second.bodies() == [b"1"]
    world.pass_time(delay_ms / 1000)
    ((again),) = second.delivered()
    assert (again["body"], again["given_back"], again["redelivered"]) == (b"0", 1, True)
    world.pass_time(60)
    assert second.bodies() == []
    second.send(wire.ack(7, [(1, 2)]))
    described = sender.request("describe", topic="t")["subscriptions"]["s"]
    assert (described["unacked"], described["backlog"], described["acknowledged"]) == (0, 0, 2)


def test_a_retried_message_is_unsettled_like_any_other(world: World) -> None:
    """It comes to the next one when its consumer does not settle it in time for a take-over."""
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0")
    first.take()
    first.send(wire.nack(7, [(1, 1)], delay_ms=500))
    world.pass_time(0.6)
    assert first.bodies() == [b"0"]
    second = consumer(world, "failover", "b", priority=5)
    world.pass_time(1.2)
    assert second.bodies() == [b"0"]


@pytest.mark.parametrize("how", ["rejected", "limit"])
def test_a_take_over_does_not_bring_back_what_is_being_dead_lettered(world: World, how: str) -> None:
    """200 at once: what is refused is dead-lettered by 128 in a turn."""
    sender = producer(world)
    assert "code" not in sender.request("create_topic", topic="dead")
    options: dict[str, object] = {"dead_letter": "dead", **({"max_deliveries": 1} if how == "limit" else {})}
    first = consumer(world, "failover", "a", **options)
    sender.produce(1, *(b"%d" % i for i in range(400)))
    assert len(first.bodies()) == 400
    reject = how == "rejected"
    nack = wire.nack(7, [(1, 400)], reject=reject)
    # The other one joins, and the first one leaves, before a turn comes.
    second = Client(world)
    fields = {"topic": "t", "subscription": "s", "kind": "failover", "priority": 5, **options}
    join = second.json_frame(0x05, {"do": "subscribe", "handle": 7, "consumer": "b", **fields}, 9)
    for client, data in ((first, nack), (second, join + wire.credit(7, 1000, MANY_BYTES))):
        buffer = bytearray(data)
        assert client.session.receive(buffer, len(buffer)) == len(data)
    subscription = world.broker.vhost("/").subscriptions.get("t", "s")
    subscription._sharing._hand_over()  # type: ignore[union-attr]
    world.settle()
    world.pass_time(2)
    assert second.bodies() == []
    described = sender.request("describe", topic="t")["subscriptions"]["s"]
    assert (described["unacked"], described["backlog"]) == (0, 0)
    reader = Client(world)
    reader.request("read", handle=1, topic="dead", start="earliest")
    reader.send(wire.credit(1, 1000, MANY_BYTES))
    assert sorted(map(int, reader.bodies())) == list(range(400))
