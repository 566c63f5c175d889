"""Subscriptions that are sought, and what is left of their cursors before."""

from __future__ import annotations

from penstock.subscriptions.queues import TABLE
from tests.reference import native_frames as wire
from tests.support.native_kinds import consumer, producer
from tests.support.native_session import World


def test_settlements_after_a_seek_are_kept(world: World) -> None:
    sender, taker = producer(world), consumer(world, "shared", "a")
    sender.produce(1, b"0", b"1")
    assert taker.bodies() == [b"0", b"1"]
    sender.request("seek", topic="t", subscription="s", to="earliest")
    (first, second) = taker.delivered()
    world.pass_time(1)  # what the old cursor had to say is kept
    taker.send(wire.ack(7, [(first["tag"], second["tag"])]))
    world.pass_time(1)
    world.restart(clean=False)
    assert consumer(world, "shared", "a").bodies() == []


def test_a_retry_scheduled_before_a_seek_does_nothing_after_it(world: World) -> None:
    sender, taker = producer(world), consumer(world, "shared", "a")
    sender.produce(1, b"0")
    assert taker.bodies() == [b"0"]
    taker.send(wire.nack(7, [(1, 1)], delay_ms=2000))
    sender.request("seek", topic="t", subscription="s", to="earliest")
    assert taker.bodies() == [b"0"]
    world.pass_time(2.1)
    assert taker.bodies() == []


def test_one_without_a_record_of_its_cursor_begins_with_what_comes(world: World) -> None:
    sender, taker = producer(world), consumer(world, "shared", "a")
    sender.produce(1, b"0")
    taker.send(wire.ack(7, [(1, 1)]))
    world.pass_time(1)
    subscription = world.broker.vhost("/").subscriptions.get("t", "s")
    taker.lose()
    world.pass_time(1)
    world.log.tables.delete(TABLE, subscription.qid.to_bytes(8, "big"))
    world.restart(clean=False)
    sender, taker = producer(world), consumer(world, "shared", "a")
    sender.produce(1, b"1")
    assert taker.bodies() == [b"1"]
