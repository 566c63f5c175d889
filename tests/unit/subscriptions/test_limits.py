"""Queues with rules: what leaves them undone is handed over before its place is settled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.log_core._batch import Record
from penstock.log_core._feed import Feed
from penstock.log_core._tail import Cache
from penstock.log_core.log import Log
from penstock.subscriptions.queue import Queue
from tests.support.queues import Clock, Consumer, Loop, World


class Grave:
    """Keeps what is buried, and whether its place was still out then."""

    def __init__(self, queue: Queue, **rules: int) -> None:
        self.queue = queue
        self.found: list[tuple[int, str]] = []
        self.outstanding: list[int] = []
        queue.limit(bury=self, **rules)

    def __call__(self, record: Record, reason: str) -> None:
        self.found.append((record.lsn, reason))
        self.outstanding.append(self.queue.cursor.outstanding)


def test_what_is_rejected_is_buried_before_its_place_is_settled(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed)
    grave = Grave(queue)
    consumer = Consumer(queue)
    queue.attach(consumer)
    positions = world.publish(feed, n=3)
    loop.settle()
    for seq in consumer.held[:2]:
        queue.cursor.reject(seq)
    assert grave.found == []
    loop.settle()
    assert grave.found == [(position, "rejected") for position in positions[:2]]
    assert grave.outstanding == [3, 2]
    assert queue.cursor.outstanding == 1


def test_without_rules_a_rejection_settles(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed)
    consumer = Consumer(queue)
    queue.attach(consumer)
    world.publish(feed)
    loop.settle()
    queue.cursor.reject(consumer.held[0])
    assert queue.cursor.outstanding == 0
    assert queue.cursor.mark == consumer.got[0]


def test_many_rejections_are_spread_over_turns(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed)
    grave = Grave(queue)
    consumer = Consumer(queue)
    queue.attach(consumer)
    world.publish(feed, n=300)
    loop.settle()
    for seq in consumer.held:
        queue.cursor.reject(seq)
    loop.turn()
    assert len(grave.found) == 128
    loop.settle()
    assert len(grave.found) == 300
    assert queue.cursor.outstanding == 0


def test_a_rejected_record_that_left_memory_is_loaded(
    world: World, loop: Loop, log: Log, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = world.queue("q", feed)
    grave = Grave(queue)
    consumer = Consumer(queue)
    queue.attach(consumer)
    (position,) = world.publish(feed)
    loop.settle()
    with monkeypatch.context() as patch:
        ended: list[Callable[[], object]] = []
        patch.setattr(log, "cache", Cache(0, 0))
        patch.setattr(log, "load", lambda wanted, callback: ended.append(callback))
        queue.cursor.reject(consumer.held[0])
        loop.settle()
        assert (len(ended), grave.found) == (1, [])
    ended[0]()
    loop.settle()
    assert grave.found == [(position, "rejected")]


def test_the_head_is_buried_in_time_without_consumers(
    world: World, loop: Loop, clock: Clock, feed: Feed
) -> None:
    queue = world.queue("q", feed)
    queue.cursor.ttl_ms = 1000
    grave = Grave(queue)
    positions = world.publish(feed, n=300)
    loop.settle()
    clock.now += 0.9
    loop.advance(0.9)
    assert grave.found == []
    assert queue.ready_count == 300
    clock.now += 0.2
    loop.advance(0.2)
    assert grave.found == [(position, "expired") for position in positions]
    assert queue.ready_count == 0


def test_what_is_over_the_length_limit_leaves_from_the_head(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed)
    grave = Grave(queue, max_length=2)
    positions = world.publish(feed, n=300)
    loop.turn()
    assert queue.ready_count == 2
    loop.settle()
    assert grave.found == [(position, "maxlen") for position in positions[:298]]
    assert queue.cursor.ready_count() == 2
    (newest,) = world.publish(feed)
    loop.settle()
    consumer = Consumer(queue)
    queue.attach(consumer)
    loop.settle()
    assert consumer.got == [positions[-1], newest]


def test_a_consumer_with_credit_gets_more_than_the_length_limit(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed)
    queue.limit(max_length=1)
    consumer = Consumer(queue, credit=5)
    queue.attach(consumer)
    positions = world.publish(feed, n=10)
    loop.settle()
    assert consumer.got == positions[:5]
    assert queue.cursor.ready_count() == 1
    consumer.left = 5
    queue.credit_gained()
    loop.settle()
    assert consumer.got[5:] == positions[-1:]


def test_deleting_ends_the_timer(world: World, loop: Loop, clock: Clock, feed: Feed) -> None:
    queue = world.queue("q", feed)
    queue.cursor.ttl_ms = 1000
    grave = Grave(queue)
    world.publish(feed)
    loop.settle()
    queue.delete()
    clock.now += 2
    loop.advance(2)
    assert grave.found == []


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_delivery_limit_counts_what_was_given_back(
    world: World, loop: Loop, feed: Feed, limit: int
) -> None:
    queue = world.queue("q", feed)
    queue.cursor.delivery_limit = limit
    grave = Grave(queue)
    consumer = Consumer(queue)
    queue.attach(consumer)
    (position,) = world.publish(feed)
    loop.settle()
    while consumer.held:
        seq = consumer.held.pop()
        queue.cursor.requeue(seq)
        loop.settle()
    assert len(consumer.got) == limit + 1
    assert grave.found == [(position, "delivery_limit")]


def test_what_is_refused_is_not_for_this_queue(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed)
    first, second, third = world.publish(feed, n=3)
    loop.settle()
    assert queue.cursor.take(1) == 1
    queue.cursor.settle_taken()
    with pytest.raises(ValueError, match="not behind everything"):
        queue.cursor.refuse(first)
    queue.cursor.refuse(second)
    queue.cursor.refuse(third)
    assert queue.ready_count == 0
    (fourth,) = world.publish(feed)
    loop.settle()
    assert queue.ready_count == 1
    assert queue.cursor.take(10) == 1
    assert queue.cursor.records()[0][1] == fourth
