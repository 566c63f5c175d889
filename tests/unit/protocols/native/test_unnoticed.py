"""Seeks, timeouts, delays and acknowledgements: each test is for a mutant that no other test noticed."""

from __future__ import annotations

import pytest

from tests.reference import native_frames as wire
from tests.support.native_kinds import consumer, producer
from tests.support.native_session import Client, World


def dead(world: World) -> list[bytes]:
    """The messages in the topic `dead`."""
    reader = Client(world)
    reader.request("read", handle=1, topic="dead", start="earliest")
    reader.send(wire.credit(1, 1000, 1 << 20))
    found = reader.bodies()
    reader.lose()
    return found


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
def test_a_subscription_keeps_its_limits_over_a_seek(world: World, kind: str) -> None:
    sender = producer(world)
    sender.request("create_topic", topic="dead")
    taker = consumer(world, kind, "a", max_deliveries=2, dead_letter="dead")
    sender.produce(1, b"rejected", b"fails")
    taker.take()
    sender.request("seek", topic="t", subscription="s", to="earliest")
    rejected, fails = taker.delivered()
    taker.send(wire.nack(7, [(rejected["tag"],) * 2], reject=True))
    taker.send(wire.nack(7, [(fails["tag"],) * 2]))
    (again,) = taker.delivered()
    assert (again["body"], again["given_back"]) == (b"fails", 1)
    taker.send(wire.nack(7, [(again["tag"],) * 2]))
    assert taker.bodies() == []
    assert dead(world) == [b"rejected", b"fails"]


def test_time_runs_again_for_a_consumer_that_had_nothing_out_for_a_while(world: World) -> None:
    sender, taker = producer(world), consumer(world, "shared", "a", ack_timeout_ms=2000)
    for turn in range(3):
        sender.produce(1, b"in time", sequence=2 * turn)
        (one,) = taker.delivered()
        taker.send(wire.ack(7, [(one["tag"],) * 2]))
        world.pass_time(10)
        sender.produce(1, b"late", sequence=2 * turn + 1)
        assert taker.bodies() == [b"late"]
        world.pass_time(2.1)
        (one,) = taker.delivered()
        assert (one["body"], one["given_back"]) == (b"late", 1)
        taker.send(wire.ack(7, [(one["tag"],) * 2]))


def test_a_message_dropped_for_its_timeouts_frees_its_place(world: World) -> None:
    """It comes again nowhere, so that nothing else says that its consumer has room."""
    limits = {"ack_timeout_ms": 2000, "max_deliveries": 1, "max_unacked": 1}
    sender, taker = producer(world), consumer(world, "shared", "a", **limits)
    sender.produce(1, b"0", b"1")
    assert taker.bodies() == [b"0"]
    world.pass_time(2.1)
    assert taker.bodies() == [b"1"]


def test_many_delays_are_never_shortened(world: World) -> None:
    """Of more than 1,000 different ones further moments are rounded, up."""
    count, last_ms = 1100, 100_003
    sender, taker = producer(world), consumer(world, "shared", "a", credit=10_000)
    sender.produce(1, *(b"%d" % i for i in range(count)))
    assert len(taker.bodies()) == count
    for i in range(count):
        taker.send(wire.nack(7, [(i + 1, i + 1)], delay_ms=last_ms - count + 1 + i))
    world.pass_time((last_ms - 50) / 1000)
    early = len(taker.bodies())
    assert early <= count - 50, "none comes before its time"
    world.pass_time(last_ms / 16_000 + 1)
    assert early + len(taker.bodies()) == count


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_no_cumulative_acknowledgements_where_several_consume(world: World, kind: str) -> None:
    sender, taker = producer(world), consumer(world, kind, "a")
    sender.produce(1, b"0", b"1")
    taker.take()
    taker.send(wire.ack(7, [(0, 2)], cumulative=True))
    assert taker.ended()["code"] == "not_cumulative"


def test_an_extended_delivery_does_not_hide_an_older_one(world: World) -> None:
    """The next look is when the oldest is due, not the last one or the one that was extended."""
    sender, taker = producer(world), consumer(world, "shared", "a", ack_timeout_ms=10_000)
    for number in range(3):
        sender.produce(1, b"%d" % number, sequence=number)
        world.pass_time(1)
    assert taker.bodies() == [b"0", b"1", b"2"]
    assert "code" not in taker.request("extend", handle=7, ranges=[[3, 3]])  # 3 s after the first came
    world.pass_time(7.1)
    assert taker.bodies() == [b"0"]
    world.pass_time(1)
    assert taker.bodies() == [b"1"]
    world.pass_time(2)
    assert taker.bodies() == [b"2"]


def test_how_often_it_was_given_back_outlives_a_kill_though_nothing_behind_it_is_settled(
    world: World,
) -> None:
    sender, taker = producer(world), consumer(world, "shared", "a")
    sender.produce(1, b"0", b"1", b"2")
    taker.take()
    taker.send(wire.nack(7, [(3, 3)]))
    (again,) = taker.delivered()
    taker.send(wire.nack(7, [(again["tag"],) * 2]))
    world.pass_time(1)
    world.restart(clean=False)
    came = consumer(world, "shared", "a").delivered()
    assert [(one["body"], one["given_back"]) for one in came] == [(b"0", 0), (b"1", 0), (b"2", 2)]
