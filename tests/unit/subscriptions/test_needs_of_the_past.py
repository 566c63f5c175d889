"""A thread finds the records of a segment that queues with a past need; unreadable segments are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.log_core.maintenance._seal import Needs
from penstock.log_core.reading import reader as reader_module
from penstock.log_core.state.tables import FEED_TABLE, feed_key
from tests.support.logs import BROKEN, KIB, held_readers, open_log, settle
from tests.support.pasts import Wanted, search
from tests.support.queues import Loop, World


def open_small(path: Path) -> World:
    return World(open_log(path, traffic_retention_bytes=1 << 30, segment_bytes=64 * KIB), Loop())


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A queue that has every record with the key b"k" as its past, after a restart: in no memory."""
    world = open_small(tmp_path)
    log = world.log
    for i in range(1000):
        log.appender.append_record(0, log.target([], False), b"ab"[i % 2 :][:1] + b"k", body=bytes(400))
        log.flush()
    feed = search(log, 1, log.appender.next_lsn, Wanted({b"ak"}, set()))
    assert feed is not None
    log.tables.put(FEED_TABLE, feed_key(feed.id), b"")
    log.flush()
    settle(log)
    log.close_sync()
    world = open_small(tmp_path)
    feed = world.log.feed(feed.id)
    world.queue("q").join_part(feed, 1, world.log.appender.next_lsn)
    assert not feed.is_resident(feed.start)
    return world


def asked(world: World) -> tuple[Needs, list[bool], Needs]:
    """Ask what is needed of the third segment; with what is to be found."""
    segment = world.log._segments.live[2]
    needs, alike = (Needs(segment.base_lsn, segment.next_lsn) for _ in range(2))
    for position in range(segment.base_lsn, segment.next_lsn):
        if position % 2 == 1:
            alike.need(position)
    done: list[bool] = []
    world.queues.needs(needs, lambda: done.append(True))
    return needs, done, alike


def until(world: World, done: list[bool]) -> None:
    while not done:
        world.log._inbox.wait(60)
        world.loop.settle()


def test_entries_that_left_memory_are_read_by_a_thread(world: World) -> None:
    with held_readers(world.log):
        needs, done, alike = asked(world)
        world.loop.settle()
        assert not done
    until(world, done)
    assert needs.signature() == alike.signature()
    world.log.close_sync()


def test_a_segment_whose_entries_cannot_be_read_stays_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were taken for entries that nobody needs: the segment was rewritten without them."""

    def fails(*_: Any) -> bytes:
        raise BROKEN

    monkeypatch.setattr(reader_module, "read_history_entries", fails)
    needs, done, alike = asked(world)
    until(world, done)
    alike.need_marked(b"\xff" * ((needs.end - needs.base) // 8 + 1))
    assert needs.signature() == alike.signature()
    world.log.close_sync()
