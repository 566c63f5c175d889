"""A log that holds back: whatever the protocol, a message is delivered when it is durable, and not before.

The publishers here wait for no confirm: it is the consumers that have the log synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands
from pamqp.commands import Basic

from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.protocols.amqp10.codec.performatives import Source, Target
from penstock.protocols.native.codec import kinds
from penstock.subscriptions.queue.queue import Queue
from tests.reference import native_frames as wire
from tests.support import queues
from tests.support.amqp10_session import Peer, message
from tests.support.amqp_session import World
from tests.support.held_log import Held, logs_hold_back
from tests.support.mqtt import Gateway
from tests.support.native_session import PLAIN, Client
from tests.support.native_session import World as NativeWorld


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return logs_hold_back(monkeypatch)


@pytest.fixture
def world(tmp_path: Path, held: Held) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def plain(tmp_path: Path, held: Held) -> Iterator[queues.World]:
    """Queues without a protocol."""
    log = Log.open(tmp_path, LogOptions())
    yield queues.World(log, queues.Loop())
    log.close_sync()


def settle(world: queues.World) -> None:
    """Let everything happen, with what the committer answered."""
    world.tick.schedule()
    world.loop.settle()


@pytest.mark.parametrize("durable", [True, False])
def test_amqp(world: World, held: Held, durable: bool) -> None:
    client = world.client()
    client.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    client.call(1, Basic.Consume(queue="q", no_ack=True), Basic.ConsumeOk)
    with held.held():
        for body in (b"1", b"2"):
            client.publish("", "q", body, delivery_mode=2 if durable else 1)
            client.nothing()
    assert client.wait_bodies(2) == [b"1", b"2"]


def test_amqp_get_waits_for_it(world: World, held: Held) -> None:
    client = world.client()
    client.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    with held.held():
        client.publish("", "q", b"1")
        client.send(1, Basic.Get(queue="q", no_ack=True))
        client.nothing()
    world.tick.schedule()
    assert client.message(1, Basic.GetOk)[2] == b"1"
    client.call(1, Basic.Get(queue="q", no_ack=True), Basic.GetEmpty)


def test_amqp10(world: World, held: Held) -> None:
    peer = Peer(world)
    peer.declare("q")
    sender = peer.attach(Target("/queues/q"), snd_settle_mode=1)
    receiver = peer.attach(Source("/queues/q"), snd_settle_mode=1)
    peer.credit(receiver, 10)
    peer.got()
    with held.held():
        peer.transfer(sender, message(b"1"), settled=True)
        assert peer.bodies() == []
    world.tick.schedule()
    assert peer.bodies() == [b"1"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt(tmp_path: Path, held: Held, qos: int) -> None:
    gateway = Gateway(tmp_path, fsync="group")
    reader, writer = gateway.connect("reader"), gateway.connect("writer")
    reader.subscribe(("a/+", qos))
    with held.held():
        writer.publish("a/b", b"1", qos=qos, packet_id=7)
        writer.publish("a/c", b"2", qos=0)
        assert reader.publishes() == []
    gateway.settle()
    assert [got.payload for got in reader.publishes()] == [b"1", b"2"]
    gateway.stop()


def test_retained_messages_of_mqtt(tmp_path: Path, held: Held) -> None:
    gateway = Gateway(tmp_path, fsync="group")
    reader, writer = gateway.connect("reader"), gateway.connect("writer")
    with held.held():
        writer.publish("a/b", b"1", qos=0, retain=True)
        reader.subscribe(("a/+", 1))
        assert reader.publishes() == []
    gateway.settle()
    assert [got.payload for got in reader.publishes()] == [b"1"]
    gateway.stop()


@pytest.mark.parametrize("capabilities", [(), (kinds.STORED,)])
@pytest.mark.parametrize("count", [1, 100])
def test_native_subscriptions_and_readers(
    tmp_path: Path, held: Held, count: int, capabilities: tuple[str, ...]
) -> None:
    world = NativeWorld(tmp_path, fsync="group")
    writer = Client(world)
    writer.request("open_producer", handle=1, topic="t", create=True)
    readers = [Client(world, capabilities=capabilities) for _ in range(2)]
    readers[0].request("subscribe", handle=2, topic="t", subscription="s", kind="exclusive", durable=True)
    readers[1].request("read", handle=2, topic="t", start="earliest")
    for reader in readers:
        reader.send(wire.credit(2, 1000, 1 << 20))
    bodies = [b"%d" % number for number in range(count)]
    with held.held():
        writer.send(wire.produce(1, 0, 0, [(PLAIN, body) for body in bodies]))
        assert [reader.bodies() for reader in readers] == [[], []]
    found: list[list[bytes]] = [[], []]
    for number, reader in enumerate(readers):
        while len(found[number]) < count:
            world.wait(lambda reader=reader: reader.frames)  # type: ignore[misc]
            found[number] += reader.bodies()
    assert found == [bodies, bodies]
    world.close()


def test_a_consumer_that_comes_between_gets_it_once(plain: queues.World, held: Held) -> None:
    feed = plain.log.new_feed()
    queue = plain.queue("q", feed)
    with held.held():
        first = plain.publish(feed, n=3)
        settle(plain)
        consumer = queues.Consumer(queue)
        queue.attach(consumer)
        settle(plain)
        assert consumer.got == [] and queue.ready_count == 3
    settle(plain)
    assert consumer.got == first
    with held.held():
        second = plain.publish(feed)
        settle(plain)
        consumer.ack()
        settle(plain)
        assert consumer.got == first
    settle(plain)
    assert consumer.got == first + second


@pytest.mark.parametrize("rules", ["priority", "bytes"])
def test_a_queue_that_gathers_waits_without_work(plain: queues.World, held: Held, rules: str) -> None:
    feed = plain.log.new_feed()
    queue: Queue = plain.queue("q", feed)
    if rules == "priority":
        queue.cursor.prioritise(5)
    else:
        queue.cursor.limit_bytes(1000)
    consumer = queues.Consumer(queue)
    queue.attach(consumer)
    with held.held():
        first = plain.publish(feed, n=3)
        plain.loop.settle()
        before = plain.tick.turns
        settle(plain)
        assert consumer.got == [] and plain.tick.turns <= before + 2
    settle(plain)
    assert consumer.got == first


def test_more_and_more_is_let_go_in_order(plain: queues.World, held: Held) -> None:
    feed, other = plain.log.new_feed(), plain.log.new_feed()
    queue = plain.queue("q", feed, other)
    consumer = queues.Consumer(queue)
    queue.attach(consumer)
    sent = []
    for number in range(20):
        with held.held():
            sent += plain.publish(feed if number % 3 else other, n=1 + number % 2)
            settle(plain)
            assert consumer.got == sent[: len(consumer.got)]
            sent += plain.publish(other)
            settle(plain)
        settle(plain)
        assert consumer.got == sent


def test_a_tick_that_was_closed_has_no_turn(plain: queues.World, held: Held) -> None:
    """The log is closed behind the loop, and writes some more."""
    feed = plain.log.new_feed()
    with held.held():
        plain.publish(feed)
        settle(plain)
        plain.tick.close()
    plain.log.wait_synced(plain.log.written_lsn)
    assert plain.log.visible_lsn == plain.log.written_lsn and plain.loop.turn() == 0


def test_delayed_records_are_read_before_they_are_visible(plain: queues.World, held: Held) -> None:
    """The log's own parts find them: only cursors do not."""
    feed = plain.log.new_feed()
    with held.held():
        (lsn,) = plain.publish(feed)
        settle(plain)
        assert plain.log.cache.get(lsn) is not None
        assert plain.log.visible_lsn < lsn <= plain.log.written_lsn


def test_a_confirm_does_not_follow_consumers(tmp_path: Path, held: Held) -> None:
    log = Log.open(tmp_path, LogOptions(confirm_settled=True))
    assert not log.confirms_settled
    log.close_sync()


def test_without_syncs_nothing_is_held_back(tmp_path: Path, held: Held) -> None:
    log = Log.open(tmp_path, LogOptions(fsync="never"))
    assert not log.unwritten.holds_back and log.visible_lsn == 2**64 - 1
    log.close_sync()
