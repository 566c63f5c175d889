"""Frames of messages, from a log or from a table that `sink` made."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.spark.jobs.shared.arguments import log_source, table_uri
from penstock.spark.jobs.shared.common import DATA, choice_of
from penstock.spark.tables.files import PARTITION
from penstock.spark.tables.table import TABLES, readable_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["HEADER", "add_input", "frame_of", "reading"]

HEADER = "try_element_at(transform(filter(headers, h -> h.name = '{name}'), h -> cast(h.value AS string)), 1)"
"""SQL for the first header of a name, as text; null when there is none."""


def add_input(parser: argparse.ArgumentParser) -> None:
    """Arguments that say where messages come from."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=log_source, metavar="LOG", help=DATA)
    source.add_argument("--from", dest="table", type=table_uri, metavar="TABLE", help=f"a table: {TABLES}")
    parser.add_argument("--where", metavar="SQL", help="a condition on the columns of the table")


def frame_of(
    spark: SparkSession, arguments: argparse.Namespace, columns: str | None = None, *, report: str = ""
) -> DataFrame:
    """The messages that the arguments say; with `columns`, at least these. Raises SparkError.

    `report` is the address of a listener whom tasks that read the log tell how far they are.
    """
    if arguments.table is not None:
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
    folder, files = readable_files(uri)
    return spark.read.option("basePath", str(folder)).parquet(*files).drop(PARTITION)
