"""Queues: who is served, when a queue waits and is woken, what happens to what a consumer held."""

from __future__ import annotations

import gc

import pytest

from penstock.log_core.feeds._feed import Feed
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.errors import ConsumerRefused, QueueGone
from penstock.subscriptions.options import QueueOptions
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.queues import Queues
from tests.support.queues import Consumer, World


def attach(queue: Queue, credit: int = 10**9, *, priority: int = 0, no_ack: bool = False) -> Consumer:
    consumer = Consumer(queue, credit, priority=priority, no_ack=no_ack)
    queue.attach(consumer)
    return consumer


def test_a_consumer_gets_what_was_published_before_and_after_it_came(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    before = world.publish(feed, n=3)
    world.loop.settle()
    consumer = attach(queue)
    world.loop.settle()
    after = world.publish(feed, n=2)
    world.loop.settle()
    assert consumer.got == before + after
    assert queue.statistics()["unacked"] == 5
    consumer.ack()
    world.loop.settle()
    assert queue.statistics() == {
        "ready": 0,
        "unacked": 0,
        "consumers": 1,
        "delivered": 5,
        "acked": 5,
        "requeued": 0,
        "expired": 0,
        "lost": 0,
        "dropped": 0,
    }


def test_nothing_is_handed_out_before_it_is_written(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    consumer = attach(queue)
    world.loop.settle()
    lsn = world.publish(feed)[0]
    queue.pump()
    assert consumer.got == [] and world.log.written_lsn < lsn
    world.loop.settle()
    assert consumer.got == [lsn]


def test_publishing_costs_nothing_for_a_queue_without_a_hungry_consumer(world: World, feed: Feed) -> None:
    idle = world.queue("idle", feed)
    full = world.queue("full", feed)
    consumer = attach(full, credit=1)
    world.loop.settle()
    assert list(feed.waiters) == [full]
    world.publish(feed, n=2)
    world.loop.settle()
    assert feed.waiters == {}  # no credit is left
    world.publish(feed)
    world.loop.settle()
    assert len(consumer.got) == 1
    assert (idle.ready_count, full.ready_count) == (3, 2)
    consumer.ack()
    world.loop.settle()
    assert len(consumer.got) == 2


def test_consumers_get_one_message_per_turn(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    consumers = [attach(queue) for _ in range(3)]
    world.loop.settle()
    positions = world.publish(feed, n=9)
    world.loop.settle()
    assert [consumer.got for consumer in consumers] == [positions[i::3] for i in range(3)]


def test_turns_go_on_across_single_messages(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    consumers = [attach(queue) for _ in range(2)]
    world.loop.settle()
    positions = []
    for _ in range(4):
        positions += world.publish(feed)
        world.loop.settle()
    assert [consumer.got for consumer in consumers] == [positions[0::2], positions[1::2]]


def test_credit_bounds_each_consumer_and_the_rest_goes_to_others(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    small, large = attach(queue, credit=2), attach(queue, credit=5)
    world.publish(feed, n=10)
    world.loop.settle()
    assert (len(small.got), len(large.got)) == (2, 5)
    assert queue.ready_count == 3
    small.ack(1)
    world.loop.settle()
    assert (len(small.got), len(large.got)) == (3, 5)


def test_a_lower_priority_is_served_only_without_credit_above(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    low = attach(queue, credit=10)
    high = attach(queue, credit=3, priority=5)
    positions = world.publish(feed, n=5)
    world.loop.settle()
    assert high.got == positions[:3]
    assert low.got == positions[3:]


def test_messages_without_output_capacity_go_out_next_in_order_and_uncounted(
    world: World, feed: Feed
) -> None:
    queue = world.queue("q", feed)
    consumer = attach(queue)
    consumer.capacity = 2
    positions = world.publish(feed, n=5)
    world.loop.settle()
    assert consumer.got == positions[:2]
    assert queue.ready_count == 3
    consumer.capacity = 10**9
    queue.credit_gained()
    world.loop.settle()
    assert consumer.got == positions
    assert not any(consumer.flags)


def test_a_consumer_that_took_a_part_is_asked_for_its_credit_again(world: World, feed: Feed) -> None:
    """A consumer learns from `credit` that it is waited for: one whose output filled up must be asked."""
    queue = world.queue("q", feed)
    consumer = attach(queue)
    consumer.capacity = 2
    positions = world.publish(feed, n=5)
    asked = []
    answer = consumer.credit

    def credit() -> int:
        asked.append(len(consumer.got))
        return answer() if not consumer.got else 0

    consumer.credit = credit  # type: ignore[method-assign]
    world.loop.settle()
    assert consumer.got == positions[:2]
    assert asked[-1] == 2


def test_a_consumer_without_room_does_not_stop_the_others(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    stuck, other = attach(queue, credit=4), attach(queue)
    stuck.capacity = 0
    world.publish(feed, n=6)
    for _ in range(20):
        world.loop.turn()
    assert stuck.got == []
    assert len(other.got) == 6


def test_requeued_messages_go_out_first_in_log_order_and_flagged(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    first = attach(queue, credit=4)
    positions = world.publish(feed, n=6)
    world.loop.settle()
    queue.detach(first)
    for seq in reversed(first.held):
        queue.cursor.requeue(seq)
    second = attach(queue)
    world.loop.settle()
    assert second.got == positions
    assert second.flags == [True] * 4 + [False] * 2


def test_detach_with_requeue_gives_back_everything(world: World, feed: Feed) -> None:
    queue = world.queue("session", feed, kind=Kind.EXCLUSIVE)
    consumer = attach(queue)
    world.publish(feed, n=4)
    world.loop.settle()
    consumer.ack(1)
    queue.detach(consumer, requeue=True)
    assert queue.ready_count == 3
    assert queue.cursor.outstanding == 0


def test_an_exclusive_queue_refuses_a_second_consumer(world: World) -> None:
    queue = world.queue("session", kind=Kind.EXCLUSIVE)
    attach(queue)
    with pytest.raises(ConsumerRefused):
        attach(queue)
    assert queue.consumer_count == 1


def test_exclusive_use_is_refused_beside_others_and_refuses_others(world: World) -> None:
    queue = world.queue("q")
    first = attach(queue)
    with pytest.raises(ConsumerRefused):
        queue.attach(Consumer(queue), exclusive=True)
    queue.detach(first)
    queue.attach(Consumer(queue), exclusive=True)
    with pytest.raises(ConsumerRefused):
        attach(queue)


def test_an_auto_delete_queue_reports_its_last_consumer_once(world: World) -> None:
    reported: list[Queue] = []
    world.queues.on_unneeded = reported.append
    queue = world.queues.create("q", "/", durable=False, auto_delete=True)
    first, second = attach(queue), attach(queue)
    queue.detach(first)
    queue.detach(first)
    assert reported == []
    queue.detach(second)
    assert reported == [queue]


def test_delete_cancels_consumers_and_ends_memberships(world: World, feed: Feed) -> None:
    unused: list[Feed] = []
    world.queues.on_feed_unused = unused.append
    queue = world.queue("q", feed)
    consumer = attach(queue, credit=1)
    world.publish(feed, n=3)
    world.loop.settle()
    assert queue.delete() == (2, 0)
    assert consumer.reasons == ["the queue was deleted"]
    assert unused == [feed] and feed.waiters == {}
    with pytest.raises(QueueGone):
        attach(queue)
    assert queue.delete() == (0, 0)
    world.publish(feed)
    world.loop.settle()
    assert len(consumer.got) == 1


def test_the_memory_of_a_deleted_queue_does_not_wait_for_the_collector(world: World, feed: Feed) -> None:
    def cursors() -> int:
        return sum(isinstance(thing, Cursor) for thing in gc.get_objects())

    gc.collect()
    before = cursors()
    gc.disable()
    try:
        for _ in range(20):
            queue = world.queue("q", feed)
            consumer = attach(queue)
            world.loop.settle()
            world.publish(feed)
            world.loop.settle()
            consumer.ack()
            queue.delete()
            del queue, consumer
        world.loop.settle()
        assert cursors() == before
    finally:
        gc.enable()


def test_a_failing_consumer_is_detached_and_its_share_given_to_others(
    world: World, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Consumer):
        def deliver(self, cursor: Cursor, first: int, step: int) -> int:
            raise RuntimeError("broken encoder")

    queue = world.queue("q", feed)
    failing = Failing(queue)
    queue.attach(failing)
    good = attach(queue)
    positions = world.publish(feed, n=4)
    world.loop.settle()
    assert failing.reasons == ["the consumer failed"]
    assert sorted(good.got) == positions and not any(good.flags)
    assert "broken encoder" in caplog.text


def test_one_queue_hands_out_a_bounded_share_of_a_turn(world: World, feed: Feed) -> None:
    world.queues = Queues(world.log, world.tick, QueueOptions(pump_messages=10))
    big, small = world.queue("big", feed), world.queue("small", other := world.log.new_feed())
    world.publish(feed, n=35)
    world.publish(other)
    world.loop.settle()
    many, one = attach(big), attach(small)
    world.loop.turn()
    assert (len(many.got), len(one.got)) == (10, 1)
    world.loop.settle()
    assert len(many.got) == 35


def test_a_queue_with_too_much_out_stops_until_something_is_acknowledged(world: World, feed: Feed) -> None:
    world.queues = Queues(world.log, world.tick, QueueOptions(pump_messages=4, outstanding_max=8))
    consumer = attach(world.queue("q", feed))
    world.publish(feed, n=20)
    world.loop.settle()
    assert len(consumer.got) == 8
    consumer.ack(3)
    world.loop.settle()
    assert len(consumer.got) == 12


def test_a_stopped_queue_is_woken_when_half_of_it_is_acknowledged(world: World, feed: Feed) -> None:
    """A consumer without a prefetch limit never lacks credit, so nobody else would wake the queue."""
    world.queues = Queues(world.log, world.tick, QueueOptions(pump_messages=4, outstanding_max=8))
    consumer = attach(queue := world.queue("q", feed))
    world.publish(feed, n=20)
    world.loop.settle()
    for seq in consumer.held[:3]:
        queue.cursor.settle(seq)
    world.loop.settle()
    assert len(consumer.got) == 8
    queue.cursor.settle(consumer.held[3])
    world.loop.settle()
    assert len(consumer.got) == 12


def test_messages_requeued_to_a_stopped_queue_go_to_the_next_consumer(world: World, feed: Feed) -> None:
    world.queues = Queues(world.log, world.tick, QueueOptions(pump_messages=4, outstanding_max=8))
    first = attach(queue := world.queue("q", feed))
    world.publish(feed, n=20)
    world.loop.settle()
    queue.detach(first, requeue=True)
    second = attach(queue)
    world.loop.settle()
    assert second.got == first.got and all(second.flags)


def test_get_takes_one_message_and_none_from_an_empty_queue(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    got: list[int | None] = []

    def getter(cursor: Cursor | None) -> None:
        got.append(None if cursor is None else cursor.records()[0][1])

    queue.get(getter)
    assert got == [None]
    positions = world.publish(feed, n=2)
    queue.get(getter)  # not written yet: answered by the turn
    queue.get(getter)
    queue.get(getter)
    assert got == [None]
    world.loop.settle()
    assert got == [None, *positions, None]
    assert queue.cursor.outstanding == 2


def test_a_queue_with_two_feeds_gets_each_record_once(world: World, feed: Feed) -> None:
    other = world.log.new_feed()
    consumer = attach(world.queue("q", feed, other))
    world.loop.settle()
    both = world.publish(feed, other)
    left = world.publish(feed)
    right = world.publish(other)
    world.loop.settle()
    assert consumer.got == both + left + right


def test_messages_routed_before_leave_are_delivered_and_then_the_feed_is_unused(
    world: World, feed: Feed
) -> None:
    unused: list[Feed] = []
    world.queues.on_feed_unused = unused.append
    queue = world.queue("q", feed)
    positions = world.publish(feed, n=2)
    queue.leave(feed)
    world.publish(feed)
    world.loop.settle()
    assert queue.ready_count == 2 and unused == [] and world.queues.is_used(feed)
    consumer = attach(queue)
    world.loop.settle()
    consumer.ack()
    assert consumer.got == positions
    queue.purge()
    assert unused == [feed] and not world.queues.is_used(feed)


def test_join_wakes_a_queue_that_waits_elsewhere(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    consumer = attach(queue)
    world.loop.settle()
    other = world.log.new_feed()
    queue.join(other)
    world.loop.settle()
    positions = world.publish(other)
    world.loop.settle()
    assert consumer.got == positions


def test_purge_drops_what_is_ready_only(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    consumer = attach(queue, credit=2)
    world.publish(feed, n=5)
    world.loop.settle()
    assert queue.purge() == 3
    assert (queue.ready_count, queue.cursor.outstanding) == (0, 2)
    later = world.publish(feed)
    consumer.ack()
    world.loop.settle()
    assert consumer.got[2:] == later


def test_the_next_one_of_a_single_active_consumer_gets_what_waits(world: World, feed: Feed) -> None:
    """Also when the one before held nothing that would come back."""
    queue = world.queue("q", feed, kind=Kind.SINGLE)
    first, second = attach(queue, 0), attach(queue)
    world.publish(feed, n=3)
    world.loop.settle()
    assert (first.got, second.got) == ([], [])
    queue.detach(first)
    world.loop.settle()
    assert len(second.got) == 3
