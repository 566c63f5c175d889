"""A follower gets what its queue gets, by whatever feeds, and takes nothing from it."""

from __future__ import annotations

from penstock.log_core.feeds._feed import Feed
from tests.support.queues import Consumer, World


def follow(world: World, queue_name: str, *feeds: Feed) -> tuple[Consumer, Consumer]:
    """A consumer of a queue and one of its follower."""
    queue = world.queue(queue_name, *feeds)
    consumer = Consumer(queue)
    queue.attach(consumer)
    follower = world.queues.follow(queue, world.log.appender.next_lsn)
    listener = Consumer(follower, no_ack=True)
    follower.attach(listener)
    return consumer, listener


def test_it_joins_and_leaves_feeds_with_the_queue(world: World, feed: Feed) -> None:
    other = world.log.new_feed()
    world.publish(feed)
    world.loop.settle()
    consumer, listener = follow(world, "q", feed)
    expected = world.publish(feed)
    consumer.queue.join(other)
    expected += world.publish(other)
    world.loop.settle()
    consumer.queue.leave(feed)
    world.publish(feed)
    expected += world.publish(other, feed)
    world.loop.settle()
    assert listener.got == consumer.got == expected
    assert consumer.queue.cursor.outstanding == len(expected) and not any(consumer.flags)


def test_it_leaves_out_what_is_not_for_the_queue(world: World, feed: Feed) -> None:
    consumer, listener = follow(world, "q", feed)
    (kept,) = world.publish(feed)
    consumer.queue.leave_out(world.publish(feed)[0])
    (later,) = world.publish(feed)
    world.loop.settle()
    assert listener.got == consumer.got == [kept, later]


def test_it_ends_with_the_queue_or_with_its_listener(world: World, feed: Feed) -> None:
    consumer, listener = follow(world, "q", feed)
    queue, follower = consumer.queue, listener.queue
    second = world.queues.follow(queue, world.log.appender.next_lsn)
    leaving = Consumer(second, no_ack=True)
    second.attach(leaving)
    second.detach(leaving)
    assert second.deleted and not follower.deleted
    queue.delete()
    assert follower.deleted and listener.reasons == ["the queue was deleted"]
    assert world.queues.followers == {} and feed.users == 0
