"""Whether work grows with its size, or with the square of it.

The same work is done at a size and at `TIMES` that size, and the CPU time of this thread is compared: the
wall clock of a loaded machine says nothing, and no figure of one machine holds on another. Work that grows
with its size costs `TIMES` as much, a little more for caches; with its square, `TIMES` * `TIMES`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

__all__ = ["TIMES", "assert_constant", "assert_linear"]

TIMES = 8
_TRIES = 4


def assert_linear(prepare: Callable[[int], Callable[[], object]], size: int) -> None:
    """Compare `prepare(n)()` for n = size and n = size * TIMES; only the second call is measured."""
    _assert_ratio(prepare, size, 3 * TIMES)  # between 8 and 64


def assert_constant(prepare: Callable[[int], Callable[[], object]], size: int) -> None:
    """The same for work that costs the same whatever n is, and not TIMES as much."""
    _assert_ratio(prepare, size, TIMES / 2)


def _assert_ratio(prepare: Callable[[int], Callable[[], object]], size: int, most: float) -> None:
    """The least ratio of some tries counts: what else the machine does makes work dearer, never cheaper."""
    told = []
    for _ in range(_TRIES):
        # The cheapest of the small ones: a dear one would hide that the large one is dear.
        small = min(_cost_s(prepare(size)) for _ in range(3))
        large = _cost_s(prepare(size * TIMES))
        if large < most * small:
            return
        told.append(f"{small:.4f} s and {large:.4f} s, {large / small:.0f} times as much")
    raise AssertionError(f"{TIMES} times the work costs {', '.join(told)}")


def _cost_s(work: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()  # its full collections grow with whatever else the process holds
    try:
        began = time.thread_time()
        work()
        return time.thread_time() - began
    finally:
        gc.enable()
