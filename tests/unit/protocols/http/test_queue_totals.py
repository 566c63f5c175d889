"""Totals of queues over random lives of queues: sums that follow what moved are those of a count of all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.protocols.http.management import queue_totals
from penstock.protocols.http.management.queue_totals import QueueSums, QueueTotals
from penstock.router.exchanges.entries import QueueEntry
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.queue.limits import Rules
from penstock.subscriptions.queue.queue import Queue
from tests.support.logs import open_log
from tests.support.queues import Clock, Consumer, Loop, World


class Broker:
    """One vhost with queues, each with a feed of its own, and one feed that all read."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.all_feed = world.log.new_feed()
        self.entries: dict[Queue, QueueEntry] = {}
        self.consumers: dict[Queue, list[Consumer]] = {}
        vhost = SimpleNamespace(name="/", entries=lambda: list(self.entries.values()))
        self.broker: Any = SimpleNamespace(queues=world.queues, vhosts={"/": vhost})
        self.totals = QueueTotals(self.broker, world.loop.time)

    def add(self, kind: Kind = Kind.SHARED) -> Queue:
        queue = self.world.queues.create(f"q{len(self.entries)}", "/", durable=False, kind=kind)
        own = self.world.log.new_feed()
        queue.join(own)
        queue.join(self.all_feed)
        queue.data = QueueEntry("queue", queue, b"", {})
        self.entries[queue] = queue.data
        self.consumers[queue] = []
        return queue

    def delete(self, queue: Queue) -> None:
        del self.entries[queue], self.consumers[queue]
        queue.delete()

    def moved(self) -> set[Queue]:
        """One pass; the queues that it names."""
        self.world.loop.advance(5)
        return {one.queue for one in self.totals.walk() if one is not None}

    def counted(self) -> dict[Any, QueueSums]:
        """The sums that passes made."""
        sums: dict[Any, QueueSums] = self.totals._sums
        return {key: one for key, one in sums.items() if one.queues or any(one.values)}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    log = open_log(tmp_path / "data", clock=Clock())
    yield Broker(World(log, Loop()))
    log.close_sync()


def test_a_pass_names_the_queues_that_moved_and_no_others(broker: Broker) -> None:
    queues = [broker.add() for _ in range(200)]
    assert broker.moved() == set()  # nothing is in them
    broker.world.publish(queues[3].cursor.feeds[0], n=2)
    assert broker.moved() == {queues[3]}
    assert broker.moved() == set()
    broker.world.publish(broker.all_feed)
    assert broker.moved() == set(queues)
    taker = Consumer(queues[7], credit=1)
    queues[7].attach(taker)
    assert broker.moved() == {queues[7]}
    taker.ack()
    assert broker.moved() == {queues[7]}
    queues[9].purge()
    assert broker.moved() == {queues[9]}
    assert broker.moved() == set()


def test_idle_queues_are_asked_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = [broker.add() for _ in range(500)]
    asked: list[Queue] = []
    count = queue_totals.queue_counters

    def counters(queue: Queue) -> tuple[int, ...]:
        asked.append(queue)
        return count(queue)

    monkeypatch.setattr(queue_totals, "queue_counters", counters)
    broker.moved()
    assert len(asked) == len(queues)
    asked.clear()
    broker.world.publish(queues[0].cursor.feeds[0])
    for _ in range(3):
        broker.moved()
    assert asked == [queues[0]]


def test_the_rate_of_a_queue_that_was_idle_is_over_one_pass(broker: Broker) -> None:
    queue = broker.add()
    for _ in range(4):
        broker.moved()
    broker.world.publish(queue.cursor.feeds[0], n=10)
    broker.world.loop.advance(5)
    (moved,) = [one for one in broker.totals.walk() if one is not None]
    assert (moved.elapsed_s, moved.values[0] - moved.before[0]) == (5.0, 10)


def test_sums_of_what_moved_are_those_of_a_count_of_all(broker: Broker) -> None:
    rng = random.Random(23)
    for _ in range(40):
        broker.add()
    for step in range(600):
        queue = rng.choice(list(broker.entries))
        match rng.randrange(12):
            case 0:
                broker.add()
            case 1 if len(broker.entries) > 10:
                broker.delete(queue)
            case 2 | 3:
                broker.world.publish(queue.cursor.feeds[0], n=rng.randrange(1, 4))
            case 4:
                broker.world.publish(broker.all_feed)
            case 5:
                taker = Consumer(queue, rng.randrange(5), no_ack=rng.random() < 0.5)
                queue.attach(taker)
                broker.consumers[queue].append(taker)
            case 6 if broker.consumers[queue]:
                queue.detach(broker.consumers[queue].pop(), requeue=rng.random() < 0.5)
            case 7 | 8 if broker.consumers[queue]:
                rng.choice(broker.consumers[queue]).ack(rng.randrange(1, 3))
            case 9:
                queue.purge()
            case 10:
                queue.apply(Rules(max_length=rng.choice([None, 2, 5])))
            case 11:
                queue.get(lambda cursor: None if cursor is None else cursor.settle(cursor.records()[0][0]))
        if rng.random() < 0.3:
            broker.moved()
            assert broker.counted() == broker.totals.sums(), step
    assert max(one.ready for one in broker.counted().values()) > 0


def test_a_queue_that_is_deleted_during_a_pass_counts_no_more(broker: Broker) -> None:
    queues = [broker.add() for _ in range(300)]
    broker.world.publish(broker.all_feed)
    broker.world.loop.advance(5)
    walk = broker.totals.walk()
    for at, _ in enumerate(walk):
        if at % 3 == 0 and queues:
            broker.delete(queues.pop(len(queues) // 2))
            broker.delete(queues.pop())
            queues.append(broker.add())
    broker.moved()
    assert broker.counted() == broker.totals.sums()


def test_a_look_between_two_passes_takes_nothing_from_the_next_one(broker: Broker) -> None:
    queue, quiet = broker.add(), broker.add()
    broker.moved()
    broker.world.publish(queue.cursor.feeds[0], n=2)
    (seen,) = broker.totals.sums().values()
    assert (seen.ready, seen.queues) == (2, 2), "of this moment"
    broker.world.publish(queue.cursor.feeds[0], n=3)
    broker.totals.sums()
    broker.world.loop.advance(5)
    (moved,) = [one for one in broker.totals.walk() if one is not None]
    assert (moved.queue, moved.before[-2], moved.values[-2]) == (queue, 0, 5)
    assert broker.moved() == set()
    broker.world.publish(quiet.cursor.feeds[0])
    broker.totals.sums()
    quiet.purge()
    broker.totals.sums()
    assert broker.moved() == {quiet}, "it has moved, though nothing is ready again"
    (seen,) = broker.totals.sums().values()
    assert seen.ready == 5
