"""How long a query waits for a gateway that is gone: as long as a restart takes, and more.

Spark repeats a task at once and some times only, on one machine not at all, and it repeats no planning. So
who talks to a gateway waits here for the next attempt.
"""

from __future__ import annotations

import logging
import time
from typing import Final

__all__ = ["PATIENCE_S", "Patience"]

_LOG: Final = logging.getLogger("penstock.spark")

PATIENCE_S: Final = 120.0
_FIRST_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0


class Patience:
    """Of one piece of work, from its first failure on."""

    def __init__(self, seconds: float = PATIENCE_S) -> None:
        self._seconds = seconds
        self._until = 0.0
        self._pause_s = _FIRST_PAUSE_S

    def wait(self, error: Exception) -> None:
        """Let some time pass before the next attempt, or raise the error: it was tried long enough."""
        now = time.monotonic()
        if not self._until:
            if not self._seconds:
                raise error
            self._until = now + self._seconds
            _LOG.warning("%s (it is tried again for %.0f s)", error, self._seconds)
        elif now >= self._until:
            raise error
        time.sleep(min(self._pause_s, max(self._until - now, 0.0)))
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
