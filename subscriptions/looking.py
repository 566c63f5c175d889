"""Whether a queue has nothing now: for whoever asks once, and would be told that there is nothing.

A pull whose time is up must not end with nothing while what it asks for is on its way from the disk: no
messages means that there are none. What is being read is waited for, but not for ever: a disk may hang.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.subscriptions.guard import guarded

if TYPE_CHECKING:
    from penstock.subscriptions.queue import Queue

__all__ = ["look"]

_LOG: Final = logging.getLogger("penstock.subscriptions")

_READ_S: Final = 30.0
"""The longest wait for what is being read from the disk."""
_EACH_S: Final = 0.005


def look(queue: Queue, served: Callable[[], bool], told: Callable[[], None]) -> None:
    """Call `told` once: when `served` is true, or when the queue has nothing to give to whoever asks.

    `served` says that who asks has something, or is gone; its outlet is attached and has credit. `told` may
    be called at once.
    """
    tick = queue.tick
    last_s = tick.time() + _READ_S

    def again() -> None:
        if not served():
            # As a turn does: it hands out what has come, or reads on.
            guarded(_LOG, f"{queue!r} failed in its turn", queue.pump)
        if served() or not queue.is_reading or tick.time() > last_s:
            told()
        else:
            tick.after(_EACH_S, again)

    again()
