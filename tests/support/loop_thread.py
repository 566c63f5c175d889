"""An event loop in a thread of its own, for stand-ins of the network that a test starts and ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.support.limits import LIMIT_S

__all__ = ["LoopThread"]

_Result = TypeVar("_Result")


class LoopThread:
    """Runs from the beginning until `end`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine there, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT_S)

    def end(self, close: Callable[[], None]) -> None:
        """Call `close` there, cancel all tasks, and end the thread."""

        async def last() -> None:
            close()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run(last())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
