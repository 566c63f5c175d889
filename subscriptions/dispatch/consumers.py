"""The consumers of one queue: who comes first, who may have credit, and whose turn it is.

A queue may have tens of thousands, so nothing here goes through all of them: neither to join or to leave, nor
to find those that take the next messages. By priority, the highest first, outlets stand in

    ring      those that may have credit, whose turn it is first
    asleep    those that were asked and had none; `rouse` brings them back to the end of the ring

One alone stands in neither, and costs this object only.
"""

from __future__ import annotations

import bisect
import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.subscriptions.dispatch.outlet import Outlet

__all__ = ["Seats", "Turn"]

_Row = OrderedDict["Outlet", None]


class Turn:
    """Outlets with credit, all of one priority, that have their turn together."""

    __slots__ = ("_ring", "least", "outlets", "whole")

    def __init__(self, ring: _Row, outlets: list[Outlet], least: int, whole: bool) -> None:
        self._ring = ring
        self.whole = whole
        """Nobody else of their priority has credit."""
        self.outlets = outlets
        self.least = least
        """Each has credit for so many messages."""

    def ended(self, n: int) -> None:
        """They are about to get `n` messages, one after the other: who comes then is first the next time."""
        given = n % len(self.outlets) if self.whole else n
        for outlet in reversed(self.outlets[given:]):
            self._ring.move_to_end(outlet, last=False)


class _Lot:
    """Outlets to draw from: one is found by its number, and goes by having the last one take its place."""

    __slots__ = ("_at", "outlets")

    def __init__(self, outlets: Iterable[Outlet]) -> None:
        self.outlets = [*outlets]
        self._at = {outlet: at for at, outlet in enumerate(self.outlets)}

    def add(self, outlet: Outlet) -> None:
        self._at[outlet] = len(self.outlets)
        self.outlets.append(outlet)

    def remove(self, outlet: Outlet) -> None:
        self.swap(self._at[outlet], len(self.outlets) - 1)
        self.outlets.pop()
        del self._at[outlet]

    def swap(self, a: int, b: int) -> None:
        one, other = self.outlets[a], self.outlets[b]
        self.outlets[a], self.outlets[b] = other, one
        self._at[one], self._at[other] = b, a

    def drawn(self) -> Iterator[Outlet]:
        """Each once, by lot; what was drawn last may be removed."""
        at = 0
        while at < len(self.outlets):
            self.swap(at, random.randrange(at, len(self.outlets)))
            outlet = self.outlets[at]
            yield outlet
            if self._at.get(outlet) == at:
                at += 1


class _Level:
    """Those of one priority."""

    __slots__ = ("asleep", "lot", "ring")

    def __init__(self) -> None:
        self.ring: _Row = OrderedDict()
        self.asleep: _Row = OrderedDict()
        self.lot: _Lot | None = None
        """Those of the ring, once it was drawn from."""

    def enter(self, outlet: Outlet) -> None:
        """It stands at the end of the ring from now on."""
        self.ring[outlet] = None
        if self.lot is not None:
            self.lot.add(outlet)

    def leave(self, outlet: Outlet) -> None:
        """It stands in the ring no more."""
        del self.ring[outlet]
        if self.lot is not None:
            self.lot.remove(outlet)

    def drawn(self) -> Iterator[Outlet]:
        """Those of the ring by lot, each once; what was drawn last may leave."""
        if self.lot is None:
            self.lot = _Lot(self.ring)
        return self.lot.drawn()

    def rotating(self) -> Iterator[Outlet]:
        """The same in turn; those that stay go to its end."""
        for _ in range(len(self.ring)):
            outlet = next(iter(self.ring))
            self.ring.move_to_end(outlet)
            yield outlet


