"""The login timeout: how long a client may take until it is known. See _login_timeout.pyx."""

import asyncio
from typing import Protocol

LATE_S: float
"""A timer that fires so late says that the loop was busy, not that the client was silent."""

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

    def __init__(self, loop: asyncio.AbstractEventLoop, *, judged_s: float = 60.0) -> None:
        """`judged_s`: how long judging a login may take, beyond the client's time."""

    def __len__(self) -> int: ...
    def begin(self, stranger: Stranger, what: str, within_s: float) -> None:
        """From now on; instead of what was begun before. `what` did not happen, the reason will say."""

    def end(self, stranger: Stranger) -> None:
        """It happened, or need not any more."""
