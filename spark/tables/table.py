"""Tables that a job fills: files first, then one commit that says which files count and up to where.

A commit names whose work it is and the position it reaches: a log and an offset of it, or a query and a
micro-batch. So what is in the table is known from the table alone: a batch that is published again changes
nothing, and a job that reads a log goes on behind the last commit when its checkpoint is lost.

    delta:PATH      `table_delta`: the position is the version of the transaction of application penstock:WHO
    iceberg:PLACE   `table_iceberg`: the position is the table's property penstock.position.WHO
    parquet:PATH    `table_parquet`: a JSON file for each commit lists its files; the others do not count

PATH may be s3://BUCKET/PREFIX for the first and the last (`locations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from penstock.spark.errors import SparkError, SparkOptionError
from penstock.spark.locations import is_local, location_of
from penstock.spark.tables.files import PARTITION, DataFile

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TABLES", "Table", "open_table", "readable_files", "same_columns", "with_partition"]

TABLES: Final = "delta:PATH, iceberg:FOLDER/NAMESPACE.TABLE or parquet:PATH"


class Table(Protocol):
    """The part of a table format that a job needs."""

    @property
    def path(self) -> Path:
        """The folder that files are written in."""

    def position(self, who: str) -> int | None:
        """Behind the last thing of `who` that the table has; None: it has none."""

    def create(self, schema: pa.Schema, moment: str = "append_time") -> None:
        """Make the table if there is none, partitioned by the day of the column `moment`.

        Formats without such partitions have the column `event_date` besides. Changes that a power cut left
        half done are put right.

        Raises SparkError when it has other columns.
        """

    def publish(self, who: str, files: Sequence[DataFile], first: int, last: int) -> None:
        """Add files, in one step, which hold [first, last) of `who`, and move its position to `last`.

        All of it is on the disk when this returns.
        """

    def make_durable(self) -> None:
        """Put what the table has on the disk: it may be of a process that was killed before it did."""

    def paths(self) -> list[str]:
        """The files that count, absolute."""

    def compact(self) -> str:
        """Make few files of many; says what was done."""


def open_table(uri: str) -> Table:
    """The table of a URI such as delta:/lake/traffic. Raises SparkOptionError."""
    from penstock.spark.tables.delta import DeltaFormat
    from penstock.spark.tables.iceberg import IcebergFormat
    from penstock.spark.tables.parquet import ParquetFormat

    kind, colon, path = uri.partition(":")
    if not colon or kind not in ("delta", "iceberg", "parquet") or not path:
        raise SparkOptionError("to", uri, f"give {TABLES}")
    if kind == "iceberg":
        return IcebergFormat(path.removeprefix("//"))
    return (DeltaFormat if kind == "delta" else ParquetFormat)(location_of(path))


def readable_files(uri: str) -> tuple[Path, list[str]]:
    """The folder of a table that Spark can read by itself, and its files. Raises SparkError."""
    table = open_table(uri)
    if not is_local(table.path):
        raise SparkError(
            f"Spark reads no {uri} without a JVM package for it",
            remedy="read the log with --data and --archive, which can be in S3",
        )
    files = table.paths()
    if not files:
        raise SparkError(f"there is nothing in {uri}", remedy="name a table that penstock spark sink filled")
    return table.path, files


def with_partition(schema: pa.Schema) -> pa.Schema:
    """The columns of a table whose files have these."""
    import pyarrow as pa

    return schema.append(pa.field(PARTITION, pa.date32()))


def same_columns(path: Path, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise SparkError unless the table has just these columns, each as text: name and type."""
    if list(found) != list(wanted):
        raise SparkError(
            f"the table {path} has the columns {', '.join(found)}, not {', '.join(wanted)}",
            remedy="give the columns it has, or another table",
        )
