"""A failover subscription: one active consumer, and how another one takes over.

Priority and name choose the active one, so the order of joining does not matter. When another is to take
over, the active one gets nothing more and has a second to settle what it holds. Messages left after that
are invalid there. They come to the new one in order, flagged as redelivered. Three kinds of consumer are
told: the one that becomes active, the one that gives way, and each newcomer that is not active.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.subscriptions.dispatch.assignment import rank_of
from penstock.subscriptions.dispatch.strategies import Pause, pump_exclusive
from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.queue.group import Group, GroupConsumer

__all__ = ["HANDOVER_S", "Failover"]

HANDOVER_S: Final = 1.0
_GONE_MAX: Final = 64
"""Consumers that left and stand in the heap."""

_Rank = tuple[int, int, str, int]
"""By priority, rank on the ring, name, and who came first; the least is active."""

logger: Final = logging.getLogger("penstock.subscriptions")


class Failover:
    """See the module."""

    def __init__(self, subscription: Group) -> None:
        self._subscription = subscription
        self.active: GroupConsumer | None = None
        """The consumer that gets everything."""
        self._ranks: dict[GroupConsumer, _Rank] = {}
        """Where each stands: looked for once, for there may be thousands."""
        self._ranked: list[tuple[_Rank, GroupConsumer]] = []
        """A heap of the same, with some that left."""
        self._count = 0
        self._untold: dict[GroupConsumer, None] = {}
        """Those that came, or gave way, since who is active was told last."""
        self._handover: Any = None
        """The timer while the active one settles what it holds."""

    def joined(self, taker: GroupConsumer) -> None:
        """It consumes from now on."""
        self._count += 1
        rank = -taker.priority, *rank_of(taker.name, self._subscription.name), self._count
        self._ranks[taker] = rank
        heapq.heappush(self._ranked, (rank, taker))
        self._untold[taker] = None
        self._choose()

    def left(self, taker: GroupConsumer) -> None:
        """It does not any more."""
        del self._ranks[taker]
        self._untold.pop(taker, None)
        if len(self._ranked) > 2 * len(self._ranks) + _GONE_MAX:
            self._ranked = [(rank, one) for one, rank in self._ranks.items()]
            heapq.heapify(self._ranked)
        if taker is self.active:
            self.active = None
            self._stop()
        self._choose()

    def _choose(self) -> None:
        """Consumers came or went; the subscription is woken by that."""
        if not self._ranks:
            return
        while self._ranks.get(self._ranked[0][1]) != self._ranked[0][0]:
            heapq.heappop(self._ranked)
        wanted = self._ranked[0][1]
        if self.active is None:
            self._activate(wanted)
        elif wanted is self.active:
            if self._handover is not None:
                self._stop()
                self._activate(wanted)
        elif self._handover is None:
            self._handover = self._subscription.tick.after(HANDOVER_S, self._hand_over)
            self._told(self.active, self.active.told, False)

    def share_out(self, budget: int) -> Pause:
        """Everything to the active one; nothing while another takes over."""
        if self._handover is not None:
            cursor = self._subscription.cursor
            if cursor.outstanding:
                cursor.wake_below = 1
                return Pause.NO_CREDIT
            self._hand_over()
        return pump_exclusive(self._subscription, budget)

    def admit(self, taker: GroupConsumer) -> None:
        """Before it joins: anybody may."""

    def abandon(self, taker: GroupConsumer) -> None:
        """Nobody waits for what another one has."""

    def void(self, former: Cursor) -> None:
        """The subscription goes on elsewhere: who is active stays so."""

    def close(self) -> None:
        """It is deleted."""
        self._stop()

    def _stop(self) -> None:
        if self._handover is not None:
            self._handover.cancel()
            self._handover = None

    def _hand_over(self) -> None:
        self._stop()
        former, self.active = self.active, None
        if former is not None and former in self._ranks:
            self._told(former, former.void)
            if former in self._ranks:
                self._untold[former] = None
        self._subscription.cursor.requeue_all()
        self._choose()

    def _told(self, taker: GroupConsumer, call: Callable[..., object], *arguments: object) -> None:
        """One that cannot be told is let go of, or it would take part in what it does not know of."""
        if not guarded(logger, "a consumer failed; it is detached", call, *arguments):
            self._subscription.detach(taker)
            taker.cancelled("the consumer failed")

    def _activate(self, taker: GroupConsumer) -> None:
        self.active = taker
        self._subscription.put_in_front(taker)
        untold, self._untold = self._untold, {}
        untold[taker] = None
        for one in [*untold]:
            if one in self._ranks:
                self._told(one, one.told, one is taker)
            del untold[one]
            if self.active is not taker:
                # It could not be told, and another one is active.
                self._untold.update((one, None) for one in untold if one in self._ranks)
                return
        self._subscription.wake()
