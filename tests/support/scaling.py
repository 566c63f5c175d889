"""Whether work grows with its size, or with the square of it.

The same work is done at a size and at `TIMES` that size, and the CPU time of this thread is compared: the
wall clock of a loaded machine says nothing, and no figure of one machine holds on another. Work that grows
with its size costs `TIMES` as much, a little more for caches; with its square, `TIMES` * `TIMES`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

__all__ = ["TIMES", "assert_linear"]

TIMES = 8
_MOST = 3 * TIMES
"""Between 8 and 64."""
_TRIES = 4


def assert_linear(prepare: Callable[[int], Callable[[], object]], size: int) -> None:
    """Compare `prepare(n)()` for n = size and n = size * TIMES; only the second call is measured.

    The least ratio of some tries counts: whatever else the machine does makes work dearer, never cheaper.
    """
    least = float("inf")
    told = []
    for _ in range(_TRIES):
        small, large = min(_cost_s(prepare(size)) for _ in range(3)), _cost_s(prepare(size * TIMES))
        told.append(f"{small:.4f} s and {large:.4f} s")
        # The dearest of the small ones would hide a square, the cheapest one does not.
        least = min(least, large / max(small, 1e-9))
        if least < _MOST:
            return
    raise AssertionError(f"{TIMES} times the work costs {least:.0f} times as much: {', '.join(told)}")


def _cost_s(work: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()  # its full collections grow with whatever else the process holds
    try:
        began = time.thread_time()
        work()
        return time.thread_time() - began
    finally:
        gc.enable()
