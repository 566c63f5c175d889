"""The registry: what is persisted and when, what comes back after a stop, what of the log is needed."""

from __future__ import annotations

import pytest

from penstock.log_core.feeds._feed import Feed
from penstock.log_core.log import Log
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.errors import SubscriptionError
from penstock.subscriptions.queues import Queues
from penstock.subscriptions.streams.stream import Stream
from penstock.subscriptions.streams.subscription import Subscription
from tests.support.queues import Consumer, World


def key(qid: int) -> bytes:
    return qid.to_bytes(8, "big")


def test_a_durable_join_is_put_at_once_and_its_lsn_told(world: World, feed: Feed) -> None:
    queue = world.queues.create("q", "/", durable=True)
    lsn = queue.join(feed)
    assert lsn == world.log.appender.next_lsn - 1
    assert world.log.tables.get("cursor", key(queue.qid)) is not None
    assert queue.join(feed) == 0  # nothing changed


def test_a_transient_queue_writes_nothing(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed)
    consumer = Consumer(queue)
    queue.attach(consumer)
    world.publish(feed, n=3)
    world.loop.settle()
    consumer.ack()
    world.loop.advance(1)
    world.queues.close()
    assert queue.qid == 0
    assert list(world.log.tables.keys("cursor")) == []


def test_settlements_are_put_after_the_flush_interval_and_only_then(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed, durable=True)
    consumer = Consumer(queue)
    queue.attach(consumer)
    world.publish(feed, n=3)
    world.loop.settle()
    before = world.log.tables.get("cursor", key(queue.qid))
    consumer.ack(2)
    world.loop.settle()
    assert world.log.tables.get("cursor", key(queue.qid)) == before
    world.loop.advance(0.051)
    after = world.log.tables.get("cursor", key(queue.qid))
    assert after != before
    next_lsn = world.log.appender.next_lsn
    world.loop.advance(1)
    assert world.log.appender.next_lsn == next_lsn  # clean: nothing more is put


def reopened(world: World, clean: bool) -> Queues:
    """The registry as a restart with this log would make it."""
    world.log.flush()
    world.log.recovery.clean = clean
    return Queues(world.log, world.tick)


def test_a_clean_restart_brings_back_exactly_what_was_not_done(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed, durable=True)
    consumer = Consumer(queue, credit=4)
    queue.attach(consumer)
    positions = world.publish(feed, n=6)
    world.loop.settle()
    queue.cursor.settle(consumer.held[1])
    world.queues.close()
    again = reopened(world, clean=True).restore(queue.qid, "q", "/")
    heir = Consumer(again)
    again.attach(heir)
    world.loop.settle()
    assert heir.got == [positions[0], *positions[2:]]
    assert heir.flags == [True, True, True, False, False]


def test_after_an_unclean_stop_everything_that_returns_is_flagged(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed, durable=True)
    positions = world.publish(feed, n=3)
    world.loop.settle()
    again = reopened(world, clean=False).restore(queue.qid, "q", "/")
    later = world.publish(feed)
    heir = Consumer(again)
    again.attach(heir)
    world.loop.settle()
    assert heir.got == positions + later
    assert heir.flags == [True, True, True, False]


def test_records_of_queues_that_were_not_restored_are_dropped(world: World, feed: Feed) -> None:
    kept, orphan = (world.queue(name, feed, durable=True) for name in "ab")
    queues = reopened(world, clean=True)
    queues.restore(kept.qid, "a", "/")
    assert queues.restored() == 1
    assert list(world.log.tables.keys("cursor")) == [key(kept.qid)]
    assert queues.create("c", "/", durable=True).qid > orphan.qid


def test_a_queue_cannot_be_restored_twice(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed, durable=True)
    queues = reopened(world, clean=True)
    queues.restore(queue.qid, "q", "/")
    with pytest.raises(SubscriptionError):
        queues.restore(queue.qid, "q", "/")


def test_delete_removes_the_record_and_tells_the_lsn(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed, durable=True)
    world.publish(feed, n=2)
    world.loop.settle()
    ready, lsn = queue.delete()
    assert (ready, lsn) == (2, world.log.appender.next_lsn - 1)
    assert list(world.log.tables.keys("cursor")) == []
    assert len(world.queues) == 0


