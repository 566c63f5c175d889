"""Tables in Iceberg without Spark: what pyiceberg's own readers find in them.

pyiceberg is imported where a test needs it: every process of the tests collects this module.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.spark.errors import SparkError, SparkOptionError
from penstock.spark.schema import COLUMNS, arrow_schema
from penstock.spark.tables import iceberg as table_iceberg
from penstock.spark.tables.files import DataFile, write_files
from penstock.spark.tables.iceberg import IcebergFormat
from tests.support.spark_tables import SCHEMA, batch

if TYPE_CHECKING:
    from pyiceberg.table import Table


def made(folder: Path) -> IcebergFormat:
    table = IcebergFormat(f"{folder}/gw.traffic")
    table.create(SCHEMA)
    return table


def written(table: IcebergFormat, first: int, count: int, day: int = 1) -> list[DataFile]:
    return list(write_files(table.path, [batch(first, count, day)]))


def read(folder: Path) -> Table:
    """The table as anybody else opens it."""
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db").load_table("gw.traffic")


def offsets(folder: Path) -> list[int]:
    return sorted(read(folder).scan().to_arrow().column("offset").to_pylist())


def test_published_rows_are_read_and_days_are_partitions(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert table.position("log") is None
    table.publish("log", written(table, 1, 10) + written(table, 11, 5, day=2), 1, 16)
    assert table.position("log") == 16
    assert offsets(tmp_path) == list(range(1, 16))
    found = read(tmp_path).scan("append_time >= '2026-05-02T00:00:00+00:00'")
    assert len(list(found.plan_files())) == 1, "the other day's file is not looked at"
    assert sorted(found.to_arrow().column("offset").to_pylist()) == list(range(11, 16))
    assert all(Path(path).is_file() for path in table.paths())
    last = read(tmp_path).current_snapshot()
    assert last is not None
    assert last.summary is not None
    assert last.summary["penstock.last"] == "16"


def test_all_columns_of_traffic_have_types_in_iceberg(tmp_path: Path) -> None:
    table = IcebergFormat(f"{tmp_path}/gw.traffic")
    columns = arrow_schema(tuple(COLUMNS))
    table.create(columns)
    table.create(columns)
    row = {name: None for name in COLUMNS} | {
        "offset": 7,
        "append_time": datetime(2026, 5, 1, tzinfo=UTC),
        "priority": 3,
        "headers": [{"name": "a", "type": "string", "value": b"b"}],
        "payload": b"\x00",
    }
    table.publish("log", list(write_files(table.path, [pa.RecordBatch.from_pylist([row], columns)])), 1, 8)
    (found,) = read(tmp_path).scan().to_arrow().to_pylist()
    assert found == row


def test_small_files_are_joined_and_old_ones_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path)
    for first in (20, 0, 10):
        table.publish(f"log {first}", written(table, first, 10), first, first + 10)
    table.publish("log", written(table, 100, 1, day=2), 100, 101)
    orphan = written(table, 1000, 5)
    old = list(table.path.rglob("*.parquet"))
    before_last_week = time.time() - 8 * 86400
    os.utime(table.path / orphan[0].path, (before_last_week, before_last_week))
    assert table.compact() == "3 files became 1, 0 old snapshots and 1 old files were removed"
    assert offsets(tmp_path) == [*range(30), 100]
    (joined,) = [p for p in table.paths() if p not in map(str, old)]
    assert pa.parquet.read_table(joined).column("offset").to_pylist() == list(range(30)), "in order"
    assert table.compact().startswith("0 files became 0,")
    # A week later nobody reads the older snapshots any more.
    monkeypatch.setattr(table_iceberg, "_KEPT", timedelta(0))
    for path in tmp_path.rglob("*"):
        os.utime(path, (before_last_week, before_last_week))
    assert ", 4 old snapshots and " in table.compact()
    left = {str(path) for path in table.path.rglob("*.parquet")}
    assert left == set(table.paths())
    assert offsets(tmp_path) == [*range(30), 100]
    assert len(read(tmp_path).snapshots()) == 1
    assert table.position("log 10") == 20
    # A reader that has but the files.
    from pyiceberg.table import StaticTable

    newest = max(table.path.parent.glob("metadata/*.metadata.json"))
    assert len(StaticTable.from_metadata(str(newest)).scan().to_arrow()) == 31


def test_of_two_jobs_with_one_log_one_publishes(tmp_path: Path) -> None:
    made(tmp_path)

    def job(number: int) -> str:
        table = IcebergFormat(f"{tmp_path}/gw.traffic")
        table.publish(f"log {number}", written(table, 10 * number, 10), 0, 10)
        try:
            table.publish("log", written(table, 500, 10), 0, 10)
        except SparkError as error:
            return error.message
        return "published"

    with ThreadPoolExecutor(3) as pool:
        said = sorted(pool.map(job, range(3)))
    assert said == ["another job has put [0, 10) into gw.traffic"] * 2 + ["published"]
    assert offsets(tmp_path) == [*range(30), *range(500, 510)]


def test_a_catalog_that_pyiceberg_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SparkError, match="knows no catalog 'lake'"):
        IcebergFormat("lake/gw.traffic").position("log")
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/house")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it was read when that was imported
    table = IcebergFormat("lake/gw.traffic")
    table.create(SCHEMA)
    assert table.path == tmp_path / "house" / "gw" / "traffic" / "data"
    table.publish("log", written(table, 1, 3), 1, 4)
    assert table.position("log") == 4


def test_a_table_with_other_columns_or_without_a_name_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(SparkError, match="has the columns"):
        IcebergFormat(f"{tmp_path}/gw.traffic").create(arrow_schema(["append_time"]))
    for place in ("gw.traffic", f"{tmp_path}/traffic", f"{tmp_path}/a#b/gw.traffic"):
        with pytest.raises(SparkOptionError, match=r"NAMESPACE\.TABLE"):
            IcebergFormat(place)
