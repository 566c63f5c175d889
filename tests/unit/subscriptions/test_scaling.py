"""The cost per consumer, subscription and message of one queue is the same at any number of them."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.log_core.feeds._feed import Feed
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.dispatch.assignment import Range
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.queue.group import Group
from penstock.subscriptions.queue.queue import Queue
from tests.support.queues import Consumer, Loop, World
from tests.support.scaling import assert_constant, assert_linear


class Taker(Consumer):
    """A consumer of any kind of queue; its keys are the positions."""

    def __init__(self, queue: Queue, i: int, credit: int, priority: int) -> None:
        super().__init__(queue, credit, priority=priority)
        self.name = f"c{i}"
        self.ranges: list[Range] = [(i, i)]

    def void(self) -> None:
        self.held.clear()

    def told(self, active: bool) -> None:
        pass

    def slots(self, cursor: Cursor) -> array[int]:
        return array("H", [position % 65_536 for _, position, _, _, _ in cursor.records()])


KINDS: dict[str, tuple[Kind, dict[str, Any], int]] = {
    # How it shares out, arguments, how many priorities its consumers have
    "shared": (Kind.SHARED, {}, 1),
    "shared by priority": (Kind.SHARED, {}, 10),
    "a priority for each": (Kind.SHARED, {}, 1 << 30),
    "random": (Kind.RANDOM, {}, 1),
    "single active": (Kind.SINGLE, {}, 1),
    "single active by priority": (Kind.PREFERRED, {}, 10),
    "failover": (Kind.FAILOVER, {}, 1),
    "failover by priority": (Kind.FAILOVER, {}, 10),
    "by key": (Kind.KEY_SHARED, {}, 1),
    "by ranges of keys": (Kind.KEY_SHARED, {"x-sticky": True}, 1),
}


class Many:
    """Queues with many consumers, one after the other."""

    def __init__(self, world: World, feed: Feed) -> None:
        self.world = world
        self.feed = feed
        self.queue: Queue | None = None

    def prepare(self, kind: str, n: int, credit: int = 10) -> list[Taker]:
        """A new queue, and consumers for it that are not attached."""
        if self.queue is not None:
            self.queue.delete()
        how, arguments, priorities = KINDS[kind]
        self.queue = self.world.queues.create(
            "q", "/", durable=False, kind=how, cls=Group, arguments=arguments
        )
        self.queue.join(self.feed)
        return [Taker(self.queue, i, credit, i % priorities) for i in range(n)]

    def each(self, call: Callable[[Taker], object], takers: Iterable[Taker], *, turns: bool) -> None:
        for taker in takers:
            call(taker)
            if turns:
                self.world.loop.settle()
        self.world.loop.settle()


@pytest.fixture
def many(world: World, feed: Feed) -> Many:
    return Many(world, feed)


@pytest.mark.parametrize("turns", [False, True], ids=["at once", "one by one"])
@pytest.mark.parametrize("kind", KINDS)
def test_to_come_and_to_leave_costs_the_same_each(many: Many, kind: str, turns: bool) -> None:
    def prepare(n: int) -> Callable[[], object]:
        takers = many.prepare(kind, n)

        def work() -> None:
            queue = many.queue
            assert queue is not None
            many.each(queue.attach, takers, turns=turns)
            assert queue.consumer_count == n
            many.each(queue.detach, takers, turns=turns)
            assert queue.consumer_count == 0

        return work

    assert_linear(prepare, 250)


@pytest.mark.parametrize("kind", KINDS)
def test_to_leave_in_any_order_costs_the_same_each(many: Many, kind: str) -> None:
    """With something held, which goes back to others."""

    def prepare(n: int) -> Callable[[], object]:
        takers = many.prepare(kind, n)
        queue = many.queue
        assert queue is not None
        many.each(queue.attach, takers, turns=False)
        many.world.publish(many.feed, n=n)
        many.world.loop.settle()
        random.Random(1).shuffle(takers)
        for taker in takers[:25]:
            taker.left = 10**9

        def leave(taker: Taker) -> None:
            for seq in taker.held:
                queue.cursor.requeue(seq)
            queue.detach(taker)

        def work() -> None:
            many.each(leave, takers[25:], turns=False)
            assert queue.consumer_count == 25

        return work

    assert_linear(prepare, 250)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_costs_the_same_however_many_wait_for_one(many: Many, kind: str) -> None:
    def prepare(n: int) -> Callable[[], object]:
        takers = many.prepare(kind, n)
        queue = many.queue
        assert queue is not None
        many.each(queue.attach, takers, turns=False)

        def work() -> None:
            for _ in range(300):
                many.world.publish(many.feed)
                many.world.loop.settle()

        return work

    assert_constant(prepare, 250)


@pytest.mark.parametrize("kind", ["shared", "shared by priority", "random", "by key"])
def test_an_acknowledgement_costs_the_same_however_many_are_busy(many: Many, kind: str) -> None:
    """Each has one message out, as with a prefetch of 1, and a backlog waits for whoever is ready."""

    def prepare(n: int) -> Callable[[], object]:
        takers = many.prepare(kind, n, credit=1)
        queue = many.queue
        assert queue is not None
        many.each(queue.attach, takers, turns=False)
        many.world.publish(many.feed, n=4000)
        many.world.loop.settle()
        first = [taker for taker in takers if taker.held][: 250 if kind == "by key" else 1]

        def work() -> None:
            for i in range(300):
                taker = first[i % len(first)]
                held, taker.held = taker.held, []
                for seq in held:
                    queue.cursor.settle(seq)
                taker.left += len(held)
                queue.credit_gained(taker)
                many.world.loop.settle()
            assert queue.delivered > n or kind == "by key"

        return work

    assert_constant(prepare, 250)


def test_a_subscription_ends_at_the_same_cost_however_many_wait_at_its_topic(
    world: World, loop: Loop, feed: Feed
) -> None:
    def prepare(n: int) -> Callable[[], object]:
        queues = [world.queue(f"q{i}", feed) for i in range(n)]
        for queue in queues:
            queue.attach(Consumer(queue))
        loop.settle()
        assert len(feed.waiters) == n

        def work() -> None:
            for queue in reversed(queues):
                queue.delete()
            assert not feed.waiters

        return work

    assert_linear(prepare, 1000)


def test_an_append_costs_the_same_however_many_idle_subscriptions_there_are(
    world: World, loop: Loop, feed: Feed
) -> None:
    made: list[Queue] = []

    def prepare(n: int) -> Callable[[], object]:
        made.extend(world.queue(f"q{i}", feed) for i in range(len(made), n))

        def work() -> None:
            for _ in range(300):
                world.publish(feed)
                loop.settle()

        return work

    assert_constant(prepare, 1000)


def pending(world: World, loop: Loop, feed: Feed, n: int) -> tuple[Queue, Consumer]:
    """A queue with `n` messages out at one consumer."""
    queue = world.queue("q", feed)
    consumer = Consumer(queue)
    queue.attach(consumer)
    for _ in range(0, n, 1000):
        world.publish(feed, n=1000)
        loop.settle()
    assert len(consumer.held) == n
    return queue, consumer


@pytest.mark.parametrize("end", ["settle", "requeue", "both", "reject", "purge", "state"])
def test_settling_in_any_order_costs_the_same_per_message(
    world: World, loop: Loop, feed: Feed, end: str
) -> None:
    def prepare(n: int) -> Callable[[], object]:
        queue, consumer = pending(world, loop, feed, n)
        cursor, held = queue.cursor, consumer.held
        random.Random(1).shuffle(held)
        consumer.left = 0

        def work() -> None:
            for i, seq in enumerate(held):
                if end == "settle" or (end in ("both", "state") and i % 2):
                    cursor.settle(seq)
                elif end == "reject":
                    cursor.reject(seq)
                else:
                    cursor.requeue(seq)
                if end == "state" and i % (n // 10) == 0:
                    queue.persist()
            if end == "purge":
                assert queue.purge() == n
            queue.delete()

        return work

    assert_linear(prepare, 4000)
