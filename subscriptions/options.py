"""Options of queues, with the key names of the configuration's section `log`."""

from __future__ import annotations

from penstock.lazy_dataclass import dataclass

__all__ = ["QueueOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """Bounds and intervals of queues."""

    cursor_flush_ms: int = 50
    """Longest time from a settlement to its state record; what a crash may deliver again, in milliseconds."""
    pump_messages: int = 16384
    """Messages one queue hands out before the next one's turn."""
    outstanding_max: int = 1 << 22
    """Messages of one queue that may be out; consumers that acknowledge nothing stop there. 16 bytes each."""
