# cython: auto_pickle=False, nonecheck=True
"""The consumers of one queue: their priority, whether they may have credit, and whose turn it is.

A queue may have tens of thousands of consumers. So no operation visits all of them: not joining, not
leaving, and not finding those that take the next messages. For each priority, the highest first, consumers
are in

    ring      those that may have credit, the next one first
    asleep    those that had none when asked; `rouse` moves them to the end of the ring

A single consumer is in neither, and costs this object only.
"""

import bisect
import random
from collections import OrderedDict


cdef class Turn:
    def __init__(self, ring not None, list consumers not None, least, bint whole):
        self._ring = ring
        self.whole = whole
        self.consumers = consumers
        self.least = least

    def ended(self, Py_ssize_t n):
        given = n % len(self.consumers) if self.whole else n
        for consumer in reversed(self.consumers[given:]):
            self._ring.move_to_end(consumer, last=False)


class Lot:
    """Consumers to draw from: one is found by its number, and goes by having the last one take its place."""

    __slots__ = ("_at", "consumers")

    def __init__(self, consumers):
        self.consumers = [*consumers]
        self._at = {consumer: at for at, consumer in enumerate(self.consumers)}

    def add(self, consumer):
        self._at[consumer] = len(self.consumers)
        self.consumers.append(consumer)

    def remove(self, consumer):
        self.swap(self._at[consumer], len(self.consumers) - 1)
        self.consumers.pop()
        del self._at[consumer]

    def swap(self, a, b):
        one, other = self.consumers[a], self.consumers[b]
        self.consumers[a], self.consumers[b] = other, one
        self._at[one], self._at[other] = b, a

    def drawn(self):
        """Each once, by lot; what was drawn last may be removed."""
        at = 0
        while at < len(self.consumers):
            self.swap(at, random.randrange(at, len(self.consumers)))
            consumer = self.consumers[at]
            yield consumer
            if self._at.get(consumer) == at:
                at += 1


class Level:
    """Those of one priority."""

    __slots__ = ("asleep", "lot", "ring")

    def __init__(self):
        self.ring = OrderedDict()
        self.asleep = OrderedDict()
        self.lot = None         # those of the ring, once it was drawn from

    def enter(self, consumer):
        """It stands at the end of the ring from now on."""
        self.ring[consumer] = None
        if self.lot is not None:
            self.lot.add(consumer)

    def leave(self, consumer):
        """It stands in the ring no more."""
        del self.ring[consumer]
        if self.lot is not None:
            self.lot.remove(consumer)

    def drawn(self):
        """Those of the ring by lot, each once; what was drawn last may leave."""
        if self.lot is None:
            self.lot = Lot(self.ring)
        return self.lot.drawn()

    def rotating(self):
        """The same in turn; those that stay go to its end."""
        for _ in range(len(self.ring)):
            consumer = next(iter(self.ring))
            self.ring.move_to_end(consumer)
            yield consumer


cdef class Consumers:
    def __init__(self, *, bint ranked):
        self._ranked = ranked

    def __len__(self):
        return self.count

    def __iter__(self):
        if self.active is not None:
            yield self.active
        for _, level in sorted((self._levels or {}).items()):
            for consumer in (*level.ring, *level.asleep):
                if consumer is not self.active:
                    yield consumer

    def __contains__(self, consumer):
        return self.has(consumer)

    cdef bint has(self, consumer) except -1:
        if self._levels is None:
            return consumer is self.active
        level = self._levels.get(self._rank(consumer))
        return level is not None and (consumer in level.ring or consumer in level.asleep)

    cdef object _rank(self, consumer):
        return -consumer.priority if self._ranked else 0

    # Coming and going

    cpdef add(self, consumer):
        self.count += 1
        if self.active is None:
            self.active = consumer
            return
        if self._levels is None:
            self._levels = {}
            self._awake = []
            self._sit(self.active)
        self._sit(consumer)

    cdef int _sit(self, consumer) except -1:
        rank = self._rank(consumer)
        level = self._levels.get(rank)
        if level is None:
            level = self._levels[rank] = Level()
        if not level.ring:
            bisect.insort(self._awake, rank)
        level.enter(consumer)
        return 0

    cpdef bint remove(self, consumer) except -1:
        if not self.has(consumer):
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

    def first(self):
        if self._levels is None:
            return self.active
        if self._awake:
            return next(iter(self._levels[self._awake[0]].ring))
        return next(iter(self._levels[min(self._levels)].asleep))

    # Credit

    cpdef rouse(self, consumer=None):
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

    cdef int _wake(self, rank, level, list consumers) except -1:
        if consumers and not level.ring:
            bisect.insort(self._awake, rank)
        for consumer in consumers:
            del level.asleep[consumer]
            level.enter(consumer)
        return 0

    cdef int _doze(self, rank) except -1:
        del self._awake[bisect.bisect_left(self._awake, rank)]
        return 0

    cdef int _sleep(self, rank, level, consumer) except -1:
        level.leave(consumer)
        level.asleep[consumer] = None
        if not level.ring:
            self._doze(rank)
        return 0

    def hungry(self):
        if self._levels is None:
            if self.active is not None:
                yield self.active
            return
        for rank in self._awake:
            yield from self._levels[rank].ring

    def anybody(self):
        if self._levels is None:
            return self.active is not None and self.active.credit() > 0
        return self.turn(1) is not None

    def turn(self, Py_ssize_t most, *, bint drawn=False):
        while self._awake:
            rank = self._awake[0]
            level = self._levels[rank]
            chosen = []
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
