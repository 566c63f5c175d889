"""The streaming jobs of this user on this machine: `penstock spark jobs`. Needs no Spark."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from penstock.spark.jobs.shared.common import program
from penstock.spark.jobs.shared.registry import jobs

__all__ = ["main"]


def _run(arguments: argparse.Namespace) -> int:
    found = jobs()
    if not found:
        print("no jobs")
    for job in found:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(job.updated))
        print(
            f"{job.name:20} {job.verb:10} {job.state():10} {job.batches:8} micro-batches  {at} UTC  {job.to}"
        )
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("jobs", "The streaming jobs of this user on this machine.", lambda _: None, _run, words)


if __name__ == "__main__":
    sys.exit(main())
