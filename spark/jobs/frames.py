"""Frames of messages, from a log or from a table that `sink` made."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.spark.errors import SparkError
from penstock.spark.files import PARTITION
from penstock.spark.jobs.common import DATA, choice_of, log_source
from penstock.spark.locations import is_local
from penstock.spark.tables import TABLES, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["HEADER", "add_input", "frame_of", "reading"]

HEADER = "try_element_at(transform(filter(headers, h -> h.name = '{name}'), h -> cast(h.value AS string)), 1)"
"""SQL for the first header of a name, as text; null when there is none."""


def add_input(parser: argparse.ArgumentParser) -> None:
    """Arguments that say where messages come from."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=log_source, metavar="LOG", help=DATA)
    source.add_argument("--from", dest="table", metavar="TABLE", help=f"a table: {TABLES}")
    parser.add_argument("--where", metavar="SQL", help="a condition on the columns of the table")


def frame_of(
    spark: SparkSession, arguments: argparse.Namespace, columns: str | None = None, *, report: str = ""
) -> DataFrame:
    """The messages that the arguments say; with `columns`, at least these. Raises SparkError.

    `report` is the address of a listener whom tasks that read the log tell how far they are.
    """
    if arguments.table is not None:
        chosen = choice_of(arguments)
        if chosen:
            raise SparkError(f"a table is not asked by {', '.join(chosen)}", remedy="use --where")
        frame = _of_table(spark, arguments.table)
    else:
        chosen = reading(arguments, report)
        if columns is not None and arguments.where is None:
            chosen["columns"] = columns
        frame = spark.read.format("penstock").options(**chosen).load(str(arguments.data))
    return frame if arguments.where is None else frame.where(arguments.where)


def reading(arguments: argparse.Namespace, report: str) -> dict[str, str]:
    """The options of the source that the arguments say, and where its tasks tell how far they are."""
    return {**choice_of(arguments), **({"report": report} if report else {})}


def _of_table(spark: SparkSession, uri: str) -> DataFrame:
    table = open_table(uri)
    if not is_local(table.path):
        raise SparkError(
            f"Spark reads no {uri} without a JVM package for it",
            remedy="read the log with --data and --archive, which can be in S3",
        )
    files = table.paths()
    if not files:
        raise SparkError(f"there is nothing in {uri}")
    return spark.read.option("basePath", str(table.path)).parquet(*files).drop(PARTITION)
