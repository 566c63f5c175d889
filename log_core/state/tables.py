"""Tables: the durable key-value state of the layers above, and of the log itself.

Each table is a dict in memory. If the values of a table exceed 32 MiB, further ones go to a scratch file
(`spill`). Each change is also a record of a state batch, in log order with the messages around it.
Checkpoints write the dicts out whole.

The owner of a table defines its keys and values. Two tables are special, because their keys are feed ids
(`feed_key`): recovery rebuilds exactly the feeds with a row in the table `feed`. Feeds with a row in
`feed_keeps`, the log's own, are rebuilt with their transient records, too.

A change as a record: key block = | table name length u8 | table name | key |, body = value, flag TOMBSTONE
= deletion.
"""

from __future__ import annotations

import logging
from collections.abc import ItemsView, KeysView, Mapping
from pathlib import Path
from typing import Final, cast

from penstock.log_core.state._rows import RowLog, TableRows, split_key
from penstock.log_core.state.spill import Spill, SpilledRows

__all__ = ["FEED_TABLE", "KEEPS_TABLE", "Tables", "feed_key", "feed_of_key", "join_key", "split_key"]

FEED_TABLE: Final = "feed"
KEEPS_TABLE: Final = "feed_keeps"
SPILL_FROM: Final = 32 << 20
"""Bytes of values that a table keeps in memory before further ones are spilled."""

logger: Final = logging.getLogger("penstock.log")


def feed_key(feed_id: int) -> bytes:
    """The key of a feed's row in the table `feed`: its id, 4 bytes big-endian (so that keys sort as ids)."""
    return feed_id.to_bytes(4, "big")


def feed_of_key(key: bytes) -> int:
    """The feed id of a key made by `feed_key`."""
    return int.from_bytes(key, "big")


def join_key(table: str, key: bytes) -> bytes:
    """The key block of a state record."""
    name = table.encode()
    return bytes((len(name),)) + name + key


class Tables(TableRows):
    """Named tables of bytes to bytes; reads see every change at once, durable or not."""

    def __init__(self, appender: RowLog, folder: Path | None = None) -> None:
        """`folder` is where large tables spill; None = they stay in memory."""
        super().__init__(appender, spills=folder is not None, spill_from=SPILL_FROM)
        self._folder = folder
        self._pins = 0

    def _spilled(self, value: bytes) -> bytes | int:
        assert self._folder is not None
        try:
            if self._spill is None:
                self._spill = Spill(self._folder)
            return self._spill.put(value)
        except OSError as error:
            # A full disk: memory has to do, and publishers are stopped for the disk anyway.
            logger.warning("a row stays in memory: %s", error)
            return value

    def items(self, table: str) -> ItemsView[bytes, bytes]:
        """All rows of a table, in no order; a live view, so not to be walked while it is changed."""
        return _items(self._rows(table), self._spill)

    def keys(self, table: str) -> KeysView[bytes]:
        """All keys of a table; a live view."""
        return self._rows(table).keys()

    def _rows(self, table: str) -> dict[bytes, bytes | int]:
        found = self._tables.get(table)
        return {} if found is None else found.rows

    # Recovery and checkpoints

    def clear(self) -> None:
        """Forget everything."""
        self._tables.clear()
        self.close()

    def snapshot(self) -> dict[str, ItemsView[bytes, bytes]]:
        """The rows of all tables as they are now, for another thread, until `release`. Raises OSError."""
        if self._spill is not None:
            self._spill.pin()
            self._pins += 1
        return {
            name: _items(table.rows.copy(), self._spill) for name, table in self._tables.items() if table.rows
        }

    def release(self) -> None:
        """The result of `snapshot` is not needed any more."""
        if self._pins:
            assert self._spill is not None
            self._pins -= 1
            self._spill.unpin()

    def close(self) -> None:
        """Let go of the scratch file; nothing is read after it."""
        if self._spill is not None:
            self._spill.close()
            self._spill = None
            self._pins = 0


def _items(rows: Mapping[bytes, bytes | int], spill: Spill | None) -> ItemsView[bytes, bytes]:
    if spill is not None:
        return SpilledRows(rows, spill)
    return cast("Mapping[bytes, bytes]", rows).items()
