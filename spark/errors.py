"""Errors of the Spark data source; each says what to do, in one line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from penstock.errors import PenstockError

__all__ = ["DataLoss", "SparkError", "SparkOptionError", "said_by_penstock"]

_OURS: Final = re.compile(r"^\s*penstock\.(?:\w+\.)*\w+: (.+)$", re.MULTILINE)


class SparkError(PenstockError):
    """The data source or a job of it cannot go on."""


class SparkOptionError(SparkError):
    """An option has a value that it cannot have."""

    def __init__(self, option: str, value: object, remedy: str) -> None:
        super().__init__(f"option {option!r}: {value!r} cannot be used", remedy=remedy)
        self.option = option


class DataLoss(SparkError):
    """Records that a query asked for are no longer in the log; `ranges` says which, [from, to)."""

    ranges: tuple[tuple[int, int], ...]

    def __init__(self, ranges: Sequence[tuple[int, int]], why: str) -> None:
        shown = ", ".join(f"[{first}, {end})" for first, end in ranges[:20])
        more = f" and {len(ranges) - 20} more" if len(ranges) > 20 else ""
        super().__init__(
            f"offsets {shown}{more} are not in the log any more: {why}",
            remedy="set failOnDataLoss=false to go on without them, and log.traffic_retention_bytes and "
            "log.traffic_retention_s to keep traffic longer",
        )
        self.ranges = tuple(ranges)

    def __reduce__(self) -> tuple[object, ...]:
        return (_data_loss, (str(self), self.ranges))


def _data_loss(text: str, ranges: tuple[tuple[int, int], ...]) -> DataLoss:
    error = DataLoss.__new__(DataLoss)
    SparkError.__init__(error, text)
    error.ranges = ranges
    return error


def said_by_penstock(text: str) -> str | None:
    """The error of ours that one of Spark's tells, in whose text it is a line of a Python traceback among
    those of the JVM; None: there is none. Of several the last one, which those before it are the causes of.
    """
    found = _OURS.findall(text)
    return found[-1] if found else None
