"""Ages of heads for lists: from memory, or asked for without waiting and for one page of rows at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.log_core.reading._tail import Cache
from penstock.protocols.http.shared.lag import HeadTimes
from penstock.subscriptions.queue.queue import Queue
from tests.support.logs import open_log
from tests.support.queues import Clock, Consumer, Loop, World

ROWS = 500


class ColdLog:
    """A log whose records have left memory until `warm`; it notes what is asked for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cache = Cache(0, 0)
        self.asked: list[tuple[int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return self._world.log.now_ms()

    def load(self, position: int, then: Callable[[], None]) -> None:
        self.asked.append((position, then))

    def load_feed(self, *_: object) -> None:
        raise AssertionError("the entries are in memory")

    def answer(self) -> None:
        asked, self.asked = self.asked, []
        for _, then in asked:
            then()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> Iterator[World]:
    log = open_log(tmp_path / "data", clock=clock, tail_cache_bytes=1 << 20)
    yield World(log, Loop())
    log.close_sync()


def ages(heads: HeadTimes, world: World) -> Callable[[Queue], int | None]:
    """The age of a queue's head in ms, as one request is told."""
    published = heads.of_request()
    return lambda queue: None if (at := published(queue)) is None else world.log.now_ms() - at


@pytest.fixture
def cold(world: World) -> ColdLog:
    return ColdLog(world)


def test_memory_tells_at_once_and_of_an_empty_queue_nothing(
    world: World, clock: Clock, cold: ColdLog
) -> None:
    feed = world.log.new_feed()
    queue, empty = world.queue("q", feed), world.queue("empty")
    log: Any = cold
    age = ages(HeadTimes(log), world)
    cold.cache = world.log.cache
    world.publish(feed)
    world.loop.settle()
    clock.now += 90
    world.publish(feed)
    world.loop.settle()
    assert age(queue) == 90_000 and age(empty) is None
    consumer = Consumer(queue, 1)
    queue.attach(consumer)
    world.loop.settle()
    assert age(queue) == 90_000
    consumer.ack()
    assert age(queue) == 0
    assert cold.asked == []


def test_a_request_asks_for_a_page_of_heads_and_waits_for_none(
    world: World, clock: Clock, cold: ColdLog
) -> None:
    feeds = [world.log.new_feed() for _ in range(ROWS + 100)]
    queues = [world.queue(str(at), feed) for at, feed in enumerate(feeds)]
    positions = [world.publish(feed)[0] for feed in feeds]
    world.loop.settle()
    log: Any = cold
    heads = HeadTimes(log)
    for _ in range(2):  # a second look asks for nothing that is being read
        age = ages(heads, world)
        assert [age(queue) for queue in queues] == [None] * len(queues)
        assert [position for position, _ in cold.asked] == positions[:ROWS]
    cold.cache = world.log.cache
    clock.now += 5
    world.publish(feeds[0])
    world.loop.settle()
    cold.answer()
    cold.cache = Cache(0, 0)
    assert age(queues[-1]) is None and cold.asked == [], "a request asks for no more, however long it takes"
    age = ages(heads, world)
    assert [age(queue) for queue in queues] == [5000] * ROWS + [None] * 100, "they are remembered"
    assert [position for position, _ in cold.asked] == positions[ROWS:]


def test_a_head_that_moved_on_or_a_queue_that_went_is_not_read_for_ever(world: World, cold: ColdLog) -> None:
    feed = world.log.new_feed()
    queue, gone = world.queue("q", feed), world.queue("gone", feed)
    world.publish(feed)
    world.loop.settle()
    log: Any = cold
    heads = HeadTimes(log)
    age = ages(heads, world)
    assert age(queue) is None and age(gone) is None
    assert len(cold.asked) == 2
    gone.delete()
    reads = 0
    while cold.asked and reads < 100:
        cold.answer()
        reads += 1
    assert 0 < reads < 20
    assert ages(heads, world)(queue) is None
    assert len(cold.asked) == 1, "it is asked for again"
