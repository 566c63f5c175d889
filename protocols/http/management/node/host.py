"""Figures of the process and its machine, read from the system when somebody asks."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path
from typing import Final

from penstock.lazy_dataclass import dataclass

__all__ = ["HostFigures", "read"]

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class HostFigures:
    """See the fields; sizes in bytes."""

    rss: int
    fd_used: int
    fd_total: int
    threads: int
    threads_max: int
    disk_free: int
    """Of the file system with the data folder, for this user."""
    processors: int
    context_switches: int
    io_reads: int
    io_writes: int
    io_read_bytes: int
    io_write_bytes: int


def read(data_dir: Path) -> HostFigures:
    """The figures now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    disk = os.statvfs(data_dir)
    io = _io()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    threads_max = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return HostFigures(
        rss=pages * _PAGE,
        fd_used=len(os.listdir("/proc/self/fd")),
        fd_total=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        threads=threading.active_count(),
        threads_max=threads_max if threads_max > 0 else _number(Path("/proc/sys/kernel/threads-max")),
        disk_free=disk.f_bavail * disk.f_frsize,
        processors=len(os.sched_getaffinity(0)),
        context_switches=usage.ru_nvcsw + usage.ru_nivcsw,
        io_reads=io.get("syscr", 0),
        io_writes=io.get("syscw", 0),
        io_read_bytes=io.get("read_bytes", 0),
        io_write_bytes=io.get("write_bytes", 0),
    )


def _io() -> dict[str, int]:
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return {}  # not readable in some containers
    return {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}


def _number(path: Path) -> int:
    """The number in a file; 0 when there is none."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
