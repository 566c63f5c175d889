"""Names that publishers give to delayed messages, to cancel or replace them while they wait.

A name is one of an exchange. Giving it again replaces the message that has it. When the message is due, its
name is free.

    table delay_name   key    digest of vhost, exchange and name, 16 bytes
                       value  due i64, ms since the epoch | its place in the log u64

Rows of messages that were due are deleted when the next name is given or asked for.
"""

from __future__ import annotations

import heapq
import struct
from typing import TYPE_CHECKING, Final

from penstock.router.metadata import row_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log_core.log import Log

__all__ = ["DelayNames", "delay_name"]

_TABLE: Final = "delay_name"
_ROW: Final = struct.Struct("<qQ")


def delay_name(vhost: str, exchange: str, name: str) -> bytes:
    """What stands for a name."""
    return row_key(vhost, exchange, name)


class DelayNames:
    """The names of all delayed messages. A name with its message takes some 200 bytes of memory."""

    def __init__(self, log: Log, cancel: Callable[[int, int], bool]) -> None:
        """`cancel` is that of `Delayed`."""
        self._log = log
        self._cancel = cancel
        self._by_due = [(_ROW.unpack(row)[0], name) for name, row in log.tables.items(_TABLE)]
        heapq.heapify(self._by_due)

    def give(self, name: bytes, due_ms: int, lsn: int) -> None:
        """A message that was just scheduled has this name."""
        self._forget_past()
        self._log.tables.put(_TABLE, name, _ROW.pack(due_ms, lsn))
        heapq.heappush(self._by_due, (due_ms, name))

    def cancel(self, name: bytes) -> bool:
        """Have the message of this name never come; False when none waits."""
        self._forget_past()
        row = self._log.tables.get(_TABLE, name)
        if row is None:
            return False
        self._log.tables.delete(_TABLE, name)
        return self._cancel(*_ROW.unpack(row))

    def _forget_past(self) -> None:
        now_ms = self._log.wall_ms()
        while self._by_due and self._by_due[0][0] < now_ms:
            due_ms, name = heapq.heappop(self._by_due)
            row = self._log.tables.get(_TABLE, name)
            # The name may be of another message by now.
            if row is not None and _ROW.unpack(row)[0] == due_ms:
                self._log.tables.delete(_TABLE, name)
