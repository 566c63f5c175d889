"""The streaming jobs of this user on this machine: what each does, how far it is, and how it is stopped.

A job keeps one file, NAME.json, as long as it runs and after it; in $PENSTOCK_SPARK_JOBS, else in
$XDG_STATE_HOME/penstock/spark, else in ~/.local/state/penstock/spark. Whether it runs is asked of the kernel:
its process has the id and the start time that the file says.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.spark.errors import SparkError, said_by_penstock

__all__ = ["Job", "jobs", "jobs_folder", "registered"]


def jobs_folder() -> Path:
    """Where the jobs' files are."""
    told = os.environ.get("PENSTOCK_SPARK_JOBS")
    if told:
        return Path(told)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "penstock" / "spark"


@dataclass
class Job:
    """One job, as its file says."""

    name: str
    verb: str
    data: str
    """The data folder it reads, or the URL of a gateway, with its password: the file is the user's alone."""
    to: str
    pid: int
    pid_started: int
    """When its process started, in clock ticks since the machine did: with `pid` it is that process alone."""
    started: float
    """Seconds since the epoch."""
    updated: float
    position: int = 0
    """The position of the log that it reached; 0: it has not begun."""
    batches: int = 0
    """Micro-batches with something in them since it started."""
    end: str = ""
    """How it ended; "": it runs, or was killed."""

    @property
    def running(self) -> bool:
        """Its process exists."""
        return _started(self.pid) == self.pid_started

    def state(self) -> str:
        """In a word or a line."""
        if self.running:
            return "running"
        return self.end or "killed"

    def note(self, position: int) -> None:
        """A micro-batch is done, which ends at `position`."""
        self.position = max(position, self.position)
        self.batches += 1
        self.save()

    def save(self) -> None:
        """Write the file anew."""
        self.updated = time.time()
        path = jobs_folder() / f"{self.name}.json"
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.touch(mode=0o600)
        new.write_text(json.dumps(asdict(self)))
        new.replace(path)


def jobs() -> list[Job]:
    """Those that left a file, by name."""
    return [Job(**json.loads(path.read_text())) for path in sorted(jobs_folder().glob("*.json"))]


@contextmanager
def registered(name: str, verb: str, data: Path | str, to: str) -> Iterator[Job]:
    """This process is the job `name` meanwhile. Raises SparkError: another one is, or it is no name."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name):
        raise SparkError(f"{name!r} is no name of a job", remedy="use letters, digits, dots, - and _")
    jobs_folder().mkdir(parents=True, exist_ok=True)
    for other in jobs():
        if other.name == name and other.running and other.pid != os.getpid():
            raise SparkError(
                f"job {name} runs already, as process {other.pid}",
                remedy=f"stop it (penstock spark stop {name}), or give this one another --name",
            )
    started = _started(os.getpid())
    assert started is not None
    source = data if isinstance(data, str) else str(data.absolute())
    job = Job(name, verb, source, to, os.getpid(), started, time.time(), time.time())
    job.save()
    try:
        yield job
    except BaseException as error:
        text = str(error)
        said = said_by_penstock(text) or (text.splitlines()[0] if text else type(error).__name__)
        job.end = f"failed: {said}"[:500]
        job.save()
        raise
    job.end = "ended"
    job.save()


def _started(pid: int) -> int | None:
    """The start time of a process that is no zombie, field 22 of /proc/PID/stat; None: there is none."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
