"""The memory alarm: publishers wait while this process uses more than its share of the memory there is.

The memory that counts is the resident memory that is not backed by files (the kernel takes that back by
itself), sampled on a timer. The limit is the machine's memory or that of the control group,
whichever is less.
"""

from __future__ import annotations

import asyncio
import ctypes
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = [
    "SAMPLE_S",
    "MemoryAlarm",
    "available_bytes",
    "give_back",
    "keep_large_blocks",
    "return_large_blocks",
    "used_bytes",
]

SAMPLE_S: Final = 0.5
"""Time between two looks."""
_TRIM_S: Final = 5.0
"""While the alarm holds, the C library is asked this often to give back what it keeps of freed memory."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 2 << 20
"""Bytes of a block that is mapped by itself: larger than slabs of the log and full output."""
_SPARE: Final = 16 << 20
"""Free bytes at the end of the heap that stay with the process: what a busy turn takes and gives back."""

_LARGE_MAX: Final = 8 << 20
_SPARE_MAX: Final = 16 << 20
"""Of a standby: an answer of Kafka has up to 4 MiB."""

_PAGE: Final = resource.getpagesize()


def return_large_blocks() -> bool:
    """Have the C library give large blocks back to the system once they are freed; False: it is not glibc.

    By itself glibc raises the size from which it does, up to 32 MiB, and what tables of many rows leave
    when they grow stays with the process: 420 bytes for each of 20,000 MQTT sessions. Source: mallopt(3).
    """
    return _adapt(_LARGE, _SPARE)


def keep_large_blocks() -> bool:
    """Have the C library use large blocks again and again; False: it is not glibc.

    A standby takes and frees a block of a MiB for each answer of Kafka. Given back each time, its pages are
    made and cleared anew, which is a quarter of a standby's CPU.
    """
    return _adapt(_LARGE_MAX, _SPARE_MAX)


def _adapt(large: int, spare: int) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Setting one of them ends that glibc adapts either.
    return bool(mallopt(_M_MMAP_THRESHOLD, large)) and bool(mallopt(_M_TRIM_THRESHOLD, spare))


def used_bytes() -> int:
    """Resident memory of this process that no file backs."""
    with open("/proc/self/statm", "rb") as file:
        words = file.read().split()
    return (int(words[1]) - int(words[2])) * _PAGE


def available_bytes(root: Path = Path("/")) -> int:
    """Memory of the machine, or the least limit of a control group of this process; `root` is for tests."""
    found = [_total(root / "proc/meminfo")]
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # A limit of any group above holds too. In a container the group's own path may not be visible.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            text = _read(top.joinpath(*parts[:depth], name)).strip()
            if text.isdigit():
                found.append(int(text))
    return min(found)


def _total(meminfo: Path) -> int:
    for line in _read(meminfo).splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{meminfo} does not say how much memory there is")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class MemoryAlarm:
    """Calls `switch` when the alarm begins and ends."""

    def __init__(
        self,
        limit_bytes: int,
        switch: Callable[[bool], object],
        *,
        used: Callable[[], int] = used_bytes,
        clock: Callable[[], float],
    ) -> None:
        self.limit_bytes = limit_bytes
        """0: there is none."""
        self._switch = switch
        self._used = used
        self._clock = clock
        self._on = False
        self._trim_at = 0.0

    @property
    def available_bytes(self) -> int:
        """The memory there is."""
        return available_bytes()

    def change(self, limit_bytes: int) -> None:
        """Another limit from now on, until the process ends."""
        self.limit_bytes = limit_bytes
        self.check()

    def check(self) -> None:
        """Look at the memory in use; called on a timer, by the loop."""
        on = 0 < self.limit_bytes < self._used()
        if on != self._on:
            self._on = on
            self._switch(on)
        if on and self._clock() >= self._trim_at:
            self._trim_at = self._clock() + _TRIM_S
            # Not on the loop: it takes milliseconds.
            asyncio.get_running_loop().run_in_executor(None, give_back)


def give_back() -> None:
    """Have the C library return what it keeps of freed memory: some milliseconds, on any thread."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # of the GNU library only
        libc.malloc_trim(0)
