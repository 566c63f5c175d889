"""What a process tree has used of the CPU, from /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """User plus system time in seconds of process `root` and its live descendants, all threads included.

    The resolution is one clock tick (10 ms), so measure over seconds. A process that has ended counts as 0.
    """
    used, children = _processes()
    return sum(used.get(pid, 0.0) for pid in _tree(root, children))


def cpu_seconds_of_all(root: int) -> float:
    """The same with the descendants that have ended, once their parent has waited for them."""
    used, children = _processes(ended=True)
    return sum(used.get(pid, 0.0) for pid in _tree(root, children))


def descendants(root: int) -> list[int]:
    """Process `root` and its live descendants."""
    used, children = _processes()
    return [pid for pid in _tree(root, children) if pid in used]


def _processes(*, ended: bool = False) -> tuple[dict[int, float], dict[int, list[int]]]:
    """The CPU seconds of each process (`ended`: and of children it waited for), and its children."""
    used: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            # The second field, the program's name in brackets, may itself hold blanks and brackets.
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid, parent = int(entry), int(fields[1])
        ticks = fields[11:15] if ended else fields[11:13]
        used[pid] = sum(map(int, ticks)) / _TICKS_PER_S
        children.setdefault(parent, []).append(pid)
    return used, children


def _tree(root: int, children: dict[int, list[int]]) -> list[int]:
    todo, found = [root], []
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def resident_bytes(pid: int) -> int:
    """Resident memory of one process, in bytes."""
    pages = int(Path("/proc", str(pid), "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def wait_until_idle(pid: int, limit_s: float = 20.0) -> None:
    """Wait until a process tree uses less than a tenth of a core: it has worked off the load before."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        before = cpu_seconds(pid)
        time.sleep(0.5)
        if cpu_seconds(pid) - before < 0.05:
            return
