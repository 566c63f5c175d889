"""The phases of a start, and the time of each: told in the log line that says ready."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["StartTimes"]


class StartTimes:
    """Phases one after the other, from the beginning of the process on."""

    def __init__(self) -> None:
        """The phase `import` ends now: the interpreter's start, the modules and the configuration."""
        self._seconds: dict[str, float] = {}
        self._at = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._seconds["import"] = self._at - _process_began()

    def ended(self, phase: str) -> None:
        """The phase that began at the end of the one before is over."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._at
        self._at = now

    def fields(self) -> dict[str, float]:
        """Seconds by phase, as `import_s`; and `start_s`, their sum."""
        sums = {f"{phase}_s": round(seconds, 3) for phase, seconds in self._seconds.items()}
        return {"start_s": round(sum(self._seconds.values()), 3), **sums}


def _process_began() -> float:
    """Seconds since the machine started, in steps of 10 ms. Source: proc_pid_stat(5), field 22."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")
