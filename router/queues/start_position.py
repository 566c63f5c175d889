"""Start positions: moments in the past as clients name them, for a stream's consumer, a backfill or a replay.

"1h", "7D"                    so long ago: a number and one of Y M D h m s (365 and 30 days)
"-15m"                        the same, as `since` takes it
"2024-05-01T10:00:00Z"        RFC 3339, with a zone
1714557600000                 milliseconds since the epoch
"pos:1234"                    a position of the log
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from penstock.lazy_dataclass import dataclass

__all__ = ["StartPosition", "interval_s", "parse_since"]

_UNITS: Final = {"Y": 365 * 86400, "M": 30 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1}
_INTERVAL: Final = re.compile(r"([0-9]{1,9})([YMDhms])", re.ASCII)
_POSITION: Final = re.compile(r"pos:([0-9]{1,20})", re.ASCII)
_LAST_MS: Final = 2**53


@dataclass(frozen=True, slots=True)
class StartPosition:
    """A moment: a time, or a position of the log."""

    time_ms: int = 0
    """Since the epoch; when `position` is 0."""
    position: int = 0


def interval_s(value: str) -> int | None:
    """The seconds of an interval such as "7D"; None: it is none."""
    found = _INTERVAL.fullmatch(value)
    return None if found is None else int(found[1]) * _UNITS[found[2]]


def parse_since(value: object, now_ms: int) -> StartPosition | None:
    """The moment that a client names; None: it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return StartPosition(value) if 0 <= value < _LAST_MS else None
    if not isinstance(value, str):
        return None
    if value.startswith("-"):
        ago_s = interval_s(value[1:])
        return None if ago_s is None else StartPosition(max(now_ms - ago_s * 1000, 0))
    position = _POSITION.fullmatch(value)
    if position is not None:
        return StartPosition(position=min(max(int(position[1]), 1), 2**64 - 1))
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if when.tzinfo is None else StartPosition(max(int(when.timestamp() * 1000), 0))
