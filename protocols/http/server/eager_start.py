"""A coroutine that is begun at once and becomes a task only when it has to wait.

Most requests are answered without waiting for anything; a task, and the turns of the loop that it takes,
would be a third of what they cost. A coroutine given to `begin` runs outside of any task until its first
wait, so until there it must not use functions of a task (`asyncio.timeout`, `asyncio.current_task`).

Compare asyncio.eager_task_factory of Python 3.12.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

__all__ = ["begin"]


def begin(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run `coroutine` to its first wait; the task that goes on with it, None: it is done.

    An error before its first wait is raised here.
    """
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return None
    return loop.create_task(_Rest(coroutine, waits_for))


class _Rest(Coroutine[Any, Any, None]):
    """A coroutine that was begun and waits for `first`, as a task drives it."""

    __slots__ = ("_coroutine", "_first", "_told")

    def __init__(self, coroutine: Coroutine[Any, Any, None], first: Any) -> None:
        self._coroutine = coroutine
        self._first = first
        self._told = False

    def send(self, value: Any) -> Any:
        if self._told:
            return self._coroutine.send(value)
        # The task's first step: it learns what is waited for.
        self._told = True
        first, self._first = self._first, None
        return first

    def throw(self, *error: Any) -> Any:
        # A task that is cancelled before its first step cancels what is under way all the same.
        self._told = True
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise NotImplementedError("it is a task's, and is not awaited")
