"""Queues while the disk is full, and after the log failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.subscriptions.cursor._cursor import Cursor
from tests.support.logs import BROKEN, FULL, FailingFiles
from tests.support.queues import Clock, Consumer, Loop, World


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def log(tmp_path: Path, clock: Clock, files: FailingFiles) -> Iterator[Log]:
    log = Log.open(tmp_path / "data", LogOptions(), clock=clock, files=files)
    yield log
    log.close_sync()


def test_messages_that_waited_for_a_full_disk_are_delivered_when_there_is_space(
    world: World, files: FailingFiles, loop: Loop
) -> None:
    feed = world.log.new_feed()
    queue, asked = world.queue("q", feed), world.queue("asked", feed)
    consumer = Consumer(queue)
    queue.attach(consumer)
    loop.settle()
    files.write_error, files.write_most = FULL, 0
    got: list[int] = []

    def getter(cursor: Cursor | None) -> None:
        assert cursor is not None
        got.append(cursor.records()[0][1])

    positions = world.publish(feed, n=3)
    loop.settle()  # ends: nobody spins while nothing can be written
    asked.get(getter)
    loop.settle()
    assert consumer.got == [] and got == []
    files.write_error = None
    world.tick.schedule()
    loop.settle()
    assert consumer.got == positions
    assert got == positions[:1]


def test_after_the_log_failed_no_state_record_is_tried(world: World, files: FailingFiles, loop: Loop) -> None:
    feed = world.log.new_feed()
    queue = world.queue("q", feed, durable=True)
    consumer = Consumer(queue)
    queue.attach(consumer)
    world.publish(feed, n=2)
    loop.settle()
    consumer.ack()
    files.write_error, files.write_most = BROKEN, 0
    world.publish(feed)
    loop.settle()
    assert world.log.failed is not None
    loop.advance(1)
    world.queues.close()
