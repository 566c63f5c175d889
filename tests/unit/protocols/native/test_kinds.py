"""Failover and key-shared subscriptions over the native protocol, without sockets."""

from __future__ import annotations

import pytest

from penstock.subscriptions.cursor._keys import slot
from tests.reference import native_frames as wire
from tests.support.native_kinds import consumer, keys_at, producer
from tests.support.native_session import Client, World, keyed
from tests.support.queues import Consumer as Other


def active(client: Client) -> list[str]:
    return [event["event"] for event in client.events()]


# Exclusive


def test_a_second_consumer_is_refused_while_the_first_is_there(world: World) -> None:
    first = consumer(world, "exclusive", "a")
    asked = {"handle": 7, "topic": "t", "subscription": "s", "kind": "exclusive"}
    second = Client(world)
    assert second.request("subscribe", **asked)["code"] == "subscription_busy"
    assert first.session.running
    assert first.request("subscribe", **{**asked, "handle": 8})["code"] == "subscription_busy"


def test_a_dead_consumer_is_replaced(world: World) -> None:
    """It does not answer a PING within five seconds; until then nobody gets its place."""
    dead = consumer(world, "exclusive", "a", credit=1)
    sender = producer(world)
    sender.send(keyed(1, 0, [("k", b"1"), ("k", b"2")]))
    assert dead.bodies() == [b"1"]
    dead.alive = False
    second, third = Client(world), Client(world)
    asked = {"topic": "t", "subscription": "s", "kind": "exclusive"}
    for client in (second, third):
        client.send(client.json_frame(0x05, {"do": "subscribe", "handle": 7, **asked}, 99))
    world.pass_time(4.9)
    assert (second.take(), third.take()) == ([], [])
    assert dead.session.running
    world.pass_time(0.2)
    assert dead.ended()["code"] == "silent"
    world.wait(lambda: second.frames and third.frames)
    assert [kind for kind, _, _ in second.take()] == [0x06]
    ((kind, _, told),) = third.take()
    assert (kind, b"subscription_busy" in told) == (0x0F, True)
    second.send(wire.credit(7, 10, 1000))
    assert second.bodies() == [b"1", b"2"]


def test_input_of_a_consumer_shows_that_it_is_alive(world: World) -> None:
    busy = consumer(world, "exclusive", "a")
    busy.alive = False
    second = Client(world)
    asked = {"topic": "t", "subscription": "s", "kind": "exclusive"}
    second.send(second.json_frame(0x05, {"do": "subscribe", "handle": 7, **asked}, 99))
    world.pass_time(3)
    busy.send(wire.credit(7, 1, 1))
    world.wait(lambda: second.frames)
    ((kind, _, told),) = second.take()
    assert (kind, b"subscription_busy" in told) == (0x0F, True)
    world.pass_time(60)
    assert busy.session.running


def test_a_consumer_of_another_front_end_is_in_the_way_like_any_other(world: World) -> None:
    """The connection of who asked was dropped with an internal error."""
    consumer(world, "exclusive", "a", credit=0).lose()
    subscription = world.broker.vhost("/").subscriptions.get("t", "s")
    subscription.attach(Other(subscription, 0))
    asked = {"handle": 7, "topic": "t", "subscription": "s", "kind": "exclusive"}
    native = Client(world)
    assert native.request("subscribe", **asked)["code"] == "subscription_busy"
    assert native.session.running


# Failover


def test_one_consumer_gets_everything_and_the_next_one_takes_over(world: World) -> None:
    sender = producer(world)
    first, second = consumer(world, "failover", "a", priority=1), consumer(world, "failover", "b")
    assert (active(first)[-1], active(second)[-1:]) == ("active", [])
    sender.produce(1, *(b"%d" % i for i in range(5)))
    assert (len(first.bodies()), second.bodies()) == (5, [])
    first.send(wire.ack(7, [(2, 3)]))
    first.lose()
    again = second.delivered()
    assert [one["body"] for one in again] == [b"0", b"3", b"4"]
    assert all(one["redelivered"] for one in again)
    assert active(second)[-1] == "active"


