"""A failover subscription: one active consumer, and how another one takes over.

The active one is chosen by priority and name (`choosing.place_of`), so it is the same whoever came first.
When another is to take over, the active one gets nothing more and has a second to settle what it holds; then
what is left is void there and comes to the new one, in its order and flagged. All are told who is active.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.subscriptions.choosing import place_of
from penstock.subscriptions.dispatch import Pause, pump_exclusive
from penstock.subscriptions.guard import guarded

if TYPE_CHECKING:
    from penstock.subscriptions._cursor import Cursor
    from penstock.subscriptions.group import Group, Taker

__all__ = ["HANDOVER_S", "Failover"]

HANDOVER_S: Final = 1.0

logger: Final = logging.getLogger("penstock.subscriptions")


class Failover:
    """See the module."""

    def __init__(self, subscription: Group) -> None:
        self._subscription = subscription
        self.active: Taker | None = None
        """Who gets everything."""
        self._places: dict[Taker, tuple[int, str]] = {}
        """Where each stands on the ring: looked for once, for there may be thousands."""
        self._handover: Any = None
        """The timer while the active one settles what it holds."""

    def changed(self) -> None:
        """Consumers came or went; the subscription is woken by that."""
        takers, name = self._subscription.takers, self._subscription.name
        self._places = {one: self._places.get(one) or place_of(one.name, name) for one in takers}
        if self.active not in self._places:
            self.active = None
            self._stop()
        if not takers:
            return
        wanted = min(takers, key=lambda one: (-one.priority, self._places[one]))
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

    def admit(self, taker: Taker) -> None:
        """Before it joins: anybody may."""

    def abandon(self, taker: Taker) -> None:
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
        if former is not None and former in self._subscription.takers:
            self._told(former, former.void)
        self._subscription.cursor.requeue_all()
        self.changed()

    def _told(self, taker: Taker, call: Callable[..., object], *arguments: object) -> None:
        """One that cannot be told is let go of, or it would take part in what it does not know of."""
        if not guarded(logger, "a consumer failed; it is detached", call, *arguments):
            self._subscription.detach(taker)
            taker.cancelled("the consumer failed")

    def _activate(self, taker: Taker) -> None:
        self.active = taker
        self._subscription.put_in_front(taker)
        for one in list(self._subscription.takers):
            self._told(one, one.told, one is taker)
            if self.active is not taker:
                return  # it could not be told, and another one is active
        self._subscription.wake()
