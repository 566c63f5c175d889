"""The order of replies on a channel: what promises durability leaves when the log has it, and nothing
overtakes it.

A reply is an action (encode, attach a consumer ...) and the position it waits for. An action that cannot
finish at once (a get whose message lies on the disk) answers False and calls `go_on` later; the gate stays
shut until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["ReplyOrder"]

Action = Callable[[], bool]
"""Returns True when it is done; False: `go_on` will be called."""


class ReplyOrder:
    """Replies of one channel, in their order."""

    __slots__ = ("_awaited", "_busy", "_waiting", "closed")

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Action]] = deque()
        self._busy = False
        self._awaited = 0
        self.closed = False
        """Nothing leaves any more."""

    @property
    def waiting(self) -> bool:
        return bool(self._waiting) or self._busy

    def submit(self, lsn: int, action: Action, synced: int) -> None:
        """Do `action` when `lsn` is on disk (`synced` is what is there now) and all before it were done."""
        self._waiting.append((lsn, action))
        self._awaited = max(self._awaited, lsn)
        self.release(synced)
        if not self._waiting:
            self._awaited = 0

    def release(self, synced: int) -> None:
        """Do what may leave now that everything up to `synced` is on disk."""
        while self._waiting and not self._busy and not self.closed and self._waiting[0][0] <= synced:
            _, action = self._waiting.popleft()
            self._busy = True
            if not action():
                return
            self._busy = False

    def go_on(self, synced: int) -> None:
        """The action that answered False is done."""
        self._busy = False
        self.release(synced)

    def take_awaited(self) -> int:
        """The highest position that a reply waits for and that was not asked for yet; 0 = none."""
        awaited, self._awaited = self._awaited, 0
        return awaited

    def close(self) -> None:
        """Forget everything."""
        self.closed = True
        self._waiting.clear()
