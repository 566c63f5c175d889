"""The system calls of a process, where perf can count them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from bench.cpu import descendants

__all__ = ["calls_counted"]


@contextmanager
def calls_counted(pid: int, found: list[int]) -> Iterator[None]:
    """The system calls of a process and its threads meanwhile; nothing is found where perf may not count."""
    perf = shutil.which("perf")
    if perf is None:
        yield
        return
    told, tells = os.pipe()  # what perf is told
    hears, answers = os.pipe()
    pids = ",".join(map(str, descendants(pid)))
    words = [perf, "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", pids]
    words += ["--delay", "-1", "--control", f"fd:{told},{answers}"]
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, pass_fds=(told, answers)
    ) as process:
        os.close(told)
        os.close(answers)
        try:
            # It takes a while to begin, and says when it has.
            with contextlib.suppress(BrokenPipeError):
                os.write(tells, b"enable\n")
            os.read(hears, 16)
            yield
        finally:
            process.send_signal(2)
            _, said = process.communicate()
            os.close(tells)
            os.close(hears)
    for line in said.splitlines():
        with contextlib.suppress(ValueError):
            found.append(int(line.split(",")[0]))
