"""Whether publishers must wait, and why: any of several reasons holds them, the last one to go frees them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

__all__ = ["Pressure"]

_LOG: Final = logging.getLogger("penstock.log")


class Pressure:
    """Loop thread only."""

    def __init__(self) -> None:
        self.reasons: set[str] = set()
        self.callbacks: list[Callable[[bool], object]] = []

    def set(self, reason: str, on: bool) -> None:
        """Switch one reason; the callbacks hear of the change between none and any."""
        if (reason in self.reasons) == on:
            return
        was = bool(self.reasons)
        if on:
            self.reasons.add(reason)
            _LOG.warning("publishers wait: %s", reason)
        else:
            self.reasons.discard(reason)
            _LOG.info("over: %s", reason)
        if bool(self.reasons) != was:
            for callback in list(self.callbacks):
                callback(not was)
