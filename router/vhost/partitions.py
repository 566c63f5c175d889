"""Log partitions of vhosts: the `lp` of a batch says whose records are in it.

The vhost `/` has partition 0 and no row. Each other one gets the next number and a row when it is made,
table `lp`: the number, u32 big-endian -> the name. Rows stay when a vhost is deleted, so that a reader of
the log can still tell whose records those were. A vhost that is made again under the same name has the
same number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.router.names import text, wire
from penstock.router.rows import Tables

__all__ = ["DEFAULT_VHOST", "LP_TABLE", "Partitions", "vhosts"]

DEFAULT_VHOST: Final = "/"
LP_TABLE: Final = "lp"


def vhosts(tables: Tables) -> dict[int, str]:
    """The vhosts' names by partition."""
    return {0: DEFAULT_VHOST} | {
        int.from_bytes(key, "big"): text(bytes(name)) for key, name in tables.items(LP_TABLE)
    }


class Partitions:
    """The numbers given out so far."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._numbers = {name: number for number, name in vhosts(tables).items()}

    def items(self) -> Iterable[tuple[str, int]]:
        """Each vhost there ever was, and its number."""
        return self._numbers.items()

    def of(self, vhost: str) -> int:
        """The number of a vhost; a new one, which is put in the table, when it has none."""
        number = self._numbers.get(vhost)
        if number is None:
            number = self._numbers[vhost] = max(self._numbers.values()) + 1
            self._tables.put(LP_TABLE, number.to_bytes(4, "big"), wire(vhost))
        return number
