"""The login timeout: how long a client may take until it is known. A loop that stood still does not count.

Timers come before sockets in a turn of the loop, so one that fires late says nothing of the client: what it
sent meanwhile is read first. Nor is it the client's time while its login is being judged, up to a minute.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

__all__ = ["LATE_S", "LoginTime"]

LATE_S: Final = 0.1
"""A timer that fires so late says that the loop was busy, not that the client was silent."""
_JUDGED_S: Final = 60.0
"""How long the gateway may take to judge a login, beyond the client's time for it."""
_LOOK_S: Final = 0.5


class LoginTime:
    """Of one connection."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, judging: Callable[[], bool], abort: Callable[[str], None]
    ) -> None:
        """`judging`: whether the client has said all there is to say; `abort` is told why it is over."""
        self._loop = loop
        self._judging = judging
        self._abort = abort
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, what: str, within_s: float) -> None:
        """From now on; instead of what was begun before. `what` did not happen, the reason will say."""
        self.end()
        due = self._loop.time() + within_s
        self._timer = self._loop.call_at(due, self.is_over, what, due)

    def end(self) -> None:
        """It happened, or need not any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def is_over(self, what: str, due: float = math.inf, left_s: float = _JUDGED_S) -> None:
        """The time is over: end the connection, or look again.

        Args:
            what: The event that did not happen.
            due: When it was due, by the loop's clock; infinite: the loop was late once already.
            left_s: How much longer its judging may take.

        """
        if self._loop.time() - due > LATE_S:
            # Bytes that the client sent meanwhile are read before it is judged, once.
            self._timer = self._loop.call_later(LATE_S, self.is_over, what)
        elif left_s > 0 and self._judging():
            # A hash that takes its time is no fault of the client's.
            self._timer = self._loop.call_later(_LOOK_S, self.is_over, what, math.inf, left_s - _LOOK_S)
        else:
            self._abort(f"{what} in time")
