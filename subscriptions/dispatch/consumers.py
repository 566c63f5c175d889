"""The consumers of one queue: their priority, whether they may have credit, and whose turn it is.

A queue may have tens of thousands of consumers. So no operation visits all of them: not joining, not
leaving, and not finding those that take the next messages. For each priority, the highest first, consumers
are in

    ring      those that may have credit, the next one first
    asleep    those that had none when asked; `rouse` moves them to the end of the ring

A single consumer is in neither, and costs this object only.
"""

from __future__ import annotations

import bisect
import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.subscriptions.dispatch.consumer import QueueConsumer

__all__ = ["Consumers", "Turn"]

_Row = OrderedDict["QueueConsumer", None]


class Turn:
    """Consumers with credit, all of one priority, that have their turn together."""

    __slots__ = ("_ring", "consumers", "least", "whole")

    def __init__(self, ring: _Row, consumers: list[QueueConsumer], least: int, whole: bool) -> None:
        self._ring = ring
        self.whole = whole
        """Nobody else of their priority has credit."""
        self.consumers = consumers
        self.least = least
        """Each has credit for so many messages."""

    def ended(self, n: int) -> None:
        """They are about to get `n` messages, one after the other: who comes then is first the next time."""
        given = n % len(self.consumers) if self.whole else n
        for consumer in reversed(self.consumers[given:]):
            self._ring.move_to_end(consumer, last=False)


class _Lot:
    """Consumers to draw from: one is found by its number, and goes by having the last one take its place."""

    __slots__ = ("_at", "consumers")

    def __init__(self, consumers: Iterable[QueueConsumer]) -> None:
        self.consumers = [*consumers]
        self._at = {consumer: at for at, consumer in enumerate(self.consumers)}

    def add(self, consumer: QueueConsumer) -> None:
        self._at[consumer] = len(self.consumers)
        self.consumers.append(consumer)

    def remove(self, consumer: QueueConsumer) -> None:
        self.swap(self._at[consumer], len(self.consumers) - 1)
        self.consumers.pop()
        del self._at[consumer]

    def swap(self, a: int, b: int) -> None:
        one, other = self.consumers[a], self.consumers[b]
        self.consumers[a], self.consumers[b] = other, one
        self._at[one], self._at[other] = b, a

    def drawn(self) -> Iterator[QueueConsumer]:
        """Each once, by lot; what was drawn last may be removed."""
        at = 0
        while at < len(self.consumers):
            self.swap(at, random.randrange(at, len(self.consumers)))
            consumer = self.consumers[at]
            yield consumer
            if self._at.get(consumer) == at:
                at += 1


class _Level:
    """Those of one priority."""

    __slots__ = ("asleep", "lot", "ring")

    def __init__(self) -> None:
        self.ring: _Row = OrderedDict()
        self.asleep: _Row = OrderedDict()
        self.lot: _Lot | None = None
        """Those of the ring, once it was drawn from."""

    def enter(self, consumer: QueueConsumer) -> None:
        """It stands at the end of the ring from now on."""
        self.ring[consumer] = None
        if self.lot is not None:
            self.lot.add(consumer)

    def leave(self, consumer: QueueConsumer) -> None:
        """It stands in the ring no more."""
        del self.ring[consumer]
        if self.lot is not None:
            self.lot.remove(consumer)

    def drawn(self) -> Iterator[QueueConsumer]:
        """Those of the ring by lot, each once; what was drawn last may leave."""
        if self.lot is None:
            self.lot = _Lot(self.ring)
        return self.lot.drawn()

    def rotating(self) -> Iterator[QueueConsumer]:
        """The same in turn; those that stay go to its end."""
        for _ in range(len(self.ring)):
            consumer = next(iter(self.ring))
            self.ring.move_to_end(consumer)
            yield consumer


