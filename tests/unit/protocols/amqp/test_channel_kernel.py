"""The kernel of a channel: the references it owns, records of other protocols, tags over turns."""

from __future__ import annotations

import gc
import sys

import pytest
from pamqp import commands
from pamqp.commands import Basic

from penstock.router.names import ENC_MQTT5
from tests.support.amqp_session import Client, World


def consuming(world: World, **more: object) -> Client:
    client = world.client()
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    client.call(1, Basic.Consume(queue="q", consumer_tag="c", **more), Basic.ConsumeOk)  # type: ignore[arg-type]
    return client


def test_settled_deliveries_hold_no_reference(world: World) -> None:
    client = consuming(world)
    cursor = client.session.vhost.queues["q"].queue.cursor
    gc.collect()
    before = sys.getrefcount(cursor), sys.getrefcount(None)
    for round_ in range(10):
        for _ in range(100):
            client.publish("", "q")
        assert len(client.bodies()) == 100
        assert sys.getrefcount(cursor) == before[0] + 100
        last = 100 * (round_ + 1)
        client.send(1, Basic.Ack(last - 50, multiple=True), Basic.Nack(0, multiple=True, requeue=False))
        assert sys.getrefcount(cursor) == before[0]
    client.send(1, Basic.Get(queue="q", no_ack=True))
    client.expect(1, Basic.GetEmpty)
    gc.collect()
    # 1,000 deliveries; other parts of the process take and give back some meanwhile.
    assert abs(sys.getrefcount(None) - before[1]) < 500, "None is not given away"


def test_a_channel_that_dies_gives_back_its_references(world: World) -> None:
    client = consuming(world)
    cursor = client.session.vhost.queues["q"].queue.cursor
    before = sys.getrefcount(cursor)
    for _ in range(40):
        client.publish("", "q")
    assert len(client.bodies()) == 40
    client.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    gc.collect()
    assert sys.getrefcount(cursor) <= before


def test_tags_go_on_over_many_turns_of_the_ring(world: World) -> None:
    client = consuming(world)
    tag = 0
    for burst in (1, 31, 32, 33, 100, 3, 64, 65):
        for i in range(burst):
            client.publish("", "q", b"%d" % i)
        assert client.bodies() == [b"%d" % i for i in range(burst)]
        # The last first, so that the ring's head stays until the end.
        for ahead in range(burst, 0, -1):
            client.send(1, Basic.Ack(tag + ahead))
        tag += burst
    core = client.session.codec.channel(1)
    assert core is not None
    assert (core.first_tag, core.next_tag, core.unacked_count, core.outstanding) == (tag + 1, tag + 1, 0, 0)


def test_a_message_from_mqtt_has_an_exchange_a_key_and_properties(world: World) -> None:
    client = consuming(world)
    client.call(
        1, commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="a.*"), commands.Queue.BindOk
    )
    for body in (b"one", b"two"):
        client.session.vhost.publish(None, ENC_MQTT5, b"a/b", b"", body, flags=2)
    world.tick.schedule()
    client.read()
    for expected in (b"one", b"two"):
        method, header, body = client.message(1, Basic.Deliver)
        assert (method.exchange, method.routing_key, body) == ("amq.topic", "a.b", expected)
        assert header.properties.delivery_mode == 2


@pytest.mark.parametrize("others", [b"", b"\x01\x01\x03\0\3a/b\x08\0\1r\x09\0\2id\x26\0\1k\0\1v"])
def test_the_expiry_of_a_message_from_mqtt_is_the_time_that_is_left(world: World, others: bytes) -> None:
    """After any other properties; a message that was requeued has less time left."""
    client = consuming(world)
    client.call(
        1, commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="a.*"), commands.Queue.BindOk
    )
    block = others + b"\x02" + (600).to_bytes(4, "big")
    client.session.vhost.publish(None, ENC_MQTT5, b"a/b", block, b"x", flags=2, ttl_ms=600_000)
    world.tick.schedule()
    client.read()
    left_ms = []
    for _ in range(2):
        method, header, _ = client.message(1, Basic.Deliver)
        left_ms.append(int(header.properties.expiration))
        assert header.properties.content_type == ("a/b" if others else None)
        world.skew_s += 100
        client.send(1, Basic.Reject(method.delivery_tag, requeue=True))
        client.read()
    assert 500_000 < left_ms[0] <= 600_000 and 400_000 < left_ms[1] <= 500_000


def test_a_record_without_words_of_ours_still_arrives(world: World) -> None:
    client = consuming(world, no_ack=True)
    client.publish("", "q", b"first")
    assert client.bodies() == [b"first"]
    target = client.session.vhost.route(None, 1, b"\x00\x01q").target
    world.log.appender.append_record(0, target, b"k" * 300, b"ignored", b"bare", 0, 0, 0)
    world.tick.schedule()
    client.read()
    method, header, body = client.message(1, Basic.Deliver)
    assert (method.exchange, method.routing_key, body) == ("", "k" * 255, b"bare")
    assert header.properties.headers is None
