"""The send window of a producer: senders wait in order until it may have more in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.protocols.native.codec._gathering import Gathering
    from penstock.sdk.errors import ClientError

__all__ = ["SendWindow"]


class SendWindow:
    """At most `gathering.buffer_bytes` may be under way; bytes promised to those who wait count as well."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def is_there(self, size: int) -> bool:
        """Whether a message of `size` bytes may be sent by who comes now."""
        return not self._waiting and self._gathering.has_room(size)

    async def wait(self, size: int) -> None:
        """Wait for one's turn to send a message of `size` bytes, which is to be added at once.

        Raises what `fail` was called with.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size))
        self.make()
        try:
            await turn
        except BaseException:
            if not turn.cancelled() and turn.exception() is None:
                self._gathering.under_way -= size
            self.make()  # for those behind
            raise
        self._gathering.under_way -= size

    def make(self) -> None:
        """Let those send that waited longest, as many as fit."""
        while self._waiting:
            turn, size = self._waiting[0]
            if not turn.done():
                if not self._gathering.has_room(size):
                    break
                self._gathering.under_way += size
                turn.set_result(None)
            self._waiting.popleft()

    def fail(self, error: ClientError) -> None:
        """Nobody may send any more."""
        waiting, self._waiting = self._waiting, deque()
        for turn, _ in waiting:
            if not turn.done():
                turn.set_exception(error)
