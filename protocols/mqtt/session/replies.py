"""Replies that wait for the disk, in one queue with those behind them, so that they leave in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.protocols.mqtt.session.host import Host

__all__ = ["Replies"]


class Replies:
    """The replies of one connection that are no acknowledgements of messages."""

    def __init__(self, host: Host, log: Log) -> None:
        self._host = host
        self._log = log
        # An empty deque has 600 bytes: a connection that waits for nothing has none, here and elsewhere.
        self._waiting: deque[tuple[int, bytes, Callable[[], None] | None]] | None = None
        self._awaited = 0
        self.sent = 0
        """Replies that left or wait."""

    def send(self, data: bytes, lsn: int = 0, then: Callable[[], None] | None = None) -> None:
        """Send `data` when `lsn` is durable and every reply before it has left; after it do `then`."""
        self._host.dirty()
        self.sent += 1
        if not self._waiting and lsn <= self._log.synced_lsn:
            self._host.out.write(data)
            if then is not None:
                then()
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((lsn, data, then))
        if lsn > self._awaited:
            self._awaited = lsn
            self._host.await_synced(lsn)

    def release(self) -> None:
        """Send those whose turn has come. Call it when the log has synced."""
        synced = self._log.synced_lsn
        while self._waiting and self._waiting[0][0] <= synced:
            _, data, then = self._waiting.popleft()
            self._host.out.write(data)
            if then is not None:
                then()
        self._waiting = self._waiting or None

    def clear(self) -> None:
        """The connection is over: nothing more is sent."""
        self._waiting = None
