"""Queues over a log of small segments, and what a broker does for them: restarts, housekeeping, consumers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.log import Log
from penstock.log_core.state.tables import FEED_TABLE, feed_key
from tests.support.limits import LIMIT_S
from tests.support.logs import KIB, keep_house, open_log, settle
from tests.support.queues import Clock, Consumer, Loop, World


class Broker:
    """Queues over a log of small segments, of which traffic retention keeps nothing."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.options = options
        self.clock = Clock()
        self.queues: dict[str, Any] = {}
        self.random = random.Random(7)
        self.open()

    def open(self) -> None:
        self.log: Log = open_log(self.path, clock=self.clock, checkpoint_bytes=128 * KIB, **self.options)
        self.loop = Loop()
        self.world = World(self.log, self.loop)
        self.log.low_water = self.world.queues.low_water
        self.log.mark_needs = self.world.queues.needs
        for key, value in self.log.tables.items("queue_of_test"):
            self.queues[key.decode()] = self.world.queues.restore(
                int.from_bytes(value, "big"), key.decode(), "/"
            )

    def queue(self, name: str) -> Feed:
        feed = self.log.new_feed()
        self.log.tables.put(FEED_TABLE, feed_key(feed.id), name.encode())
        queue = self.world.queues.create(name, "/", durable=True)
        queue.join(feed)
        self.queues[name] = queue
        self.log.tables.put("queue_of_test", name.encode(), queue.qid.to_bytes(8, "big"))
        return feed

    def body(self, size: int) -> bytes:
        """Of a message: nothing that could be compressed."""
        return self.random.randbytes(size)

    def tend(self, times: int = 40) -> None:
        """Let the log do what is due, for a while."""
        for _ in range(times):
            self.clock.now += 61
            self.loop.advance(0.2)
            keep_house(self.log)

    def publish(self, feed: Feed, count: int, size: int = 900) -> list[int]:
        target = self.log.target([feed], True)
        lsns = [
            self.log.appender.append_record(0, target, b"key", b"props", self.body(size), PERSISTENT)
            for _ in range(count)
        ]
        self.log.flush()
        return lsns

    def consume(self, name: str, count: int = 10**9) -> list[int]:
        consumer = Consumer(self.queues[name], count)
        self.queues[name].attach(consumer)
        idle = 0
        while idle < 5:  # its feed, then its records, may have to be read first
            before = len(consumer.got)
            self.loop.settle()
            consumer.ack()
            consumer.left = count - len(consumer.got)
            self.loop.settle()
            while self.queues[name]._loading:
                self.log._inbox.wait(LIMIT_S)
            settle(self.log)
            idle = 0 if len(consumer.got) > before else idle + 1
        self.queues[name].detach(consumer)
        return consumer.got

    def bytes(self) -> int:
        return self.log.statistics()["segment_bytes"]

    def restart(self, *, clean: bool = True) -> None:
        if clean:
            self.world.queues.close()
        self.log.flush()
        settle(self.log)
        self.log.close_sync()
        self.queues.clear()
        self.open()
