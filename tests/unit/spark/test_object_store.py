"""Tables and archives in S3, against a server of its own (moto) on the loopback interface."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from upath import UPath

from penstock.log_core.log import Log
from penstock.spark.errors import SparkError
from penstock.spark.locations import location_of, opened_parquet
from penstock.spark.logs.archive import archive_path
from penstock.spark.logs.tiering import tier
from penstock.spark.tables.files import DataFile, write_files
from penstock.spark.tables.table import Table, open_table
from tests.support.logs import KIB, durable_feed, fill, open_log, settle
from tests.support.spark_archives import LATER_MS, archived, forget, rows
from tests.support.spark_tables import SCHEMA, batch


@pytest.fixture(scope="module")
def store() -> Iterator[None]:
    """A server, and what tools for S3 want of the environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    said = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }
    before = dict(os.environ)
    os.environ.update(said)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        UPath("s3://lake").mkdir()
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.terminate()
        server.wait()


def add(table: Table, first: int) -> list[DataFile]:
    files = list(write_files(table.path, [batch(first, 10)]))
    table.publish("log", files, first, first + 10)
    return files


@pytest.mark.usefixtures("store")
def test_a_delta_table_in_a_bucket_is_read_by_others_and_tidied() -> None:
    table = open_table("delta:s3://lake/delta")
    table.create(SCHEMA)
    assert table.position("log") is None
    for first in (0, 10, 20):
        add(table, first)
    again = open_table("delta:s3://lake/delta")
    again.create(SCHEMA)
    assert again.position("log") == 30
    assert again.compact() == "3 files became 1, 0 old ones were removed"
    found = DeltaTable("s3://lake/delta").to_pyarrow_table().column("offset").to_pylist()
    assert sorted(found) == list(range(30))


@pytest.mark.usefixtures("store")
def test_a_table_of_plain_files_in_a_bucket_counts_what_its_commits_list() -> None:
    table = open_table("parquet:s3://lake/plain")
    table.create(SCHEMA)
    add(table, 0)
    orphan = write_files(table.path, [batch(100, 5)])
    (file,) = add(table, 10)
    assert table.position("log") == 20
    paths = table.paths()
    assert len(paths) == 2
    assert f"s3://lake/plain/{file.path}" in paths
    assert not any(orphan[0].path in path for path in paths)
    offsets = []
    for path in paths:
        with opened_parquet(location_of(path)) as parquet:
            offsets += parquet.read().column("offset").to_pylist()
    assert sorted(offsets) == list(range(20))
    with pytest.raises(FileExistsError):
        table.publish("log", [file], 10, 20)
    with pytest.raises(SparkError, match="has the columns"):
        table.create(SCHEMA.remove(0))
    assert table.compact() == "0 files that no commit lists were removed", "it is too young"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(tmp_path / "data", checkpoint_bytes=64 * KIB, traffic_retention_bytes=1 << 40)
    yield log
    log.close_sync()


@pytest.mark.usefixtures("store")
def test_an_archive_in_a_bucket_and_the_log_are_one_table(log: Log, tmp_path: Path) -> None:
    lsns = fill(log, durable_feed(log), 400 * KIB)
    settle(log)
    to = archive_path("parquet:s3://lake/archive")
    reached = [commit.last for commit in tier(tmp_path / "data", to, LATER_MS)]
    assert len(reached) > 2
    assert not list(tier(tmp_path / "data", to, LATER_MS)), "a second run has nothing to do"
    forget(log, tmp_path)
    view, options = archived(tmp_path, archive="parquet:s3://lake/archive")
    assert view.log.first > lsns[0], "the log itself has less"
    assert rows(view, options) == lsns
    some = (lsns[3], reached[-1] + 5)
    assert rows(view, options, first=some[0], last=some[1]) == [n for n in lsns if some[0] <= n < some[1]]
    assert view.before_time(0) == view.first
