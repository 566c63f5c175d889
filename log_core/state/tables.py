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

import functools
import logging
from collections.abc import ItemsView, KeysView, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from penstock.log_core.state.spill import Spill, SpilledRows

if TYPE_CHECKING:
    from penstock.log_core.batch._appender import Appender

__all__ = ["FEED_TABLE", "KEEPS_TABLE", "Tables", "feed_key", "feed_of_key", "join_key", "split_key"]

FEED_TABLE: Final = "feed"
KEEPS_TABLE: Final = "feed_keeps"
SPILL_FROM: Final = 32 << 20
"""Bytes of values that a table keeps in memory before further ones are spilled."""
_SPILL_LEAST: Final = 48
"""A value of so many bytes costs no more than its locator."""
_KEY_MAX: Final = 0xFFFF

logger: Final = logging.getLogger("penstock.log")


def feed_key(feed_id: int) -> bytes:
    """The key of a feed's row in the table `feed`: its id, 4 bytes big-endian (so that keys sort as ids)."""
    return feed_id.to_bytes(4, "big")


def feed_of_key(key: bytes) -> int:
    """The feed id of a key made by `feed_key`."""
    return int.from_bytes(key, "big")


def join_key(table: str, key: bytes) -> bytes:
    """The key block of a state record."""
    return _key_head(table) + key


@functools.cache  # there are few tables
def _key_head(table: str) -> bytes:
    name = table.encode()
    return bytes((len(name),)) + name


def split_key(block: bytes) -> tuple[str, bytes]:
    """`join_key` undone: (table, key). Raises ValueError when `block` is no such key block."""
    if not block or len(block) < 1 + block[0]:
        raise ValueError("a state key shorter than its table name")
    return block[1 : 1 + block[0]].decode(), block[1 + block[0] :]


class Tables:
    """Named tables of bytes to bytes; reads see every change at once, durable or not."""

    def __init__(self, appender: Appender, folder: Path | None = None) -> None:
        """`folder` is where large tables spill; None = they stay in memory."""
        self._appender = appender
        self._folder = folder
        self._tables: dict[str, dict[bytes, bytes | int]] = {}
        """Values, or locators of values that are spilled."""
        self._weights: dict[str, int] = {}
        """Bytes of the values that each table has in memory."""
        self._spill: Spill | None = None
        self._pins = 0

    def put(self, table: str, key: bytes, value: bytes) -> int:
        """Set a row. Returns the LSN of the change; wait for it with `Log.when_synced`.

        Table name and key may have 65534 bytes together. Puts between `with log.unit()` are one atomic unit.
        """
        lsn = self._appender.append_state(join_key(table, key), value)
        # A copy of its own size: what some encoders (orjson) return keeps a buffer of 4 KiB behind it.
        self._set(table, key, bytes(memoryview(value)))
        return lsn

    def _set(self, table: str, key: bytes, value: bytes) -> None:
        rows = self._tables.setdefault(table, {})
        weight = self._weights.get(table, 0)
        before = rows.get(key)
        if before is not None:
            weight -= self._let_go(before)
        place: bytes | int = value
        if weight > SPILL_FROM and len(value) > _SPILL_LEAST and self._folder is not None:
            try:
                if self._spill is None:
                    self._spill = Spill(self._folder)
                place = self._spill.put(value)
            except OSError as error:
                # A full disk: memory has to do, and publishers are stopped for the disk anyway.
                logger.warning("a row stays in memory: %s", error)
        rows[key] = place
        self._weights[table] = weight + (len(place) if isinstance(place, bytes) else 0)

    def _let_go(self, place: bytes | int) -> int:
        """A value is replaced or deleted: the bytes of memory it had."""
        if isinstance(place, int):
            assert self._spill is not None
            self._spill.drop(place)
            return 0
        return len(place)

    def delete(self, table: str, key: bytes) -> int:
        """Remove a row; returns the LSN of the change, or 0 (nothing logged) when there was none."""
        rows = self._tables.get(table)
        if rows is None or key not in rows:
            return 0
        lsn = self._appender.append_state(join_key(table, key), b"", tombstone=True)
        self._weights[table] -= self._let_go(rows.pop(key))
        return lsn

    def get(self, table: str, key: bytes) -> bytes | None:
        """The row's value, or None."""
        rows = self._tables.get(table)
        place = None if rows is None else rows.get(key)
        if isinstance(place, int):
            assert self._spill is not None
            return self._spill.get(place)
        return place

    def items(self, table: str) -> ItemsView[bytes, bytes]:
        """All rows of a table, in no order; a live view, so not to be walked while it is changed."""
        return _items(self._tables.get(table, {}), self._spill)

    def keys(self, table: str) -> KeysView[bytes]:
        """All keys of a table; a live view."""
        return self._tables.get(table, {}).keys()

    # Recovery and checkpoints

    def apply(self, block: bytes, value: bytes | None) -> tuple[str, bytes]:
        """Repeat a change read from the log (`value` None = deletion); its table and key."""
        table, key = split_key(block)
        if value is not None:
            self._set(table, key, value)
        elif (rows := self._tables.get(table)) and (place := rows.pop(key, None)) is not None:
            self._weights[table] -= self._let_go(place)
        return table, key

    def clear(self) -> None:
        """Forget everything."""
        self._tables.clear()
        self._weights.clear()
        self.close()

    def snapshot(self) -> dict[str, ItemsView[bytes, bytes]]:
        """The rows of all tables as they are now, for another thread, until `release`. Raises OSError."""
        if self._spill is not None:
            self._spill.pin()
            self._pins += 1
        return {table: _items(rows.copy(), self._spill) for table, rows in self._tables.items() if rows}

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
