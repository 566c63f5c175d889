"""The mailbox through which the threads of one log hand their results to the loop."""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Mailbox"]


class Mailbox:
    """Calls that threads `post` and the loop makes, in order."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = queue.SimpleQueue()
        self.call_soon: Callable[..., object] | None = None
        """How the loop is woken, from any thread; None: the owner calls `drain` itself."""

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Have `function(*arguments)` called on the loop; from any thread."""
        self._calls.put((function, arguments))
        if self.call_soon is not None:
            with suppress(RuntimeError):  # the loop is closed: the owner drains once more
                self.call_soon(self.drain)

    def drain(self) -> None:
        """Make the calls that wait."""
        while True:
            try:
                function, arguments = self._calls.get_nowait()
            except queue.Empty:
                return
            function(*arguments)

    def wait(self, timeout_s: float | None = None) -> None:
        """Make the next call, which may have to be waited for. Raises queue.Empty after `timeout_s`."""
        function, arguments = self._calls.get(timeout=timeout_s)
        function(*arguments)
