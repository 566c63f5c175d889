"""Cold segments into an archive of Parquet.

    penstock spark tier --data DIR --to parquet:PATH --older-than 6h
    spark-submit .../penstock/spark/jobs/tier.py --engine spark --data DIR --to parquet:PATH --older-than 6h

With the engine `local`, the default, there is no JVM: `--cores` processes translate.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.spark.errors import SparkError
from penstock.spark.jobs.shared.arguments import duration_s, log_source
from penstock.spark.jobs.shared.common import DATA, program
from penstock.spark.jobs.shared.progress import add_output, progress_of
from penstock.spark.logs.archive import archive_path
from penstock.spark.logs.tiering import Cold, Mapper, tier
from penstock.spark.tables.files import DataFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["main", "on_spark"]


def on_spark(spark: SparkSession) -> Mapper:
    """Translate in tasks of this session, as many segments at a time as it has cores."""

    def run(
        translate: Callable[[Cold], Sequence[DataFile]], todo: Iterable[Cold]
    ) -> Iterator[Sequence[DataFile]]:
        context = spark.sparkContext
        waiting = list(todo)
        width = context.defaultParallelism
        for at in range(0, len(waiting), width):
            part = waiting[at : at + width]
            yield from context.parallelize(part, len(part)).map(translate).collect()

    return run


@contextmanager
def _mapper(arguments: argparse.Namespace) -> Iterator[Mapper]:
    cores = arguments.cores or os.cpu_count() or 1
    if arguments.engine == "spark":
        from penstock.spark.session import session

        spark = session("penstock spark tier", cores=cores, memory=arguments.memory)
        try:
            yield on_spark(spark)
        finally:
            spark.stop()
    elif cores == 1:
        yield map
    else:
        # Arrow has threads, which do not survive a fork.
        try:
            pool = ProcessPoolExecutor(cores, multiprocessing.get_context("spawn"))
        except (NotImplementedError, OSError) as error:
            remedy = "mount /dev/shm, where processes keep their semaphores, or give --cores 1"
            raise SparkError(f"no processes to translate in: {error}", remedy=remedy) from error
        with pool:
            yield pool.map


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", required=True, type=log_source, metavar="LOG", help=DATA)
    parser.add_argument("--to", required=True, metavar="ARCHIVE", help="parquet:PATH")
    parser.add_argument(
        "--older-than",
        type=duration_s,
        default="6h",
        metavar="T",
        help="take segments with nothing younger (default: %(default)s)",
    )
    parser.add_argument("--engine", choices=("local", "spark"), default="local", help="default: %(default)s")
    parser.add_argument("--cores", type=int, help="cores to use (default: all)")
    parser.add_argument("--memory", default="1g", help="memory of Spark's process (default: %(default)s)")
    add_output(parser)
    parser.add_argument(
        "--allow-loss", action="store_true", help="go on without what retention took before it was copied"
    )


def _run(arguments: argparse.Namespace) -> int:
    to = archive_path(arguments.to)
    before_ms = int((time.time() - arguments.older_than) * 1000)
    done = rows = log_bytes = file_bytes = 0
    progress = progress_of(arguments)
    with _mapper(arguments) as run:
        for commit in tier(arguments.data, to, before_ms, run, allow_loss=arguments.allow_loss):
            done += 1
            rows += commit.rows
            log_bytes += commit.log_bytes
            file_bytes += commit.file_bytes
            if progress.json:
                progress.tell("segment", **asdict(commit))
            else:
                print(
                    f"{time.strftime('%H:%M:%S')} [{commit.first}, {commit.last}): {commit.rows} messages, "
                    f"{commit.log_bytes / 1e6:.1f} MB of log are {commit.file_bytes / 1e6:.1f} MB of Parquet",
                    flush=True,
                )
            if commit.left:
                part = log_bytes / (log_bytes + commit.left_bytes)
                progress.show("copied", rows, log_bytes, part)
    total = f"{log_bytes / 1e6:.1f} MB of log are {file_bytes / 1e6:.1f} MB of Parquet"
    facts = {"segments": done, "messages": rows, "log_bytes": log_bytes, "file_bytes": file_bytes}
    progress.done(f"{done} segments, {rows} messages, {total}", **facts)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("tier", "Cold segments into an archive of Parquet.", _add, _run, words)


if __name__ == "__main__":
    sys.exit(main())
