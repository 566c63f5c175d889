"""Messages that consumers gave back: they come again after a delay, to any consumer.

Those of a cursor that are due at the same moment share a timer, and 8 bytes each is what they cost. A peer
that gives each message a delay of its own would still make a timer for each: when a cursor has `EXACT_MAX` of
them, the moments of further ones are rounded up, by a sixteenth of the delay at most, so that there are a few
hundred more.
"""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING, Final

from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.tick.tick import Tick

__all__ = ["EXACT_MAX", "DelayedRedelivery"]

logger: Final = logging.getLogger("penstock.native")

EXACT_MAX: Final = 1000
"""Timers of a cursor from which on moments are rounded."""


class DelayedRedelivery:
    """See the module. Of one connection; what it began goes on without it."""

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._due: dict[Cursor, dict[int, array[int]]] = {}
        """The seqs of each cursor by the moment they are due, in ms of the loop's clock."""

    @property
    def timers(self) -> int:
        """How many there are."""
        return sum(map(len, self._due.values()))

    def later(self, cursor: Cursor, seq: int, delay_ms: int) -> None:
        """Give it back to the cursor in `delay_ms`, above 0."""
        now_s = self._tick.time()
        due_ms = int(now_s * 1000) + delay_ms
        dues = self._due.setdefault(cursor, {})
        if len(dues) >= EXACT_MAX:
            step = max(1 << delay_ms.bit_length() >> 5, 1)
            due_ms = -(-due_ms // step) * step
        seqs = dues.get(due_ms)
        if seqs is None:
            dues[due_ms] = seqs = array("Q")
            wait_s = delay_ms / 1000 if len(dues) <= EXACT_MAX else due_ms / 1000 - now_s
            self._tick.after(wait_s, lambda: self._come_back(cursor, due_ms))
        seqs.append(seq)

    def _come_back(self, cursor: Cursor, due_ms: int) -> None:
        dues = self._due[cursor]
        seqs = dues.pop(due_ms)
        if not dues:
            del self._due[cursor]
        for seq in seqs:
            guarded(logger, "a message could not be given back", cursor.requeue, seq)
