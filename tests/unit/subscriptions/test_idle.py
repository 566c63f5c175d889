"""Queues that expire when nobody uses them: consumers, gets and new declarations count as use."""

from __future__ import annotations

import pytest

from penstock.subscriptions.queue.limits import NO_RULES, Rules
from penstock.subscriptions.queue.queue import Queue
from tests.support.queues import Consumer, Loop, World


@pytest.fixture
def gone(world: World) -> list[Queue]:
    """The queues that were given up, in order; they are deleted as the router does it."""
    gone: list[Queue] = []

    def unneeded(queue: Queue) -> None:
        gone.append(queue)
        queue.delete()

    world.queues.on_unneeded = unneeded
    return gone


def leased(world: World, name: str = "q", expires_ms: int = 1000) -> Queue:
    queue = world.queue(name)
    queue.apply(Rules(expires_ms=expires_ms))
    return queue


def test_a_queue_that_nobody_uses_goes(world: World, loop: Loop, gone: list[Queue]) -> None:
    queue = leased(world)
    stays = world.queue("stays")
    loop.advance(0.999)
    assert gone == []
    loop.advance(0.002)
    assert gone == [queue]
    loop.advance(10)
    assert not stays.deleted


def test_a_get_or_another_declaration_is_a_use(world: World, loop: Loop, gone: list[Queue]) -> None:
    queue = leased(world)
    loop.advance(0.9)
    queue.get(lambda cursor: None)
    loop.advance(0.9)
    queue.used()
    loop.advance(0.9)
    assert gone == []
    loop.advance(0.2)
    assert gone == [queue]


def test_a_queue_with_consumers_stays_and_waits_anew_when_the_last_has_left(
    world: World, loop: Loop, gone: list[Queue]
) -> None:
    queue = leased(world)
    consumers = [Consumer(queue), Consumer(queue)]
    for consumer in consumers:
        queue.attach(consumer)
    loop.advance(10)
    queue.detach(consumers[0])
    loop.advance(10)
    assert gone == []
    queue.detach(consumers[1])
    loop.advance(0.9)
    assert gone == []
    loop.advance(0.2)
    assert gone == [queue]


def test_one_timer_serves_all(world: World, loop: Loop, gone: list[Queue]) -> None:
    queues = [leased(world, f"q{length}", length) for length in (3000, 1000, 2000, 1000)]
    loop.advance(1.5)
    assert gone == [queues[1], queues[3]]
    loop.advance(1)
    loop.advance(1)
    assert gone == [queues[1], queues[3], queues[2], queues[0]]


def test_a_lease_can_change_and_end(world: World, loop: Loop, gone: list[Queue]) -> None:
    queue, other = leased(world), leased(world, "other")
    loop.advance(0.9)
    queue.apply(Rules(expires_ms=5000))
    other.apply(NO_RULES)
    loop.advance(4.9)
    assert gone == []
    loop.advance(0.2)
    assert gone == [queue]


def test_other_rules_that_change_do_not_renew_the_lease(world: World, loop: Loop, gone: list[Queue]) -> None:
    queue = leased(world)
    loop.advance(0.9)
    queue.apply(Rules(expires_ms=1000, max_length=3))
    loop.advance(0.2)
    assert gone == [queue]


def test_a_deleted_queue_does_not_go_twice(world: World, loop: Loop, gone: list[Queue]) -> None:
    leased(world).delete()
    loop.advance(5)
    assert gone == []
