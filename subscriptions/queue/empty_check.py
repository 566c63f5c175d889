"""Answers once whether a queue is empty now, for callers that would be told that there is nothing.

A pull whose time is up must not end with nothing while its messages are being read from the disk: an empty
answer means that there are none. It waits for the read, but not for ever, because a disk may hang.

Many may ask at once, such as 100,000 pulls whose time is up together. They are answered in rounds. In a
round the queue is served once, and again as long as that hands something out. Then the callers are told, a
slice of them in each turn of the loop. Callers that come meanwhile are in the next round.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["SLICE", "EmptyChecks", "look"]

_LOG: Final = logging.getLogger("penstock.subscriptions")

_READ_S: Final = 30.0
"""The longest wait for what is being read from the disk."""
_EACH_S: Final = 0.005
SLICE: Final = 512
"""The consumers that are told in one turn of the loop."""


def look(queue: Queue, served: Callable[[], bool], told: Callable[[], None]) -> None:
    """Call `told` once, soon: when `served` is true, or when the queue has nothing to give to whoever asks.

    `served` says that who asks has something, or is gone; its consumer is attached and has credit.
    """
    if queue.looks is None:
        queue.looks = EmptyChecks(queue)
    queue.looks.add(served, told)


class EmptyChecks:
    """Those that look at one queue. It is there for as long as somebody does."""

    __slots__ = ("_last_s", "_next", "_queue", "_round", "_times")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._round: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()
        self._next: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._times = 0
        """How often the queue may be served yet in this round."""
        self._last_s = 0.0
        queue.tick.after(0, self._begin)

    def add(self, served: Callable[[], bool], told: Callable[[], None]) -> None:
        """Part of `look`."""
        self._next.append((served, told))

    def _begin(self) -> None:
        self._round.extend(self._next)
        self._next.clear()
        self._times = len(self._round)
        self._last_s = self._queue.tick.time() + _READ_S
        self._serve()

    def _serve(self) -> None:
        queue, before = self._queue, self._queue.delivered
        # As a turn does: it hands out what has come, or reads on.
        guarded(_LOG, f"{queue!r} failed in its turn", queue.pump)
        if queue.is_reading and queue.tick.time() <= self._last_s:
            self._wait()
            return
        self._times -= 1
        if queue.delivered != before and self._times > 0:
            queue.tick.after(0, self._serve)
        else:
            self._tell()

    def _wait(self) -> None:
        """Messages being read may be for anybody: those that have something already are told meanwhile."""
        for _ in range(min(len(self._round), SLICE)):
            served, told = self._round.popleft()
            if served():
                guarded(_LOG, "who looked at a queue could not be told", told)
            else:
                self._round.append((served, told))
        if self._round:
            self._queue.tick.after(_EACH_S, self._serve)
        else:
            self._tell()

    def _tell(self) -> None:
        for _ in range(min(len(self._round), SLICE)):
            _, told = self._round.popleft()
            guarded(_LOG, "who looked at a queue could not be told", told)
        if self._round:
            self._queue.tick.after(0, self._tell)
        elif self._next:
            self._queue.tick.after(0, self._begin)
        else:
            self._queue.looks = None