class Consumers:
    """See the module. `ranked`: priorities count."""

    __slots__ = ("_awake", "_levels", "_ranked", "active", "count")

    def __init__(self, *, ranked: bool) -> None:
        self._ranked = ranked
        self._levels: dict[int, _Level] | None = None
        """By rank, the lowest first; None: one sits alone."""
        self._awake: list[int] = []
        """The ranks with somebody in the ring, ascending."""
        self.active: QueueConsumer | None = None
        """The consumer that gets everything, where one does: the first one; after it left, the next."""
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[QueueConsumer]:
        """The active one, then the others, the highest priority first."""
        if self.active is not None:
            yield self.active
        for _, level in sorted((self._levels or {}).items()):
            for consumer in (*level.ring, *level.asleep):
                if consumer is not self.active:
                    yield consumer

    def __contains__(self, consumer: QueueConsumer) -> bool:
        if self._levels is None:
            return consumer is self.active
        level = self._levels.get(self._rank(consumer))
        return level is not None and (consumer in level.ring or consumer in level.asleep)

    def _rank(self, consumer: QueueConsumer) -> int:
        return -consumer.priority if self._ranked else 0

    # Coming and going

    def add(self, consumer: QueueConsumer) -> None:
        """It comes, behind those of its priority."""
        self.count += 1
        if self.active is None:
            self.active = consumer
            return
        if self._levels is None:
            self._levels = {}
            self._sit(self.active)
        self._sit(consumer)

    def _sit(self, consumer: QueueConsumer) -> None:
        assert self._levels is not None
        rank = self._rank(consumer)
        level = self._levels.get(rank)
        if level is None:
            level = self._levels[rank] = _Level()
        if not level.ring:
            bisect.insort(self._awake, rank)
        level.enter(consumer)

    def remove(self, consumer: QueueConsumer) -> bool:
        """It goes; False: it was not here."""
        if consumer not in self:
            return False
        self.count -= 1
        if self._levels is not None:
            rank = self._rank(consumer)
            level = self._levels[rank]
            if consumer in level.asleep:
                del level.asleep[consumer]
            else:
                level.leave(consumer)
                if not level.ring:
                    self._doze(rank)
            if not (level.ring or level.asleep):
                del self._levels[rank]
        if consumer is self.active:
            self.active = self.first() if self.count else None
        if not self.count:
            self._levels = None
        return True

    def first(self) -> QueueConsumer:
        """Of the highest priority, the one whose turn it is; there is somebody."""
        if self._levels is None:
            assert self.active is not None
            return self.active
        if self._awake:
            return next(iter(self._levels[self._awake[0]].ring))
        return next(iter(self._levels[min(self._levels)].asleep))

    # Credit

    def rouse(self, consumer: QueueConsumer | None = None) -> None:
        """It may have credit again; None: anybody may."""
        if self._levels is None:
            return
        if consumer is None:
            for rank, level in self._levels.items():
                self._wake(rank, level, list(level.asleep))
        else:
            rank = self._rank(consumer)
            its = self._levels.get(rank)
            if its is not None and consumer in its.asleep:
                self._wake(rank, its, [consumer])

    def _wake(self, rank: int, level: _Level, consumers: list[QueueConsumer]) -> None:
        if consumers and not level.ring:
            bisect.insort(self._awake, rank)
        for consumer in consumers:
            del level.asleep[consumer]
            level.enter(consumer)

    def _doze(self, rank: int) -> None:
        del self._awake[bisect.bisect_left(self._awake, rank)]

    def _sleep(self, rank: int, level: _Level, consumer: QueueConsumer) -> None:
        level.leave(consumer)
        level.asleep[consumer] = None
        if not level.ring:
            self._doze(rank)

    def hungry(self) -> Iterator[QueueConsumer]:
        """Those that may have credit."""
        if self._levels is None:
            if self.active is not None:
                yield self.active
            return
        for rank in self._awake:
            yield from self._levels[rank].ring

    def anybody(self) -> bool:
        """Whether somebody has credit."""
        if self._levels is None:
            return self.active is not None and self.active.credit() > 0
        return self.turn(1) is not None

    def turn(self, most: int, *, drawn: bool = False) -> Turn | None:
        """Up to `most` consumers with credit, of the highest priority that has any; None: nobody has.

        `drawn`: they are drawn by lot. There are two consumers at least.
        """
        assert self._levels is not None
        while self._awake:
            rank = self._awake[0]
            level = self._levels[rank]
            chosen: list[QueueConsumer] = []
            least = 0
            whole = len(level.ring) <= most
            for consumer in level.drawn() if drawn else level.rotating():
                credit = consumer.credit()
                if credit <= 0:
                    self._sleep(rank, level, consumer)
                    continue
                least = credit if not chosen else min(least, credit)
                chosen.append(consumer)
                if len(chosen) == most:
                    break
            if chosen:
                return Turn(level.ring, chosen, least, whole)
        return None
