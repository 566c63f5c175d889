"""The order of rows by a value that nearly all of them share, such as a rate: only the others are sorted.

Rows with equal values keep the order that they have, which is that of their names. So the places of the few
rows that differ are found by their names, and everything else stays where it is. A list of a hundred thousand
queues in the order of their rates costs no look at each of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Generic, TypeVar, overload

from penstock.lazy_dataclass import dataclass

__all__ = ["Sparse", "sparse_order"]

Row = TypeVar("Row")

_WORTH: Final = 20
"""So many rows for each that differs, or all of them are better sorted."""


@dataclass(frozen=True, slots=True)
class Sparse(Generic[Row]):
    """A key of a list whose value is `usual` in all rows but those of `unusual`."""

    read: Callable[[Row], Any]
    """The value in a row."""
    usual: Any
    unusual: Callable[[], Collection[Row]]
    """Rows with other values, and perhaps some that are not in the list."""


def sparse_order(
    rows: Sequence[Row], key: Sparse[Row], name_of: Callable[[Row], Any], *, reverse: bool
) -> Sequence[int] | None:
    """The places of the rows in the order of their values; None: too many differ for this.

    `rows` are in the order of `name_of`.
    """
    unusual = key.unusual()
    if len(unusual) * _WORTH > len(rows):
        return None
    found: list[tuple[Any, int]] = []
    for row in unusual:
        at = bisect_left(rows, name_of(row), key=name_of)
        if at < len(rows) and rows[at] is row:
            found.append((key.read(row), at))
    # Equal ones in the order they have, whichever way.
    found.sort(key=lambda one: (-one[0] if reverse else one[0], one[1]))
    before = [at for value, at in found if value != key.usual and (value > key.usual) is reverse]
    behind = [at for value, at in found if value != key.usual and (value > key.usual) is not reverse]
    return _Around(before, behind, len(rows))


class _Around(Sequence[int]):
    """Places 0 to `count` - 1: some first, some last, and the others between them in their order."""

    def __init__(self, first: list[int], last: list[int], count: int) -> None:
        self._first = first
        self._last = last
        self._count = count
        moved = sorted((*first, *last))
        # How many places that stay are before each that moved.
        self._before = [at - number for number, at in enumerate(moved)]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        places = range(self._count)[at]
        return self._place(places) if isinstance(places, int) else list(map(self._place, places))

    def _place(self, at: int) -> int:
        if at < len(self._first):
            return self._first[at]
        if at >= self._count - len(self._last):
            return self._last[at - self._count + len(self._last)]
        stays = at - len(self._first)
        return stays + bisect_right(self._before, stays)