class Seats:
    """See the module. `ranked`: priorities count."""

    __slots__ = ("_awake", "_levels", "_ranked", "active", "count")

    def __init__(self, *, ranked: bool) -> None:
        self._ranked = ranked
        self._levels: dict[int, _Level] | None = None
        """By rank, the lowest first; None: one sits alone."""
        self._awake: list[int] = []
        """The ranks with somebody in the ring, ascending."""
        self.active: Outlet | None = None
        """Who gets everything where one does: the first to come; when that one left, whoever comes first."""
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Outlet]:
        """The active one, then the others, the highest priority first."""
        if self.active is not None:
            yield self.active
        for _, level in sorted((self._levels or {}).items()):
            for outlet in (*level.ring, *level.asleep):
                if outlet is not self.active:
                    yield outlet

    def __contains__(self, outlet: Outlet) -> bool:
        if self._levels is None:
            return outlet is self.active
        level = self._levels.get(self._rank(outlet))
        return level is not None and (outlet in level.ring or outlet in level.asleep)

    def _rank(self, outlet: Outlet) -> int:
        return -outlet.priority if self._ranked else 0

    # Coming and going

    def add(self, outlet: Outlet) -> None:
        """It comes, behind those of its priority."""
        self.count += 1
        if self.active is None:
            self.active = outlet
            return
        if self._levels is None:
            self._levels = {}
            self._sit(self.active)
        self._sit(outlet)

    def _sit(self, outlet: Outlet) -> None:
        assert self._levels is not None
        rank = self._rank(outlet)
        level = self._levels.get(rank)
        if level is None:
            level = self._levels[rank] = _Level()
        if not level.ring:
            bisect.insort(self._awake, rank)
        level.enter(outlet)

    def remove(self, outlet: Outlet) -> bool:
        """It goes; False: it was not here."""
        if outlet not in self:
            return False
        self.count -= 1
        if self._levels is not None:
            rank = self._rank(outlet)
            level = self._levels[rank]
            if outlet in level.asleep:
                del level.asleep[outlet]
            else:
                level.leave(outlet)
                if not level.ring:
                    self._doze(rank)
            if not (level.ring or level.asleep):
                del self._levels[rank]
        if outlet is self.active:
            self.active = self.first() if self.count else None
        if not self.count:
            self._levels = None
        return True

    def first(self) -> Outlet:
        """Of the highest priority, the one whose turn it is; there is somebody."""
        if self._levels is None:
            assert self.active is not None
            return self.active
        if self._awake:
            return next(iter(self._levels[self._awake[0]].ring))
        return next(iter(self._levels[min(self._levels)].asleep))

    # Credit

    def rouse(self, outlet: Outlet | None = None) -> None:
        """It may have credit again; None: anybody may."""
        if self._levels is None:
            return
        if outlet is None:
            for rank, level in self._levels.items():
                self._wake(rank, level, list(level.asleep))
        else:
            rank = self._rank(outlet)
            its = self._levels.get(rank)
            if its is not None and outlet in its.asleep:
                self._wake(rank, its, [outlet])

    def _wake(self, rank: int, level: _Level, outlets: list[Outlet]) -> None:
        if outlets and not level.ring:
            bisect.insort(self._awake, rank)
        for outlet in outlets:
            del level.asleep[outlet]
            level.enter(outlet)

    def _doze(self, rank: int) -> None:
        del self._awake[bisect.bisect_left(self._awake, rank)]

    def _sleep(self, rank: int, level: _Level, outlet: Outlet) -> None:
        level.leave(outlet)
        level.asleep[outlet] = None
        if not level.ring:
            self._doze(rank)

    def hungry(self) -> Iterator[Outlet]:
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
        """Up to `most` outlets with credit, of the highest priority that has any; None: nobody has.

        `drawn`: they are drawn by lot. There are two outlets at least.
        """
        assert self._levels is not None
        while self._awake:
            rank = self._awake[0]
            level = self._levels[rank]
            chosen: list[Outlet] = []
            least = 0
            whole = len(level.ring) <= most
            for outlet in level.drawn() if drawn else level.rotating():
                credit = outlet.credit()
                if credit <= 0:
                    self._sleep(rank, level, outlet)
                    continue
                least = credit if not chosen else min(least, credit)
                chosen.append(outlet)
                if len(chosen) == most:
                    break
            if chosen:
                return Turn(level.ring, chosen, least, whole)
        return None
