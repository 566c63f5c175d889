"""The head of a queue: as memory tells it, or the entry that has to be read first."""

from __future__ import annotations

from penstock.log_core.batch._appender import Target
from penstock.log_core.feeds._feed import Feed
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.queue.head import Head, head_of
from tests.support.memory_log import MemoryLog
from tests.support.queues import Consumer, World


def test_the_head_is_the_oldest_message_that_is_not_settled(world: World, feed: Feed) -> None:
    other = world.log.new_feed()
    queue = world.queue("q", feed, other)
    assert head_of(queue.cursor) == Head()
    first, second = world.publish(other)[0], world.publish(feed)[0]
    (third,) = world.publish(feed, other)
    world.loop.settle()
    assert head_of(queue.cursor) == Head(first)
    consumer = Consumer(queue, 2)
    queue.attach(consumer)
    world.loop.settle()
    assert consumer.got == [first, second]
    assert head_of(queue.cursor) == Head(first), "it is out, and not settled"
    queue.cursor.settle(consumer.held[1])
    assert head_of(queue.cursor) == Head(first)
    queue.cursor.settle(consumer.held[0])
    assert head_of(queue.cursor) == Head(third)
    queue.purge()
    assert head_of(queue.cursor) == Head()


def test_a_message_that_was_refused_is_no_head(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    for _ in range(3):
        queue.cursor.refuse(world.publish(feed)[0])
    assert head_of(queue.cursor) == Head()
    (kept,) = world.publish(feed)
    world.loop.settle()
    assert queue.ready_count == 1
    assert head_of(queue.cursor) == Head(kept)


def test_nothing_is_changed_by_looking(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    (first, second) = world.publish(feed, n=2)
    world.loop.settle()
    before = queue.cursor.state()
    assert head_of(queue.cursor) == Head(first)
    assert (queue.cursor.state(), queue.cursor.window, queue.cursor.frontier) == (before, 0, 0)
    consumer = Consumer(queue)
    queue.attach(consumer)
    world.loop.settle()
    assert consumer.got == [first, second] and consumer.flags == [False, False]


def test_an_entry_that_has_left_memory_is_named_and_nothing_is_read() -> None:
    log = MemoryLog()
    feed, other = Feed(1, log), Feed(2, log)
    cursor = Cursor(log)
    cursor.join(feed)
    cursor.join(other)

    def publish(*feeds: Feed) -> int:
        return log.appender.append_record(0, Target(list(feeds)), body=b"x")

    publish()
    first = publish(feed)
    publish()
    publish(feed)
    log.roll()
    later = publish(other)
    log.flush()
    log.spill(feed)
    assert head_of(cursor) == Head(0, (feed, 0)), "one of them is older than the one that is known"
    assert not feed.is_resident(0)
    log.load_feed_now(feed, 0)
    assert head_of(cursor) == Head(first)
    cursor.purge(later)
    log.spill(feed)
    assert head_of(cursor) == Head(later)
