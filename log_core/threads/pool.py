"""Threads that do the log's work off the loop and report every error.

A caller that waits for the work is told of unexpected errors, and the log lines have the traceback. A
pool's own futures, which nobody asks, would hide them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

__all__ = ["Pool"]

_LOG: Final = logging.getLogger("penstock.log")


class Pool(ThreadPoolExecutor):
    """Of one part of a log; `post(function, *arguments)` runs something on the loop."""

    def __init__(self, threads: int, name: str, post: Callable[..., None]) -> None:
        super().__init__(threads, name)
        self._name = name
        self._post = post

    def run(
        self,
        work: Callable[..., object],
        *arguments: object,
        failed: Callable[[Exception], object] | None = None,
    ) -> None:
        """Do `work(*arguments)` on a thread; `failed` gets on the loop what it raises.

        Without `failed` nobody waits for it.
        """
        self.submit(self._heard, work, arguments, failed)

    def _heard(
        self,
        work: Callable[..., object],
        arguments: tuple[object, ...],
        failed: Callable[[Exception], object] | None,
    ) -> None:
        try:
            work(*arguments)
        except Exception as error:
            _LOG.exception("an internal error in %s; report it with what follows", self._name)
            if failed is not None:
                self._post(failed, error)
