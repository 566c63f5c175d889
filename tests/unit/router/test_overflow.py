"""Queues that refuse what is too much for them: the others of a route get it, publishers are told."""

from __future__ import annotations

from penstock.router.names import ENC_AMQP091, ENC_MQTT5, join_key_block
from tests.support.queues import Consumer
from tests.unit.router.conftest import World

REJECT = {"x-max-length": 2, "x-overflow": "reject-publish"}


def refused(world: World, exchange: str, key: str, body: str = "x") -> bool:
    key_block = join_key_block(exchange, key)
    return world.vhost.publish(world.guest, ENC_AMQP091, key_block, b"", body.encode(), flags=2).refused


def test_a_full_queue_refuses_and_the_others_of_the_exchange_get_it(world: World) -> None:
    full, other = world.queue("full", arguments=REJECT), world.queue("other")
    for name in ("full", "other"):
        world.bind(name, "amq.fanout")
        world.bind(name, "amq.topic", "#")
    assert [refused(world, "amq.fanout", "", body) for body in "abcd"] == [False, False, True, True]
    assert refused(world, "amq.topic", "k", "e")
    assert refused(world, "", "full", "f")
    assert not refused(world, "", "other", "g")
    assert world.read(full) == ["a", "b"]
    assert world.read(other) == list("abcdeg")
    assert not refused(world, "", "full", "h")
    assert world.read(full) == ["h"]


def test_a_message_that_every_queue_refuses_is_not_appended(world: World) -> None:
    world.queue("q", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    assert refused(world, "", "q")
    before = world.log.appender.next_lsn
    assert refused(world, "", "q")
    assert world.log.appender.next_lsn == before


def test_the_way_through_the_route_table_is_taken_while_there_is_room(world: World) -> None:
    queue = world.queue("q", arguments=REJECT)
    table = world.vhost.publisher(world.guest, ENC_AMQP091)
    route = table.route(join_key_block("", "q"))
    assert route.special and not route.per_message
    assert route.guards == (queue.cursor,)
    assert not table.route(join_key_block("amq.fanout", "")).special


def test_messages_that_consumers_take_at_once_do_not_exceed_the_limit(world: World) -> None:
    queue = world.queue("q", arguments=REJECT)
    consumer = Consumer(queue, credit=3)
    queue.attach(consumer)
    assert [refused(world, "", "q") for _ in range(7)] == [False] * 5 + [True] * 2
    world.loop.settle()
    assert (len(consumer.got), queue.ready_count) == (3, 2)


def test_credit_of_an_inactive_consumer_does_not_raise_the_limit(world: World) -> None:
    queue = world.queue("q", arguments={**REJECT, "x-single-active-consumer": True})
    for _ in range(2):
        queue.attach(Consumer(queue, credit=3))
    assert [refused(world, "", "q") for _ in range(7)] == [False] * 5 + [True] * 2


def test_an_mqtt_message_is_refused_too(world: World) -> None:
    world.queue("q", arguments=REJECT)
    world.bind("q", "amq.topic", "#")
    refusals = [
        world.vhost.publish(world.guest, ENC_MQTT5, b"a/b", b"", b"x", flags=2).refused for _ in range(3)
    ]
    assert refusals == [False, False, True]


def test_a_policy_that_comes_and_goes_loses_nothing_and_keeps_the_order(world: World) -> None:
    queue, _ = world.queue("q", durable=True), world.queue("other", durable=True)
    for name in ("q", "other"):
        world.bind(name, "amq.topic", "#")
        world.bind(name, "amq.topic", "a.*")
    entry = world.vhost.queues["q"]
    sent = []

    def publish(*bodies: str) -> None:
        for body in bodies:
            assert world.publish("amq.topic", "a.b", body) and world.publish("", "q", body + "'")
            sent.extend((body, body + "'"))

    publish("a", "b")
    world.vhost.apply(entry, {"x-max-length": 6, "x-overflow": "reject-publish"})
    publish("c")
    assert refused(world, "amq.topic", "a.b")
    world.vhost.apply(entry, {})
    publish("d")
    assert queue.ready_count == 8
    world.loop.settle()
    world.restart()
    queue = world.vhost.queue("q", world.actor)
    assert world.read(queue) == sent
    publish("e")
    assert world.read(queue) == ["e", "e'"]
    world.loop.advance(0.1)
    assert len(queue.cursor.memberships()) == 3


def test_a_queue_that_refuses_does_so_after_a_restart(world: World) -> None:
    arguments = {"x-max-length": 3, "x-overflow": "reject-publish"}
    world.queue("q", durable=True, arguments=arguments)
    world.queue("other", durable=True)
    for name in ("q", "other"):
        world.bind(name, "amq.fanout")
    for body in "abcd":
        world.publish("amq.fanout", "", body)
    feeds = world.rows("feed")
    world.restart()
    queue = world.vhost.queue("q", world.actor)
    assert queue.ready_count == 3
    assert refused(world, "amq.fanout", "", "e")
    assert world.rows("feed") == feeds
    assert world.read(queue) == ["a", "b", "c"]
    assert not refused(world, "", "q", "f")
    assert world.read(world.vhost.queue("other", world.actor)) == list("abcde")
    world.vhost.delete_queue("q", world.actor)
    assert world.publish("amq.fanout", "", "g")
    world.vhost.delete_queue("other", world.actor)
    assert world.rows("feed") == 0


def test_bytes_are_limited_exactly_also_after_a_restart(world: World) -> None:
    arguments = {"x-max-length-bytes": 10, "x-overflow": "reject-publish"}
    queue = world.queue("q", durable=True, arguments=arguments)
    assert [refused(world, "", "q", body) for body in ("aaaa", "bbbbbbb", "bbbbbb", "", "c")] == [
        False,
        True,
        False,
        False,
        True,
    ]
    world.loop.settle()
    world.restart()
    world.settle()
    queue = world.vhost.queue("q", world.actor)
    assert queue.cursor.ready_bytes == 10
    assert refused(world, "", "q", "d")
    queue.cursor.take(1)
    queue.cursor.settle_taken()
    assert refused(world, "", "q", "ddddd")
    assert not refused(world, "", "q", "dddd")
    assert world.read(queue) == ["bbbbbb", "", "dddd"]


def test_a_queue_that_refuses_can_be_unbound(world: World) -> None:
    queue = world.queue("q", arguments=REJECT)
    world.bind("q", "amq.direct", "k")
    assert world.publish("amq.direct", "k", "a")
    world.vhost.unbind_queue("q", "amq.direct", "k", world.actor)
    assert not world.publish("amq.direct", "k", "b")
    assert world.read(queue) == ["a"]
