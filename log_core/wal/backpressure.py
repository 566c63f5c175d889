"""Backpressure: whether publishers must wait, and why. They wait while at least one reason holds.

A reason may be an alarm: a resource runs low, and publishers are told. Other reasons belong to normal
operation, such as a disk that is behind; publishers only feel them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from penstock.log_core.threads.callbacks import tell_all

__all__ = ["Backpressure"]

_LOG: Final = logging.getLogger("penstock.log")


class Backpressure:
    """Loop thread only."""

    def __init__(self) -> None:
        self.reasons: set[str] = set()
        self.alarms: dict[str, str] = {}
        """The resource that runs low, by the reason that holds."""
        self.callbacks: list[Callable[[bool], object]] = []

    def set(self, reason: str, on: bool, *, alarm: str = "") -> None:
        """Switch one reason; `alarm` is the resource that runs low.

        The callbacks hear of the change between none and any, and of every change of the alarms.
        """
        if (reason in self.reasons) == on:
            return
        was = bool(self.reasons), set(self.alarms.values())
        if on:
            self.reasons.add(reason)
            if alarm:
                self.alarms[reason] = alarm
            _LOG.warning("publishers wait: %s", reason)
        else:
            self.reasons.discard(reason)
            self.alarms.pop(reason, None)
            _LOG.info("over: %s", reason)
        paused = bool(self.reasons)
        if (paused, set(self.alarms.values())) != was:
            tell_all(self.callbacks, paused)
