"""Ranges of delivery tags, as acknowledgements have them."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["RANGE", "joined", "packed"]

RANGE: Final = struct.Struct(">QQ")


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """As few ranges as hold these and no others; `ranges` is sorted."""
    ranges.sort()
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def packed(ranges: list[tuple[int, int]]) -> bytes:
    """As ACK, NACK and TRANSACT have them."""
    return b"".join(RANGE.pack(first, last) for first, last in ranges)
