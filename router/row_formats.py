"""In which format the rows of the tables are, and whether this penstock reads them.

    table format   key "tables"   value  version u16 little-endian

The log's files have a version of their own (docs/reference/format.md); this one is of what the router and the
front ends put into tables. A folder without the row was written before there was one: it is of version 1,
unless it has sessions of MQTT in the layout before that: as queues, which would open as queues without a
client.

    2   pages of filters name what they share with the one before (`filters`); those of version 1 are read
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import StartError

if TYPE_CHECKING:
    from penstock.router.rows import Tables

__all__ = ["TABLE", "VERSION", "check_format"]

TABLE: Final = "format"
VERSION: Final = 2
"""Written; earlier ones are read."""
_KEY: Final = b"tables"
_REMEDY: Final = "use the penstock version that wrote it, or another folder with --data DIR"


def check_format(tables: Tables) -> None:
    """See that the rows can be read, and say in which format they are from now on.

    Raises:
        StartError: they cannot; nothing was changed.

    """
    row = tables.get(TABLE, _KEY)
    if row is not None:
        version = int.from_bytes(row, "little")
        if not 1 <= version <= VERSION:
            raise StartError(
                f"the data folder has tables of format {version}; this penstock knows formats 1 to {VERSION}",
                remedy=_REMEDY,
            )
        if version == VERSION:
            return
    elif _has(tables, "mqtt.session") and not _has(tables, "session"):
        raise StartError(
            "the data folder has MQTT sessions as penstock kept them before its tables had a format; "
            "this penstock would lose their filters",
            remedy=_REMEDY,
        )
    tables.put(TABLE, _KEY, VERSION.to_bytes(2, "little"))


def _has(tables: Tables, table: str) -> bool:
    return any(True for _ in tables.items(table))
