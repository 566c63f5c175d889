"""Retries of a request while the gateway is gone, for longer than a restart takes.

Spark repeats a failed task a few times and without a pause. On one machine it repeats none, and it never
repeats planning. So each reader or writer that talks to a gateway waits here before its next attempt.
"""

from __future__ import annotations

import logging
import time
from typing import Final

__all__ = ["RETRY_WINDOW_S", "RetryWindow"]

_LOG: Final = logging.getLogger("penstock.spark")

RETRY_WINDOW_S: Final = 120.0
_FIRST_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0


class RetryWindow:
    """The time in which one piece of work is retried; it begins with the first failure."""

    def __init__(self, seconds: float = RETRY_WINDOW_S) -> None:
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
