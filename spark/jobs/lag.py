"""`penstock spark lag`: how much of the log each streaming job has still to read. Needs no Spark."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from penstock.errors import PenstockError
from penstock.spark.jobs.shared.common import program, span
from penstock.spark.jobs.shared.registry import Job, jobs
from penstock.spark.logs.log_view import LogView
from penstock.spark.logs.storage import storage_of

__all__ = ["behind", "main"]


def behind(job: Job) -> tuple[int, int]:
    """Positions and bytes of the log behind the job's last micro-batch. Raises SparkError, OSError."""
    view = LogView(storage_of(job.data, 0.0))  # who asks does not want to wait
    view.refresh()
    end = view.end()
    return span(view, min(job.position, end), end)


def _run(arguments: argparse.Namespace) -> int:
    code = 0
    for job in jobs():
        try:
            positions, nbytes = behind(job)
        except (PenstockError, OSError) as error:
            print(f"{job.name:20} unknown: {error}")
            code = 1
        else:
            print(f"{job.name:20} {job.state():10} {positions:12} positions, {nbytes / 1e6:.1f} MB behind")
    return code


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("lag", "How much of the log each job has still to read.", lambda _: None, _run, words)


if __name__ == "__main__":
    sys.exit(main())
