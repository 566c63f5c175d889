"""Stop a streaming job behind its micro-batch, and wait until it ended: `penstock spark stop NAME`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

from penstock.spark.errors import SparkError
from penstock.spark.jobs.shared.common import program
from penstock.spark.jobs.shared.registry import jobs

__all__ = ["main", "stop"]

_POLL_S: Final = 0.1


def stop(name: str, timeout_s: float) -> None:
    """Stop a job. Raises SparkError when there is none of that name, it does not run, or does not end."""
    job = next((job for job in jobs() if job.name == name), None)
    if job is None:
        raise SparkError(f"there is no job {name}", remedy="see penstock spark jobs")
    if not job.running:
        raise SparkError(f"job {name} does not run ({job.state()})", remedy="see penstock spark jobs")
    os.kill(job.pid, signal.SIGTERM)
    ends = time.monotonic() + timeout_s
    while job.running:
        if time.monotonic() > ends:
            raise SparkError(
                f"job {name} did not stop in {timeout_s:g} s",
                remedy=f"a job may be killed at any time, too: kill -9 {job.pid}",
            )
        time.sleep(_POLL_S)


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="of the job")
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="S", help="how long to wait (default: %(default)s)"
    )


def _run(arguments: argparse.Namespace) -> int:
    stop(arguments.name, arguments.timeout)
    print(f"{arguments.name} is stopped")
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("stop", "Stop a streaming job behind its micro-batch.", _add, _run, words)


if __name__ == "__main__":
    sys.exit(main())
