"""Rows of tables, as each change and each look-up goes through them. The module text is in _rows.pyx."""

from penstock.log_core.state.spill import Spill

class RowLog:
    """Takes the changes of rows: an appender of the log, which lies above the tables."""

class Table:
    """The rows of one table."""

    weight: int
    """Bytes of the values that are in memory."""

    @property
    def rows(self) -> dict[bytes, bytes | int]:
        """Values, or locators of values that are spilled."""

class TableRows:
    """Tables by name; `Tables` derives from it."""

    _spill: Spill | None
    _spill_from: int
    """Bytes of values that a table keeps in memory before further ones are spilled."""

    def __init__(self, appender: RowLog, *, spills: bool, spill_from: int) -> None:
        """`spills`: `_spilled` may be called."""

    @property
    def _tables(self) -> dict[str, Table]: ...
    def put(self, table: str, key: bytes, value: bytes) -> int:
        """Set a row. Returns the LSN of the change; wait for it with `Log.when_synced`.

        Table name and key may have 65534 bytes together. Puts between `with log.unit()` are one atomic unit.
        """

    def delete(self, table: str, key: bytes) -> int:
        """Remove a row; returns the LSN of the change, or 0 (nothing logged) when there was none."""

    def get(self, table: str, key: bytes) -> bytes | None:
        """The row's value, or None."""

    def apply(self, block: bytes, value: bytes | None) -> tuple[str, bytes]:
        """Repeat a change read from the log (`value` None = deletion); its table and key."""

    # Derived classes have it

    def _spilled(self, value: bytes) -> bytes | int:
        """The locator of a value that is in the scratch file now, or the value where it must stay."""

def split_key(block: bytes) -> tuple[str, bytes]:
    """The table and the key of a key block. Raises ValueError when `block` is no such key block."""
