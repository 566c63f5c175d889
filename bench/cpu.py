"""CPU time of a process tree, from /proc."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Self

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """User plus system time in seconds of process `root` and its live descendants, all threads included.

    The resolution is one clock tick (10 ms), so measure over seconds. A process that has ended counts as 0.
    """
    used, children = _processes()
    return sum(used.get(pid, 0.0) for pid in _tree(root, children))


class Meter:
    """CPU time of process `root` and its descendants meanwhile, those that begin or end in it too.

    The kernel counts children that a parent waits for. Where a parent ignores that children end, as
    pyspark.daemon does, they are looked at each half second, so the last moments of such a process are
    missing.

        with Meter(os.getpid()) as meter: ...
        meter.cpu_s
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._ended = threading.Event()
        self._unwaited: set[int] = set()
        """Processes whose parents ignore their end."""
        self._first = self._look()
        self._last = dict(self._first)
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        found = self._look()
        self._last = {pid: s for pid, s in self._last.items() if pid in self._unwaited} | found

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self._last.update(self._look())

    def _look(self) -> dict[int, float]:
        used, children = _processes(waited=True)
        tree = [pid for pid in _tree(self._root, children) if pid in used]
        for pid in tree:
            if pid in children and _ignores_children(pid):
                self._unwaited.update(children[pid])
        return {pid: used[pid] for pid in tree}

    @property
    def cpu_s(self) -> float:
        """User plus system time of all of them."""
        return sum(self._last.values()) - sum(self._first.values())


def descendants(root: int) -> list[int]:
    """Process `root` and its live descendants."""
    used, children = _processes()
    return [pid for pid in _tree(root, children) if pid in used]


def _processes(*, waited: bool = False) -> tuple[dict[int, float], dict[int, list[int]]]:
    """The CPU seconds of each process, `waited`: and of the children that it waited for; and its children."""
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
        used[pid] = sum(int(ticks) for ticks in fields[11 : 15 if waited else 13]) / _TICKS_PER_S
        children.setdefault(parent, []).append(pid)
    return used, children


def _ignores_children(pid: int) -> bool:
    """Whether it ignores SIGCHLD; of its children the kernel then keeps no account (wait(2))."""
    try:
        status = Path("/proc", str(pid), "status").read_text()
    except OSError:
        return False
    ignored = re.search(r"^SigIgn:\s*([0-9a-f]+)", status, re.MULTILINE)
    return ignored is not None and bool(int(ignored[1], 16) >> (signal.SIGCHLD - 1) & 1)


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
