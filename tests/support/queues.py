"""Queues without sockets: a clock and a loop that the test moves, consumers that keep what they get."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.log import Log
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.queues import Queues
from penstock.subscriptions.tick.tick import Tick


class Clock:
    """Seconds since the epoch, moved by the test."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Handle:
    """A scheduled call."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """An event loop without sockets: `turn` runs what is due, `advance` moves its time."""

    def __init__(self) -> None:
        self._now = 0.0
        self._soon: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._later: list[tuple[float, int, Handle, Callable[..., Any], tuple[Any, ...]]] = []
        self._count = 0

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self._soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle()
        self._count += 1
        heapq.heappush(self._later, (self._now + delay, self._count, handle, callback, args))
        return handle

    def turn(self) -> int:
        """Run what is due now, once; how many calls that were."""
        while self._later and self._later[0][0] <= self._now:
            _, _, handle, callback, args = heapq.heappop(self._later)
            if not handle.cancelled:
                self._soon.append((callback, args))
        soon, self._soon = self._soon, []
        for callback, args in soon:
            callback(*args)
        return len(soon)

    def settle(self, turns_max: int = 1000) -> int:
        """Turn until nothing is due; how many turns that took."""
        for turn in range(turns_max):
            if not self.turn():
                return turn
        raise AssertionError(f"still busy after {turns_max} turns")

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self.settle()


class Consumer:
    """A consumer that keeps what it gets, in order."""

    def __init__(self, queue: Queue, credit: int = 10**9, *, priority: int = 0, no_ack: bool = False) -> None:
        self.queue = queue
        self.left = credit
        self.priority = priority
        self.no_ack = no_ack
        self.capacity = 10**9
        """Messages its output has room for, of which `credit` knows nothing."""
        self.got: list[int] = []
        """Positions."""
        self.held: list[int] = []
        """Seqs that are not settled yet."""
        self.flags: list[bool] = []
        """The redelivered flag of each."""
        self.reasons: list[str] = []

    def credit(self) -> int:
        return self.left

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        mine = cursor.records()[first::step][: self.capacity]
        assert len(mine) <= self.left
        self.capacity -= len(mine)
        for seq, position, _, _, redelivered in mine:
            self.got.append(position)
            self.flags.append(redelivered)
            if self.no_ack:
                cursor.settle(seq)
            else:
                self.held.append(seq)
                self.left -= 1
        return len(mine)

    def cancelled(self, reason: str) -> None:
        self.reasons.append(reason)

    def ack(self, n: int = 10**9) -> None:
        """Settle the first n held, and say that there is credit again."""
        done, self.held = self.held[:n], self.held[n:]
        for seq in done:
            self.queue.cursor.settle(seq)
        self.left += len(done)
        self.queue.credit_gained()


class World:
    """A log, a tick on a loop without sockets, queues; and what a publisher does."""

    def __init__(self, log: Log, loop: Loop) -> None:
        self.log = log
        self.loop = loop
        self.tick = Tick(log, loop)
        self.queues = Queues(log, self.tick)

    def publish(self, *feeds: Feed, n: int = 1, flags: int = PERSISTENT) -> list[int]:
        """Append n records to the feeds; their positions. Written at the end of the turn."""
        target = self.log.target(feeds, False)
        self.tick.schedule()
        return [self.log.appender.append_record(0, target, body=b"body", flags=flags) for _ in range(n)]

    def queue(self, name: str, *feeds: Feed, durable: bool = False, kind: Kind = Kind.SHARED) -> Queue:
        queue = self.queues.create(name, "/", durable=durable, kind=kind)
        for feed in feeds:
            queue.join(feed)
        return queue