def test_a_higher_priority_takes_over_after_what_is_out_was_settled(world: World) -> None:
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0", b"1")
    assert len(first.bodies()) == 2
    first.events()
    second = consumer(world, "failover", "b", priority=5)
    assert active(first) == ["inactive"]
    sender.produce(1, b"2", sequence=2)
    assert (first.bodies(), second.bodies()) == ([], [])
    first.send(wire.ack(7, [(1, 2)]))
    assert (first.bodies(), second.bodies()) == ([], [b"2"])
    assert active(second) == ["active"]


def test_messages_not_settled_within_a_second_are_rewound(world: World) -> None:
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0", b"1", b"2")
    first.take()
    second = consumer(world, "failover", "b", priority=5)
    first.send(wire.ack(7, [(2, 2)]))
    world.pass_time(0.9)
    assert second.bodies() == []
    world.pass_time(0.2)
    assert second.bodies() == [b"0", b"2"]
    assert "void" in active(first)
    first.send(wire.ack(7, [(1, 3)]))
    described = sender.request("describe", topic="t")["subscriptions"]["s"]
    assert (described["unacked"], described["acknowledged"]) == (2, 1)


def test_a_take_over_that_is_called_off_changes_nothing(world: World) -> None:
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0")
    first.take()
    second = consumer(world, "failover", "b", priority=5)
    second.lose()
    assert active(first)[-1] == "active"
    sender.produce(1, b"1", sequence=1)
    assert first.bodies() == [b"1"]
    world.pass_time(5)
    described = sender.request("describe", topic="t")["subscriptions"]["s"]
    assert described["unacked"] == 2


# Key-shared


def test_each_key_goes_to_one_consumer_in_order(world: World) -> None:
    sender = producer(world)
    takers = [consumer(world, "key_shared", name) for name in "abc"]
    bodies = [(f"k{i % 40}", f"k{i % 40}:{i}".encode()) for i in range(400)]
    sender.send(keyed(1, 0, bodies))
    found = [keys_at(taker) for taker in takers]
    assert sum(map(len, found)) == 40
    assert all(found)
    for mine in found:
        for key, got in mine.items():
            assert got == [body for k, body in bodies if k.encode() == key]


def test_a_key_stays_with_its_holder_until_that_has_settled_it(world: World) -> None:
    sender, first = producer(world), consumer(world, "key_shared", "a")
    keys = [f"k{i}" for i in range(60)]
    sender.send(keyed(1, 0, [(key, f"{key}:0".encode()) for key in keys]))
    assert len(first.bodies()) == 60
    second = consumer(world, "key_shared", "b")
    sender.send(keyed(1, 60, [(key, f"{key}:1".encode()) for key in keys]))
    mine, others = keys_at(first), keys_at(second)
    assert others == {}, "all keys have messages out at the first"
    assert 0 < len(mine) < 60
    first.send(wire.ack(7, [(1, 60)]))
    late = keys_at(second)
    assert set(late) | set(mine) == {key.encode() for key in keys}
    assert not set(late) & set(mine)


def test_a_key_is_free_when_the_last_of_its_messages_is_settled(world: World) -> None:
    sender, first = producer(world), consumer(world, "key_shared", "a")
    keys = [f"k{i}" for i in range(20)]
    sender.send(keyed(1, 0, [(key, key.encode()) for key in (*keys, *keys, *keys)]))
    assert len(first.bodies()) == 60
    second = consumer(world, "key_shared", "b")
    sender.send(keyed(1, 60, [(key, key.encode()) for key in keys]))
    new = len(first.bodies())
    assert 0 < new < 20
    for settled in ((1, 20), (41, 60)):
        first.send(wire.ack(7, [settled]))
        assert second.bodies() == []
    first.send(wire.ack(7, [(21, 40)]))
    assert len(second.bodies()) == 20 - new


def test_a_message_that_waits_to_come_again_does_not_hold_its_key(world: World) -> None:
    """Its key moves to the new consumer at once, though the message is out for a while."""
    sender, first = producer(world), consumer(world, "key_shared", "a")
    keys = [f"k{i}" for i in range(60)]
    sender.send(keyed(1, 0, [(key, f"{key}:0".encode()) for key in keys]))
    assert len(first.bodies()) == 60
    second = consumer(world, "key_shared", "b")
    first.send(wire.nack(7, [(1, 60)], delay_ms=5000))
    sender.send(keyed(1, 60, [(key, f"{key}:1".encode()) for key in keys]))
    mine, others = keys_at(first), keys_at(second)
    assert len(mine) + len(others) == 60 and others
    assert all(len(got) == 1 for got in (*mine.values(), *others.values()))
    world.pass_time(5.1)
    again = {**keys_at(first), **keys_at(second)}
    assert again == {key.encode(): [f"{key}:0".encode()] for key in keys}