def test_low_water_is_the_oldest_position_some_queue_needs(world: World, log: Log, feed: Feed) -> None:
    assert world.queues.low_water() == log.appender.next_lsn
    slow, quick = world.queue("slow", feed), world.queue("quick", feed)
    positions = world.publish(feed, n=4)
    world.loop.settle()
    consumers = [Consumer(slow, credit=2), Consumer(quick)]
    slow.attach(consumers[0])
    quick.attach(consumers[1])
    world.loop.settle()
    assert world.queues.low_water() == positions[0]
    consumers[1].ack()
    slow.cursor.settle(consumers[0].held[1])
    assert world.queues.low_water() == positions[0]
    slow.cursor.settle(consumers[0].held[0])
    assert world.queues.low_water() == positions[2]
    slow.delete()
    assert world.queues.low_water() == log.appender.next_lsn


def test_low_water_of_many_queues_is_found_in_slices_and_never_too_high(
    world: World, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.subscriptions.queues._SWEEP_AT_ONCE", 10)
    queues = [world.queue(f"q{i}", feed) for i in range(35)]
    first = world.publish(feed)[0]
    world.loop.settle()
    for queue in queues[1:]:
        queue.purge()
    assert world.queues.low_water() == 0  # the sweep has begun
    second = world.publish(feed)[0]
    world.loop.settle()
    queues[0].purge()
    world.loop.advance(0)
    assert first <= world.queues.low_water() <= second
    world.loop.advance(0)
    world.loop.settle()
    assert world.queues.low_water() <= second + 1


def test_very_many_queues_are_swept_only_when_something_was_appended(
    world: World, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.subscriptions.queues._SWEEP_AT_ONCE", 10)
    for number in range(35):
        world.queue(f"q{number}", feed)

    def turns() -> int:
        world.queues.low_water()
        return world.loop.settle()

    assert turns() > 0
    assert turns() == 0
    world.publish(feed)
    assert turns() > 1


def test_a_subscription_that_went_back_is_in_the_registry_until_it_is_deleted(
    world: World, feed: Feed
) -> None:
    stream = world.queues.create("s", "/", durable=False, kind=Kind.STREAM)
    assert isinstance(stream, Stream)
    stream.begin(feed)
    reader = world.queues.create("r", "/", durable=False, cls=Subscription)
    assert isinstance(reader, Subscription)
    reader.begin(stream, 1)
    positions = world.publish(feed, n=3)
    world.loop.settle()
    reader.seek(positions[0])
    reader.delete()
    assert list(world.queues) == [stream]


def test_a_clean_stop_after_an_unclean_one_keeps_what_is_in_doubt(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed, durable=True)
    positions = world.publish(feed, n=2)
    world.loop.settle()
    crashed = reopened(world, clean=False)
    crashed.restore(queue.qid, "q", "/")
    crashed.close()
    again = reopened(world, clean=True).restore(queue.qid, "q", "/")
    heir = Consumer(again)
    again.attach(heir)
    world.loop.settle()
    assert (heir.got, heir.flags) == (positions, [True, True])


def test_a_purge_is_put_at_once(world: World, feed: Feed) -> None:
    queue = world.queue("q", feed, durable=True)
    world.publish(feed, n=3)
    world.loop.settle()
    assert queue.purge() == 3
    again = reopened(world, clean=False).restore(queue.qid, "q", "/")
    assert again.ready_count == 0


def test_a_feed_that_one_queue_left_before_a_restart_stays_for_the_other(world: World, feed: Feed) -> None:
    left = world.queue("left", feed, durable=True)
    stays = world.queue("stays", feed, durable=True)
    position = world.publish(feed)[0]
    left.leave(feed)
    world.loop.settle()
    consumer = Consumer(left)
    left.attach(consumer)
    world.loop.settle()
    left.cursor.settle(left.cursor.records()[0][0])
    assert world.log.tables.put("cursor", key(left.qid), left.cursor.state())
    dropped: list[Feed] = []
    again = reopened(world, clean=True)
    again.on_feed_unused = dropped.append
    again.restore(left.qid, "left", "/")
    queue = again.restore(stays.qid, "stays", "/")
    again.restored()
    assert dropped == []
    assert queue.cursor.low() == position
