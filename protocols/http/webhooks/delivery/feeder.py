"""Feeds a webhook with messages: as a consumer of a queue, a subscription, a stream's reader or a replay.

A message that it took stays out in the queue until the webhook settles it. It takes no more than the webhook
has room for, and nothing while the webhook rests as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.shared.keys import Keyed
from penstock.protocols.http.shared.taking import Delivery, each_delivery
from penstock.protocols.http.shared.traffic import Messages
from penstock.subscriptions.streams.replay import Replay
from penstock.subscriptions.streams.stream import Reader

if TYPE_CHECKING:
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Feeder", "Held"]


@dataclass(slots=True, eq=False)
class Held:
    """A message that a webhook holds."""

    delivery: Delivery
    feeder: Feeder


class Feeder(Keyed):
    """See the module: the consumer, and what a subscription takes for a consumer."""

    def __init__(
        self,
        name: str,
        messages: Messages,
        queue: Queue,
        capacity: Callable[[], int],
        took: Callable[[list[Held]], None],
        lost: Callable[[Feeder, str], None],
        *,
        last_lsn: int = 0,
        most: int = 0,
    ) -> None:
        """`last_lsn` > 0: a replay that ends there. `most` > 0: it ends after so many messages."""
        super().__init__(name, messages)
        self.queue = queue
        self.ended = False
        """It has brought everything."""
        self._last_lsn = last_lsn
        self._left = most or None
        self._capacity = capacity
        self._took = took
        self._lost = lost
        self._out: dict[int, Delivery] = {}

    @property
    def is_finished(self) -> bool:
        """It has brought everything, and all of it is settled."""
        return self.ended and not self._out

    def credit(self) -> int:
        if self.ended:
            return 0
        capacity = self._capacity()
        return capacity if self._left is None else min(capacity, self._left)

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        held = []
        took = 0
        for delivery in each_delivery(self.queue, cursor, first, step):
            took += 1
            if self._last_lsn and delivery.record.lsn > self._last_lsn:
                self.ended = True
                delivery.settle()
                continue
            self._out[delivery.seq] = delivery
            held.append(Held(delivery, self))
        if self._left is not None:
            self._left -= len(held)
            self.ended = self._left == 0
        self._took(held)
        return took

    def void(self) -> None:
        """The subscription goes on elsewhere: what it took may be sent, but settling it does nothing."""
        self._out.clear()

    def cancelled(self, reason: str) -> None:
        self._out.clear()
        self._lost(self, reason)

    # The webhook's

    def settle(self, held: Held) -> None:
        """It is done."""
        if self._out.get(held.delivery.seq) is held.delivery:
            del self._out[held.delivery.seq]
            held.delivery.settle()

    def stop(self) -> None:
        """Take nothing more, and give back what is out."""
        self.queue.detach(self)
        # A reader has nothing to give back: its place is kept, and it is read again from there.
        if not isinstance(self.queue, Reader | Replay):
            for delivery in self._out.values():
                delivery.requeue()
        self._out.clear()