def test_unsettled_messages_of_a_lost_consumer_come_to_the_others_before_newer_ones(world: World) -> None:
    sender = producer(world)
    first, second = consumer(world, "key_shared", "a"), consumer(world, "key_shared", "b")
    keys = [f"k{i}" for i in range(30)]
    for number in range(3):
        sender.send(keyed(1, 30 * number, [(key, f"{key}:{number}".encode()) for key in keys]))
    held = keys_at(first)
    assert held
    second.take()
    first.lose()
    again = keys_at(second)
    assert again == held


def test_a_consumer_without_credit_holds_up_its_own_keys_only(world: World) -> None:
    sender = producer(world)
    slow = consumer(world, "key_shared", "a", credit=1)
    quick = consumer(world, "key_shared", "b", credit=5000)
    bodies = [(f"k{i % 20}", f"k{i % 20}:{i}".encode()) for i in range(2000)]
    sender.send(keyed(1, 0, bodies))
    mine = keys_at(quick)
    assert len(slow.bodies()) == 1
    assert 0 < len(mine) < 20
    assert all(len(got) == 100 for got in mine.values())
    slow.send(wire.credit(7, 5000, 1 << 20))
    late = keys_at(slow)
    assert sum(map(len, late.values())) == 2000 - 1 - sum(map(len, mine.values()))
    for key, got in late.items():
        assert got == [body for k, body in bodies if k.encode() == key][-len(got) :]


def test_credit_that_comes_after_everything_was_taken_is_used(world: World) -> None:
    sender, taker = producer(world), consumer(world, "key_shared", "a", credit=2)
    sender.send(keyed(1, 0, [("k", b"k:%d" % i) for i in range(5)]))
    assert taker.bodies() == [b"k:0", b"k:1"]
    taker.send(wire.credit(7, 2, 1 << 20))
    assert taker.bodies() == [b"k:2", b"k:3"]
    taker.send(wire.credit(7, 2, 1 << 20))
    assert taker.bodies() == [b"k:4"]


def test_sticky_consumers_get_the_slots_they_want(world: World) -> None:
    sender = producer(world)
    at = slot(b"mine")
    first = consumer(world, "key_shared", "a", sticky=True, ranges=[[at, at]])
    fields = {"topic": "t", "subscription": "s", "kind": "key_shared", "sticky": True}
    other = Client(world)
    refused = other.request("subscribe", handle=1, ranges=[[0, 65535]], **fields)
    assert refused["code"] == "subscription_busy"
    for ends in ([at, at + 1], [at - 1, at]):
        beside = other.request("subscribe", handle=1, ranges=[ends], **fields)
        assert beside["code"] == "subscription_busy", "it overlaps by one slot"
    assert other.request("subscribe", handle=1, ranges=[[5, 4]], **fields)["code"] == "bad_field"
    assert other.request("subscribe", handle=1, ranges=[], **fields)["code"] == "bad_field"
    sender.send(keyed(1, 0, [("mine", b"mine:0"), ("yours", b"yours:0")]))
    assert first.bodies() == [b"mine:0"]
    rest = [[0, at - 1], [at + 1, 65535]]
    assert other.request("subscribe", handle=1, ranges=rest, **fields) == {"handle": 1}
    other.send(wire.credit(1, 10, 1 << 20))
    assert other.bodies() == [b"yours:0"]


@pytest.mark.parametrize("kind", ["failover", "key_shared"])
def test_the_kind_survives_a_restart(world: World, kind: str) -> None:
    sender, first = producer(world), consumer(world, kind, "a")
    sender.send(keyed(1, 0, [("k", b"k:0"), ("k", b"k:1")]))
    first.take()
    first.send(wire.ack(7, [(1, 1)], request=1))
    world.restart()
    again = consumer(world, kind, "b").delivered()
    assert [(one["body"], one["redelivered"]) for one in again] == [(b"k:1", True)]
    assert Client(world).request("subscribe", handle=1, topic="t", subscription="s")["code"] == "inequivalent"
