"""The memory of all connections' buffers together: one budget for the process.

Each connection has its own high-water mark. When many peers do not take their output, the marks together may
still be more than there is memory for: then the mark of all is halved, each second, until the sum fits, and
those who took nothing since the last look lose their connection, the largest first. When there is room again
the mark grows back. Nothing is counted per message: listeners report once a second what their connections
hold.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Buffers"]

_MARK_MIN: Final = 16 * 1024
_EACH_S: Final = 0.9
"""Least time between two changes of the mark; listeners report each second, at different times."""


class Buffers:
    """See the module text."""

    def __init__(self, budget_bytes: int = 0, mark_bytes: int = 1 << 30) -> None:
        """`budget_bytes` for all connections, 0 = no limit; `mark_bytes` is the mark while there is room."""
        self._budget = budget_bytes
        self._mark_max = mark_bytes
        self.mark = mark_bytes
        """High-water mark of each connection's output now; its own may be less."""
        self.surplus = 0
        """Bytes by which the connections are over the budget, as far as is known; 0 = they are within."""
        self._held: dict[object, int] = {}
        self._changed_at = float("-inf")

    def report(self, listener: object, held: int, now: float) -> None:
        """Set the bytes that the connections of `listener` hold together at loop time `now`; 0 forgets it."""
        if held:
            self._held[listener] = held
        else:
            self._held.pop(listener, None)
        total = sum(self._held.values())
        if not self._budget:
            return
        self.surplus = max(total - self._budget, 0)
        if now - self._changed_at < _EACH_S:
            return
        if self.surplus and self.mark > _MARK_MIN:
            self.mark = max(self.mark // 2, _MARK_MIN)
            self._changed_at = now
        elif total < self._budget // 2 and self.mark < self._mark_max:
            self.mark = min(self.mark * 2, self._mark_max)
            self._changed_at = now

    def cut(self, held: int) -> None:
        """A connection that held so much was dropped."""
        self.surplus = max(self.surplus - held, 0)
