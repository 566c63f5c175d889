"""Damaged places of the log, found since the start by readers and by the scrub.

Each is one log line and counts once, however often it is met. Damage is never repaired while serving: the
records of the batch are skipped and the rest goes on. `penstock log repair` removes it.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

from penstock.log_core.errors import Damage

__all__ = ["Damages"]

_LOG: Final = logging.getLogger("penstock.log")
_KEPT: Final = 10_000
"""Places that are told apart; what is found beyond is one log line each time, and not counted."""


class Damages:
    """May be told from any thread."""

    def __init__(self) -> None:
        self._by_position: dict[tuple[Path, int], Damage] = {}
        self._lock = threading.Lock()

    def note(self, damage: Damage) -> None:
        """Something was found."""
        with self._lock:
            place = (damage.path, damage.offset)
            if place in self._by_position:
                return
            if len(self._by_position) < _KEPT:
                self._by_position[place] = damage
        _LOG.error(
            "%s; it is skipped, the rest is served; `penstock log repair` says what is lost and takes it out",
            damage,
        )

    def __len__(self) -> int:
        return len(self._by_position)

    def found(self) -> list[Damage]:
        """All of them, as they were found."""
        with self._lock:
            return list(self._by_position.values())
