"""Queues with priorities: the highest first, in order of publishing inside, over a restart."""

from __future__ import annotations

import pytest

from penstock.router.names import ENC_AMQP091, join_key_block
from penstock.subscriptions.queue.queue import Queue
from tests.support.queues import Consumer
from tests.unit.router.conftest import PERSISTENT, World


def publish(world: World, key: str, *messages: tuple[str, int]) -> None:
    for body, priority in messages:
        world.vhost.publish(
            world.guest,
            ENC_AMQP091,
            join_key_block("", key),
            body=body.encode(),
            flags=PERSISTENT,
            priority=priority,
        )


def queue(world: World, priority_max: int, **arguments: object) -> Queue:
    named = {
        "x-max-priority": priority_max,
        **{f"x-{name.replace('_', '-')}": v for name, v in arguments.items()},
    }
    return world.queue("q", durable=True, arguments=named)


def test_the_highest_priority_comes_first_and_equal_ones_in_order(world: World) -> None:
    q = queue(world, 5)
    publish(world, "q", ("a", 0), ("b", 3), ("c", 9), ("d", 3), ("e", 5), ("f", 0))
    assert q.ready_count == 6
    assert world.read(q) == ["c", "e", "b", "d", "a", "f"]


@pytest.mark.parametrize(("priority_max", "order"), [(0, "abcd"), (1, "bcda"), (255, "cbda")])
def test_priorities_above_the_highest_count_as_that(world: World, priority_max: int, order: str) -> None:
    q = queue(world, priority_max)
    publish(world, "q", ("a", 0), ("b", 200), ("c", 255), ("d", 10))
    assert world.read(q) == list(order)


def test_requeued_messages_keep_their_priority(world: World) -> None:
    q = queue(world, 5)
    publish(world, "q", ("a", 1), ("b", 5), ("c", 5))
    consumer = Consumer(q, credit=2)
    q.attach(consumer)
    world.loop.settle()
    q.detach(consumer)
    for seq in reversed(consumer.held):
        q.cursor.requeue(seq)
    publish(world, "q", ("d", 5), ("e", 2))
    assert world.read(q) == ["b", "c", "d", "e", "a"]


def test_priorities_survive_a_restart(world: World) -> None:
    q = queue(world, 5)
    publish(world, "q", ("a", 0), ("b", 2), ("c", 4), ("d", 4), ("e", 2))
    consumer = Consumer(q, credit=2)
    q.attach(consumer)
    world.loop.settle()
    consumer.ack(1)
    q.detach(consumer, requeue=True)
    world.restart()
    q = world.vhost.queue("q", world.actor)
    publish(world, "q", ("f", 5), ("g", 2))
    assert world.read(q) == ["f", "d", "b", "e", "g", "a"]


def test_the_length_limit_drops_the_highest_priority_first(world: World) -> None:
    """As in RabbitMQ, whose head is the next message to be delivered."""
    q = queue(world, 5, max_length=2)
    publish(world, "q", ("a", 0), ("b", 5), ("c", 3))
    world.loop.settle()
    assert world.read(q) == ["c", "a"]


def test_a_waiting_consumer_gets_what_is_there(world: World) -> None:
    q = queue(world, 5)
    consumer = Consumer(q, credit=3)
    q.attach(consumer)
    publish(world, "q", *((str(number), number) for number in range(5)))
    world.loop.settle()
    assert len(consumer.got) == 3
    assert world.read(q) == ["1", "0"]
