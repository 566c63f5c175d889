"""History of counters for plots: what moved between two passes of the sampler, for minutes to a day.

A series is an array of rows, one for each slot of time in which its counters changed:

    slot, value, value, ...        64-bit integers; slot = seconds since 1970 // step of the level

A counter that does not move costs nothing, and a series that did not move for the whole span of its level is
dropped. Coarser levels have the newest totals of their longer slots, so rates stay right. The totals of the
gateway have all levels, a queue has the two finest ones, a connection or channel the finest.

The memory is bounded. Above the bound, the finest series of single objects that moved least recently go
first. The gateway's own stay. A restart begins anew.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from typing import Final

__all__ = ["LEVELS", "OF_CONNECTION", "OF_GATEWAY", "OF_QUEUE", "History"]

LEVELS: Final = ((600, 5), (3600, 60), (28_800, 600), (86_400, 1800))
"""Span and step of each level in seconds, the finest first: RabbitMQ's."""
OF_GATEWAY: Final = len(LEVELS)
OF_QUEUE: Final = 2
OF_CONNECTION: Final = 1
_OVERHEAD: Final = 200
"""Bytes of a series besides its rows, about."""


class History:
    """See the module. `clock`: seconds since 1970."""

    def __init__(self, max_bytes: int, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._began = int(clock())
        self._whole: dict[Hashable, list[array[int]]] = {}
        self._single: tuple[dict[Hashable, array[int]], ...] = tuple({} for _ in range(OF_QUEUE))
        """By level; what moved last is the last one."""
        self.size = 0
        """Bytes of all series, about."""

    def note(self, key: Hashable, levels: int, before: Sequence[int], values: Sequence[int]) -> None:
        """Note that the counters of `key` have become `values`; they were `before` in the last pass."""
        if not self._max_bytes:
            return
        now = int(self._clock())
        if levels == OF_GATEWAY:
            known = self._whole.get(key)
            if known is None:
                known = self._whole[key] = [array("q") for _ in LEVELS]
                self.size += _OVERHEAD * len(known)
            for level, rows in enumerate(known):
                self._put(rows, level, now, before, values)
            return
        for level in range(levels):
            series = self._single[level]
            rows = series.pop(key, _NO_ROWS)
            if rows is _NO_ROWS:
                rows = array("q")
                self.size += _OVERHEAD
            self._put(rows, level, now, before, values)
            series[key] = rows
        self._shrink()

    def _put(
        self, rows: array[int], level: int, now: int, before: Sequence[int], values: Sequence[int]
    ) -> None:
        span, step = LEVELS[level]
        slot, width = now // step, len(values) + 1
        had = len(rows)
        if not rows:
            rows.extend((slot - 1, *before))
        if rows[-width] == slot:
            rows[-width:] = array("q", (slot, *values))
        else:
            rows.extend((slot, *values))
        if len(rows) > 2 * width * (span // step + 2):
            del rows[: len(rows) - width * (span // step + 2)]
        self.size += 8 * (len(rows) - had)

    def _shrink(self) -> None:
        for series in self._single:
            while self.size > self._max_bytes and series:
                self._drop(series, next(iter(series)))

    def _drop(self, series: dict[Hashable, array[int]], key: Hashable) -> None:
        rows = series.pop(key, None)
        if rows is not None:
            self.size -= _OVERHEAD + 8 * len(rows)

    def forget(self, key: Hashable) -> None:
        """The object is gone."""
        for series in self._single:
            self._drop(series, key)

    def clear(self) -> None:
        """Forget all: histories begin anew."""
        self._whole.clear()
        for series in self._single:
            series.clear()
        self.size = 0
        self._began = int(self._clock())

    def sweep(self, width: Callable[[Hashable], int | None]) -> None:
        """Drop the series that did not move for their whole span. `width`: how many counters a key has."""
        now = int(self._clock())
        for (span, step), series in zip(LEVELS, self._single, strict=False):
            while series:
                key = next(iter(series))
                count = width(key)
                if count is not None and series[key][-count - 1] >= (now - span) // step:
                    break
                self._drop(series, key)

    def samples(
        self, key: Hashable, levels: int, now_are: Sequence[int], age_s: int, step_s: int
    ) -> list[tuple[int, Sequence[int]]]:
        """(milliseconds since 1970, values) each `step_s` back to `age_s`, the newest first."""
        level = next((number for number in range(levels) if LEVELS[number][0] >= age_s), max(levels - 1, 0))
        rows = self._whole[key][level] if key in self._whole else self._rows_of(key, level)
        step = LEVELS[level][1]
        width = len(now_are) + 1
        slots = rows[::width]
        now = int(self._clock())
        newest = now // step_s * step_s
        found: list[tuple[int, Sequence[int]]] = []
        for at in range(newest, max(newest - age_s, self._began - step_s) - 1, -step_s):
            row = bisect_right(slots, at // step) - 1
            if not slots:
                values = now_are
            else:
                first = max(row, 0) * width
                values = rows[first + 1 : first + width]
            found.append((at * 1000, values))
        return found

    def _rows_of(self, key: Hashable, level: int) -> array[int]:
        return self._single[level].get(key, _NO_ROWS) if level < OF_QUEUE else _NO_ROWS


_NO_ROWS: Final[array[int]] = array("q")
