"""Values of large tables in a scratch file instead of memory. The file has no name and ends with the process.

The file is not part of the durable state: the log and its checkpoints have every value, and a start fills
the file anew. A value occupies whole units of 64 bytes, named by a locator:

    locator = first unit << 32 | size in bytes

A free place is used again for a value of as many units. While a snapshot is being written (`pin`) places
are kept, so that another thread can read everything in the snapshot. New values are gathered and written 1
MiB at a time. A read is one `pread`, usually from the page cache, whose content the kernel decides.
"""

from __future__ import annotations

import os
from collections.abc import ItemsView, Iterator, Mapping
from pathlib import Path
from typing import Final

__all__ = ["Spill", "SpilledRows"]

_UNIT: Final = 64
_PENDING_BYTES: Final = 1 << 20


class Spill:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        """Make the file in the file system of `folder`. Raises OSError."""
        self._fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._end = 0
        self._written = 0
        self._pending = bytearray()
        self._free: dict[int, list[int]] = {}
        self._pins = 0
        self._let_go: list[int] = []

    def put(self, value: bytes) -> int:
        """Keep a value; its locator. Raises OSError when the disk is full: then nothing was kept."""
        units = -(-len(value) // _UNIT)
        free = self._free.get(units)
        if free:
            first = free.pop()
            if first * _UNIT >= self._written:
                at = first * _UNIT - self._written
                self._pending[at : at + len(value)] = value
            else:
                try:
                    os.pwrite(self._fd, value, first * _UNIT)
                except OSError:
                    free.append(first)
                    raise
            return first << 32 | len(value)
        if len(self._pending) >= _PENDING_BYTES:
            self.flush()
        first = self._end
        self._pending += value
        self._pending += bytes(units * _UNIT - len(value))
        self._end += units
        return first << 32 | len(value)

    def get(self, locator: int) -> bytes:
        """The value."""
        at, size = (locator >> 32) * _UNIT, locator & 0xFFFFFFFF
        if at >= self._written:
            return bytes(self._pending[at - self._written : at - self._written + size])
        return os.pread(self._fd, size, at)

    def drop(self, locator: int) -> None:
        """The value is not needed any more."""
        if self._pins:
            self._let_go.append(locator)
        else:
            units = -(-(locator & 0xFFFFFFFF) // _UNIT)
            self._free.setdefault(units, []).append(locator >> 32)

    def flush(self) -> None:
        """Write what is gathered. Raises OSError; then it stays gathered."""
        done = 0
        try:
            while done < len(self._pending):
                done += os.pwrite(self._fd, memoryview(self._pending)[done:], self._written + done)
        finally:
            whole = done - done % _UNIT
            del self._pending[:whole]
            self._written += whole

    def pin(self) -> None:
        """Everything kept now can be read by other threads until `unpin`. Raises OSError."""
        self.flush()
        self._pins += 1

    def unpin(self) -> None:
        """The other thread is done."""
        self._pins -= 1
        if not self._pins:
            let_go, self._let_go = self._let_go, []
            for locator in let_go:
                self.drop(locator)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._fd)


class SpilledRows(ItemsView[bytes, bytes]):
    """The items of a table some of whose values are spilled: read as they are walked."""

    def __init__(self, rows: Mapping[bytes, bytes | int], spill: Spill) -> None:
        self._rows = rows
        self._spill = spill

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        get = self._spill.get
        for key, value in self._rows.items():
            yield key, get(value) if isinstance(value, int) else value
