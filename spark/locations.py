"""Locations of the files of a table or an archive: a folder, or a prefix of a bucket of S3.

Both have the methods of a `pathlib.Path` (the latter from the package universal-pathlib, over s3fs), so the
same code writes and lists files. The differences are here. With s3://, the environment has the rest, as for
every tool for S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL (and
AWS_ALLOW_HTTP=true for one without TLS).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from penstock.extras import install
from penstock.spark.errors import SparkError

__all__ = ["is_local", "location_of", "make_folder", "opened_parquet", "sync", "write_new"]

_S3: Final = "s3://"


def location_of(text: str) -> Path:
    """A path, made absolute, or what s3://BUCKET/PREFIX stands for. Raises SparkError."""
    if not text.startswith(_S3):
        return Path(text.removeprefix("//")).absolute()
    try:
        import s3fs  # noqa: F401
        from upath import UPath
    except ImportError as error:
        raise SparkError(f"{text} needs more packages: {error}", remedy=install("s3")) from None
    # A listing that is remembered would hide what other processes commit.
    return cast("Path", UPath(text, use_listings_cache=False))


def is_local(location: Path) -> bool:
    """Whether it is on a file system."""
    return isinstance(location, Path)


def make_folder(location: Path) -> None:
    """Make a folder with those above it; a bucket has none."""
    if is_local(location):
        location.mkdir(parents=True, exist_ok=True)


def sync(path: Path) -> None:
    """Put a file, or what a folder lists, on the disk; what is in a bucket is kept when it is written."""
    if not is_local(path):
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_new(path: Path, text: str) -> None:
    """Make a file whole, durably, or not at all. Raises FileExistsError."""
    if not is_local(path):
        with path.open("xb") as file:  # a conditional write: If-None-Match
            file.write(text.encode())
        return
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with new.open("w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.link(new, path)
        sync(path.parent)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """A Parquet file to read. Raises OSError."""
    import pyarrow.parquet as pq

    with path.open("rb") as file, pq.ParquetFile(file) as parquet:
        yield parquet
