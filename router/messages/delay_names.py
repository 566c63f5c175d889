"""Names that publishers give to delayed messages, to cancel or replace them while they wait.

A name belongs to an exchange. A user who may publish with all key blocks of the message may cancel it by
its name. To others the name is unknown, and free for a message of their own. A new message with the name
replaces the waiting one. When the message is due, its name is free.

    table delay_name   key    digest of vhost, exchange and name, 16 bytes
                       value  for each message: due i64, ms since the epoch | its place in the log u64 |
                              enc u8 | n u16 | n times: size u16, key block; little-endian

A row of an earlier version has due and place alone, and belongs to everybody who may publish to the
exchange. Of more than 16 messages of one name the first ones lose it. Rows of messages that were due are
removed when the next name is given or asked for.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.router.rows import row_key

if TYPE_CHECKING:
    from penstock.log_core.log import Log

__all__ = ["DelayNames", "May", "delay_name"]

_TABLE: Final = "delay_name"
_PLACE: Final = struct.Struct("<qQ")
_KEYS: Final = struct.Struct("<BH")
_U16: Final = struct.Struct("<H")
_SAME_MAX: Final = 16
"""Messages of one name, none of which who gives the next one may cancel."""

May = Callable[[int, bytes], bool]
"""Whether somebody may publish in this encoding by this key block."""


def delay_name(vhost: str, exchange: str, name: str) -> bytes:
    """The entry of a name."""
    return row_key(vhost, exchange, name)


class _Named(NamedTuple):
    """A message that waits with a name."""

    due_ms: int
    place: int
    enc: int
    keys: tuple[bytes, ...]

    def is_for(self, may: May) -> bool:
        return all(may(self.enc, key) for key in self.keys)


class DelayNames:
    """The names of all delayed messages. A name with its message takes some 250 bytes of memory."""

    def __init__(self, log: Log, cancel: Callable[[int, int], bool]) -> None:
        """`cancel` is that of `Delayed`."""
        self._log = log
        self._cancel = cancel
        self._by_due = [(one.due_ms, name) for name, row in log.tables.items(_TABLE) for one in _decoded(row)]
        heapq.heapify(self._by_due)

    def give(self, name: bytes, due_ms: int, lsn: int, enc: int, keys: Sequence[bytes]) -> None:
        """A message that was just scheduled has this name; `cancel` was called before."""
        self._forget_past()
        self._put(name, [*self._get(name)[1 - _SAME_MAX :], _Named(due_ms, lsn, enc, tuple(keys))])
        heapq.heappush(self._by_due, (due_ms, name))

    def cancel(self, name: bytes, may: May) -> bool:
        """Have the message of this name never come; False: none waits that is for such as `may`."""
        self._forget_past()
        named = self._get(name)
        mine = [one for one in named if one.is_for(may)]
        if mine:
            self._put(name, [one for one in named if one not in mine])
        cancelled = [self._cancel(one.due_ms, one.place) for one in mine]
        return any(cancelled)

    def _get(self, name: bytes) -> list[_Named]:
        row = self._log.tables.get(_TABLE, name)
        return [] if row is None else _decoded(row)

    def _put(self, name: bytes, named: list[_Named]) -> None:
        if named:
            self._log.tables.put(_TABLE, name, b"".join(map(_encoded, named)))
        else:
            self._log.tables.delete(_TABLE, name)

    def _forget_past(self) -> None:
        now_ms = self._log.wall_ms()
        while self._by_due and self._by_due[0][0] < now_ms:
            due_ms, name = heapq.heappop(self._by_due)
            named = self._get(name)
            # The name may be of another message by now.
            left = [one for one in named if one.due_ms != due_ms]
            if len(left) < len(named):
                self._put(name, left)


def _encoded(one: _Named) -> bytes:
    parts = [_PLACE.pack(one.due_ms, one.place), _KEYS.pack(one.enc, len(one.keys))]
    for key in one.keys:
        parts += _U16.pack(len(key)), key
    return b"".join(parts)


def _decoded(row: bytes) -> list[_Named]:
    if len(row) == _PLACE.size:
        due_ms, place = _PLACE.unpack(row)
        return [_Named(due_ms, place, 0, ())]
    found, at = [], 0
    while at < len(row):
        due_ms, place = _PLACE.unpack_from(row, at)
        enc, n = _KEYS.unpack_from(row, at + _PLACE.size)
        at += _PLACE.size + _KEYS.size
        keys = []
        for _ in range(n):
            (size,) = _U16.unpack_from(row, at)
            keys.append(row[at + 2 : at + 2 + size])
            at += 2 + size
        found.append(_Named(due_ms, place, enc, tuple(keys)))
    return found
