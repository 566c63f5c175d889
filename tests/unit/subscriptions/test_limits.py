"""Queues with rules: what leaves them undone is handed over before its place is settled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.log_core.batch._batch import Record
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.log import Log
from penstock.log_core.reading._tail import Cache
from penstock.subscriptions.queue.limits import NO_RULES, Overflow, Rules
from penstock.subscriptions.queue.queue import Queue
from tests.support.queues import Clock, Consumer, Loop, World


class Grave:
    """Keeps what is buried, and whether its place was still out then."""

    def __init__(self, queue: Queue, **rules: int) -> None:
        self.queue = queue
        self.found: list[tuple[int, str]] = []
        self.outstanding: list[int] = []
        self.closed = False
        queue.apply(Rules(bury=self, **rules))

    def __call__(self, record: Record, reason: str, _note: bytes) -> bool:
        if self.closed:
            return False
        self.found.append((record.lsn, reason))
        self.outstanding.append(self.queue.cursor.outstanding)
        return True


def test_a_rejected_message_is_dead_lettered_before_it_is_settled(
    world: World, loop: Loop, feed: Feed
) -> None:
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
    grave = Grave(queue, ttl_ms=1000)
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


def test_messages_over_the_length_limit_leave_from_the_head(world: World, loop: Loop, feed: Feed) -> None:
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


def test_messages_over_the_byte_limit_leave_from_the_head(world: World, loop: Loop, feed: Feed) -> None:
    """Every body has four bytes."""
    queue = world.queue("q", feed)
    grave = Grave(queue, max_bytes=11)
    positions = world.publish(feed, n=5)
    loop.settle()
    assert grave.found == [(position, "maxlen") for position in positions[:3]]
    assert (queue.ready_count, queue.cursor.ready_bytes) == (2, 8)
    consumer = Consumer(queue, credit=1)
    queue.attach(consumer)
    loop.settle()
    (newest,) = world.publish(feed)
    loop.settle()
    assert (queue.ready_count, queue.cursor.ready_bytes) == (2, 8)
    queue.cursor.requeue(consumer.held[0])
    queue.detach(consumer)
    loop.settle()
    assert grave.found[3:] == [(positions[3], "maxlen")]
    assert queue.cursor.ready_bytes == 8
    queue.apply(Rules(max_bytes=3))
    loop.settle()
    assert (queue.ready_count, queue.cursor.ready_bytes) == (0, 0)
    assert newest not in consumer.got


def test_the_newest_leave_and_what_is_given_back_stays(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed)
    found: list[int] = []
    queue.apply(
        Rules(
            max_length=1, overflow=Overflow.DROP_NEWEST, bury=lambda record, *_: not found.append(record.lsn)
        )
    )
    consumer = Consumer(queue, credit=1)
    queue.attach(consumer)
    positions = world.publish(feed, n=300)
    loop.settle()
    assert (consumer.got, found) == (positions[:1], positions[2:])
    queue.cursor.requeue(consumer.held.pop())
    loop.settle()
    (late,) = world.publish(feed)
    loop.settle()
    assert (queue.ready_count, queue.dropped) == (2, 299)
    assert found[-1] == late
    consumer.left = 3
    queue.credit_gained()
    loop.settle()
    assert consumer.got[1:] == positions[:2]


def test_both_limits_hold_together(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed)
    queue.apply(Rules(max_bytes=100, max_length=3))
    positions = world.publish(feed, n=9)
    loop.settle()
    assert queue.ready_count == 3
    queue.apply(Rules(max_bytes=8, max_length=3))
    loop.settle()
    assert queue.ready_count == 2
    consumer = Consumer(queue)
    queue.attach(consumer)
    loop.settle()
    assert consumer.got == positions[-2:]


@pytest.mark.parametrize("end", ["purge", "delete"])
def test_messages_waiting_to_be_dropped_do_not_count_when_a_queue_is_emptied(
    world: World, loop: Loop, feed: Feed, end: str
) -> None:
    queue = world.queue("q", feed)
    queue.apply(Rules(max_length=1))
    world.publish(feed, n=3)
    told = queue.ready_count, (queue.purge() if end == "purge" else queue.delete()[0])
    assert told == (1, 1)
    assert end == "delete" or queue.cursor.ready_count() == 0


@pytest.mark.parametrize("who", ["getter", "consumer"])
def test_messages_over_the_limit_on_disk_are_dropped_before_anybody_is_served(
    world: World, loop: Loop, log: Log, feed: Feed, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """As just after a restart: who came while it was read got what was to be dropped."""
    queue = world.queue("q", feed)
    positions = world.publish(feed, n=3)
    loop.settle()
    ended: list[Callable[[], object]] = []
    got: list[int] = []
    consumer = Consumer(queue, credit=1)
    with monkeypatch.context() as patch:
        patch.setattr(log, "cache", Cache(0, 0))
        patch.setattr(log, "load", lambda wanted, callback: ended.append(callback))
        queue.apply(Rules(max_length=1))
        loop.settle()
        if who == "getter":
            queue.get(lambda cursor: got.append(cursor.records()[0][1] if cursor is not None else 0))
        else:
            queue.attach(consumer)
        loop.settle()
    assert (len(ended), got, consumer.got) == (1, [], [])
    ended[0]()
    loop.settle()
    assert got + consumer.got == positions[-1:]


def test_a_getter_waits_until_many_that_are_too_many_are_buried(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed)
    grave = Grave(queue, max_length=1)
    positions = world.publish(feed, n=300)
    world.log.flush()
    got: list[int] = []
    queue.get(lambda cursor: got.append(cursor.records()[0][1] if cursor is not None else 0))
    loop.settle()
    assert got == positions[-1:]
    assert grave.found == [(position, "maxlen") for position in positions[:-1]]


def test_a_consumer_with_credit_gets_more_than_the_length_limit(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed)
    queue.apply(Rules(max_length=1))
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


def test_rules_that_change_hold_for_what_is_there(world: World, loop: Loop, clock: Clock, feed: Feed) -> None:
    queue = world.queue("q", feed)
    positions = world.publish(feed, n=5)
    loop.settle()
    queue.apply(Rules(max_length=3))
    loop.settle()
    assert queue.cursor.ready_count() == 3
    grave = Grave(queue, ttl_ms=1000)
    loop.settle()
    clock.now += 2
    loop.advance(2)
    assert grave.found == [(position, "expired") for position in positions[2:]]
    queue.apply(NO_RULES)
    kept = world.publish(feed, n=9)
    loop.settle()
    clock.now += 2
    loop.advance(2)
    consumer = Consumer(queue)
    queue.attach(consumer)
    loop.settle()
    assert consumer.got == kept


def test_messages_rejected_before_the_rules_were_removed_are_dropped(
    world: World, loop: Loop, feed: Feed
) -> None:
    queue = world.queue("q", feed)
    grave = Grave(queue)
    consumer = Consumer(queue)
    queue.attach(consumer)
    world.publish(feed, n=2)
    loop.settle()
    queue.cursor.reject(consumer.held[0])
    queue.apply(NO_RULES)
    loop.settle()
    assert grave.found == []
    assert queue.cursor.outstanding == 1


@pytest.mark.parametrize("reason", ["rejected", "expired"])
def test_a_message_that_cannot_be_dead_lettered_stays_and_is_retried(
    world: World, loop: Loop, clock: Clock, feed: Feed, reason: str
) -> None:
    queue = world.queue("q", feed)
    grave = Grave(queue, ttl_ms=1000)
    grave.closed = True
    consumer = Consumer(queue)
    positions = world.publish(feed, n=3)
    if reason == "rejected":
        queue.attach(consumer)
        loop.settle()
        for seq in consumer.held:
            queue.cursor.reject(seq)
    loop.settle()
    clock.now += 1.1
    loop.advance(1.1)
    assert grave.found == []
    assert (queue.ready_count, queue.cursor.outstanding) == (0, 3)
    assert queue.cursor.mark < positions[0], "a restart would find them"
    grave.closed = False
    loop.advance(1)
    assert grave.found == [(position, reason) for position in positions]
    assert queue.cursor.outstanding == 0


def test_deleting_ends_the_timer(world: World, loop: Loop, clock: Clock, feed: Feed) -> None:
    queue = world.queue("q", feed)
    grave = Grave(queue, ttl_ms=1000)
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
    grave = Grave(queue, delivery_limit=limit)
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


def test_without_a_limit_a_message_comes_again_for_ever(world: World, loop: Loop, feed: Feed) -> None:
    """Also when it came more often than is counted."""
    queue = world.queue("q", feed)
    queue.apply(NO_RULES)
    world.publish(feed)
    loop.settle()
    for _ in range(65_540):
        assert queue.cursor.take(1) == 1
        queue.cursor.requeue_all()
    assert queue.cursor.take(1) == 1
    assert queue.cursor.records()[0][3] == 65_535


def test_refused_records_are_not_for_this_queue(world: World, loop: Loop, feed: Feed) -> None:
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
