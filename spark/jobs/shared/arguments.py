"""Types of the jobs' arguments: a mistake in one is told before Spark starts, which takes seconds."""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock.spark.errors import SparkOptionError
from penstock.spark.logs.archive import archive_path
from penstock.spark.options import parse_duration_s
from penstock.spark.tables.table import open_table

__all__ = ["amqp_url", "archive_uri", "duration_s", "log_source", "new_file", "table_uri"]


def amqp_url(text: str) -> str:
    """The URL of a gateway that messages are sent to. Raises SparkOptionError."""
    from penstock.spark.publishing.amqp import check_url  # with TLS: who reads needs none of it

    check_url(text)
    return text


def archive_uri(text: str) -> str:
    """The URI of what `tier` wrote. Raises SparkOptionError."""
    archive_path(text)
    return text


def duration_s(text: str) -> float:
    """The seconds of a duration such as 10s. Raises ArgumentTypeError."""
    try:
        return parse_duration_s("", text)
    except SparkOptionError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no duration: {error.remedy}") from None


def log_source(text: str) -> Path | str:
    """A data folder, or the URL of a gateway."""
    return text if "://" in text else Path(text)


def new_file(text: str) -> Path:
    """A file that will be written. Raises ArgumentTypeError: its folder is not there."""
    file = Path(text)
    if not file.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {file.parent}")
    return file


def table_uri(text: str) -> str:
    """The URI of a table. Raises SparkOptionError."""
    open_table(text)
    return text
