"""Tables: the durable key-value state of the layers above, and of the log itself.

Owns a dict per table in memory. Each change is also a record of a state batch, in log order with the
messages around it; checkpoints write the dicts out whole. What keys and values mean is the business of
whoever owns the table, except for the table `feed`, whose keys are feed ids (`feed_key`): recovery
rebuilds exactly the feeds that have a row there.

A change as a record:  key block = | table name length u8 | table name | key |, body = value,
flag TOMBSTONE = deletion.
"""

from __future__ import annotations

from collections.abc import ItemsView, KeysView
from typing import Final

from penstock.log_core._batch import Appender

__all__ = ["FEED_TABLE", "Tables", "feed_key", "feed_of_key", "join_key", "split_key"]

FEED_TABLE: Final = "feed"
_KEY_MAX: Final = 0xFFFF


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


def split_key(block: bytes) -> tuple[str, bytes]:
    """`join_key` undone: (table, key). Raises ValueError when `block` is no such key block."""
    if not block or len(block) < 1 + block[0]:
        raise ValueError("a state key shorter than its table name")
    return block[1 : 1 + block[0]].decode(), block[1 + block[0] :]


class Tables:
    """Named tables of bytes to bytes; reads see every change at once, durable or not."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._tables: dict[str, dict[bytes, bytes]] = {}

    def put(self, table: str, key: bytes, value: bytes) -> int:
        """Set a row. Returns the LSN of the change; wait for it with `Log.when_synced`.

        Table name and key may have 65534 bytes together. Puts between `with log.unit()` are one atomic unit.
        """
        lsn = self._appender.append_state(join_key(table, key), value)
        # A copy of its own size: what some encoders (orjson) return keeps a buffer of 4 KiB behind it.
        self._tables.setdefault(table, {})[key] = bytes(memoryview(value))
        return lsn

    def delete(self, table: str, key: bytes) -> int:
        """Remove a row; returns the LSN of the change, or 0 (nothing logged) when there was none."""
        rows = self._tables.get(table)
        if rows is None or key not in rows:
            return 0
        lsn = self._appender.append_state(join_key(table, key), b"", tombstone=True)
        del rows[key]
        return lsn

    def get(self, table: str, key: bytes) -> bytes | None:
        """The row's value, or None."""
        rows = self._tables.get(table)
        return None if rows is None else rows.get(key)

    def items(self, table: str) -> ItemsView[bytes, bytes]:
        """All rows of a table, in no order; a live view, so not to be walked while it is changed."""
        return self._tables.get(table, {}).items()

    def keys(self, table: str) -> KeysView[bytes]:
        """All keys of a table; a live view."""
        return self._tables.get(table, {}).keys()

    # Recovery and checkpoints

    def apply(self, block: bytes, value: bytes | None) -> tuple[str, bytes]:
        """Repeat a change read from the log (`value` None = deletion); its table and key."""
        table, key = split_key(block)
        if value is None:
            self._tables.setdefault(table, {}).pop(key, None)
        else:
            self._tables.setdefault(table, {})[key] = value
        return table, key

    def clear(self) -> None:
        """Forget everything."""
        self._tables.clear()

    def snapshot(self) -> dict[str, dict[bytes, bytes]]:
        """A shallow copy of all tables."""
        return {table: rows.copy() for table, rows in self._tables.items() if rows}
