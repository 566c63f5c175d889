"""Cursors: what the property tests do not look at, because it is about what is not read."""

from __future__ import annotations

from penstock.log_core.feeds._feed import Feed
from penstock.log_core.reading._tail import Cache
from penstock.subscriptions.cursor._cursor import Cursor
from tests.support.queues import World

NOTHING = 2**64 - 1


class Forgetful:
    """A log whose cache is empty: every look at a record is a cold read."""

    def __init__(self, world: World) -> None:
        self.appender = world.log.appender
        self.cache = Cache(0, 0)
        self.written_lsn = world.log.written_lsn
        self.visible_lsn = NOTHING
        self.now_ms = world.log.now_ms


def offline(world: World, feed: Feed, *flags: int) -> Cursor:
    """A cursor that missed a record per flag, all of them out of memory."""
    for flag in flags:
        world.publish(feed, flags=flag)
    world.loop.settle()
    cursor = Cursor(Forgetful(world))
    cursor.join(feed, 1)
    return cursor


def test_transient_records_of_an_offline_time_are_skipped_without_reading_them(
    world: World, feed: Feed
) -> None:
    cursor = offline(world, feed, 0, 0, 0)
    cursor.skip_transient_until = world.log.appender.next_lsn
    assert (cursor.take(10), cursor.cold) == (0, 0)
    assert cursor.ready_count() == 0 and cursor.low() == NOTHING


def test_only_the_persistent_record_among_transient_ones_is_read(world: World, feed: Feed) -> None:
    cursor = offline(world, feed, 0, 0, 2, 0)
    cursor.skip_transient_until = world.log.appender.next_lsn
    assert cursor.take(10) == 0
    assert cursor.cold == feed.positions(2, 1)[0]


def test_an_offline_session_does_not_keep_the_log_for_transient_records(world: World, feed: Feed) -> None:
    cursor = offline(world, feed, 0, 0)
    first = feed.positions(0, 1)[0]
    assert cursor.low() == first
    cursor.skip_transient_until = NOTHING
    assert cursor.low() == NOTHING
    world.publish(feed)
    world.loop.settle()
    assert first <= cursor.low() <= feed.positions(2, 1)[0]


def test_a_message_that_is_never_settled_keeps_no_window_behind_it(world: World, feed: Feed) -> None:
    cursor = Cursor(world.log)
    cursor.join(feed)
    world.publish(feed)
    world.loop.settle()
    cursor.take(1)
    for _ in range(40):
        world.publish(feed, n=1000)
        world.loop.settle()
        assert cursor.take(1024) == 1000
        cursor.settle_taken()
    assert cursor.outstanding == 1 and cursor.window < 3000
    assert cursor.low() == feed.positions(0, 1)[0]
    assert cursor.requeue(1)
    assert cursor.take(1) == 1
    cursor.settle_taken()
    assert cursor.low() == NOTHING and cursor.window == 0


def test_a_state_record_of_many_unsettled_is_small(world: World, feed: Feed) -> None:
    cursor = Cursor(world.log)
    cursor.join(feed)
    world.publish(feed, n=1000)
    world.loop.settle()
    cursor.take(1000)
    cursor.settle(3)
    assert len(cursor.state()) < 40
    assert len(cursor.state(final=True)) < 60
