"""The order of service, and the wake-ups of all who may be served. Each test kills one mutant."""

from __future__ import annotations

from penstock.log_core.feeds._feed import Feed
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.queue.limits import Overflow, Rules
from tests.support.queues import Consumer, Loop, World


def test_a_preferred_one_takes_over_when_the_last_message_that_was_out_is_settled(
    world: World, loop: Loop, feed: Feed
) -> None:
    queue = world.queue("q", feed, kind=Kind.PREFERRED)
    first, equal, preferred = (
        Consumer(queue, priority=1),
        Consumer(queue, priority=1),
        Consumer(queue, priority=2),
    )
    queue.attach(first)
    before = world.publish(feed, n=2)
    loop.settle()
    queue.attach(equal)
    queue.attach(preferred)
    after = world.publish(feed, n=2)
    loop.settle()
    assert (first.got, equal.got, preferred.got) == (before, [], [])
    queue.cursor.settle(first.held.pop())
    loop.settle()
    assert preferred.got == []
    # Its owner says nothing else, such as that it has credit.
    queue.cursor.settle(first.held.pop())
    loop.settle()
    assert (first.got, equal.got, preferred.got) == (before, [], after)


def test_an_equal_one_takes_over_from_nobody(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed, kind=Kind.PREFERRED)
    first, second = Consumer(queue), Consumer(queue)
    queue.attach(first)
    queue.attach(second)
    sent = world.publish(feed, n=3)
    loop.settle()
    assert (first.got, second.got) == (sent, [])


def test_messages_that_consumers_take_at_once_are_not_refused(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queue("q", feed)
    queue.apply(Rules(max_length=1, overflow=Overflow.REJECT))
    consumer = Consumer(queue, credit=2)
    queue.attach(consumer)
    # One of three waits.
    assert [queue.refuses(1, before=before) for before in range(4)] == [False, False, False, True]


def test_more_than_one_take_gathers_is_sorted_and_served_without_another_word(
    world: World, loop: Loop, feed: Feed
) -> None:
    queue = world.queues.create("q", "/", durable=False, kind=Kind.SHARED, priority_max=5)
    queue.join(feed)
    world.publish(feed, n=70_000)
    target = world.log.target([feed], False)
    urgent = world.log.appender.append_record(0, target, body=b"body", priority=5)
    loop.settle()
    consumer = Consumer(queue, credit=2, no_ack=True)
    queue.attach(consumer)
    loop.settle()
    assert consumer.got[0] == urgent
