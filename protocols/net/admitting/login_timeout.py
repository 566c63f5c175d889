"""The login timeout: how long a client may take until it is known. A loop that stood still does not count.

Timers come before sockets in a turn of the loop, so one that fires late says nothing of the clients: what
they sent meanwhile is read first. Nor is it a client's time while its bytes wait to be read, as in a storm of
connects, or while its login is being judged, up to a minute.

One timer serves all connections of a front end, since nearly all of them are known long before their time is
over. It fires when the first of those that wait is due, or later: a client has up to 50 ms more.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final, Protocol

__all__ = ["LATE_S", "LoginTimes"]

LATE_S: Final = 0.1
"""A timer that fires so late says that the loop was busy, not that the client was silent."""
_JUDGED_S: Final = 60.0
"""How long the gateway may take to judge a login, beyond the client's time for it."""
_LOOK_S: Final = 0.5
_TOGETHER_S: Final = 0.05


class Stranger(Protocol):
    """A connection whose client is not known yet."""

    @property
    def judging(self) -> bool:
        """Whether the client has said all there is to say."""

    @property
    def unread(self) -> bool:
        """Whether it has said something that nobody has read yet."""

    def abort(self, reason: str) -> None: ...


class LoginTimes:
    """Of all connections of a front end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, judged_s: float = _JUDGED_S) -> None:
        """`judged_s`: how long judging a login may take, beyond the client's time."""
        self._loop = loop
        self._judged_s = judged_s
        self._waiting: dict[Stranger, tuple[str, float, float]] = {}
        """With what did not happen yet, when it is due, and when it is over whatever the gateway does."""
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, stranger: Stranger, what: str, within_s: float) -> None:
        """From now on; instead of what was begun before. `what` did not happen, the reason will say."""
        due = self._loop.time() + within_s
        self._waiting[stranger] = what, due, due + self._judged_s
        if due < self._at:
            self._arm(due)

    def end(self, stranger: Stranger) -> None:
        """It happened, or need not any more."""
        self._waiting.pop(stranger, None)

    def _arm(self, at: float, due: float | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = self._loop.call_at(at, self._look, at if due is None else due)

    def _look(self, due: float) -> None:
        """End those whose time is over; `due`: when this was to happen. Infinite: it was late once."""
        self._timer, self._at = None, math.inf
        now = self._loop.time()
        if not self._waiting:
            return
        if now - due > LATE_S:
            # Bytes that clients sent meanwhile are read before they are judged, once.
            self._arm(now + LATE_S, math.inf)
            return
        following = math.inf
        for stranger, (what, at, last) in list(self._waiting.items()):
            if at > now:
                following = min(following, at)
            elif last > now and (stranger.judging or stranger.unread):
                # A hash that takes its time is no fault of the client's, and neither is a storm of others.
                following = min(following, now + _LOOK_S, last)
            else:
                del self._waiting[stranger]
                stranger.abort(f"{what} in time")
        if following < math.inf:
            self._arm(max(following, now + _TOGETHER_S))
