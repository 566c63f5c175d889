"""Tables without Spark: positions, what counts, and what tidying leaves."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.spark.errors import SparkError
from penstock.spark.schema import arrow_schema
from penstock.spark.tables.delta import DeltaFormat
from penstock.spark.tables.files import write_files
from tests.support.spark_tables import SCHEMA, batch, offsets


def test_a_delta_table_is_tidied_and_keeps_its_rows(tmp_path: Path) -> None:
    table = DeltaFormat(tmp_path)
    table.create(SCHEMA)
    for first in range(0, 50, 10):
        table.publish("log", write_files(tmp_path, [batch(first, 10)]), first, first + 10)
    orphans = write_files(tmp_path, [batch(1000, 5), batch(2000, 5, day=2)])
    before_last_week = time.time() - 8 * 86400
    os.utime(tmp_path / orphans[0].path, (before_last_week, before_last_week))
    assert table.compact() == "5 files became 1, 1 old ones were removed"
    assert offsets(tmp_path) == list(range(50))
    assert not (tmp_path / orphans[0].path).exists()
    assert (tmp_path / orphans[1].path).exists(), "a job may be about to publish it"
    assert (table.position("log"), table.position("another")) == (50, None)


def test_readers_of_delta_can_skip_files_by_their_offsets(tmp_path: Path) -> None:
    table = DeltaFormat(tmp_path)
    table.create(SCHEMA)
    table.publish("log", write_files(tmp_path, [batch(100, 10)]), 100, 110)
    (file,) = pa.table(DeltaTable(str(tmp_path)).get_add_actions(flatten=True)).to_pylist()
    assert (file["num_records"], file["min.offset"], file["max.offset"]) == (10, 100, 109)


def test_a_table_with_other_columns_or_types_is_refused(tmp_path: Path) -> None:
    DeltaFormat(tmp_path).create(SCHEMA)
    DeltaFormat(tmp_path).create(SCHEMA)
    with pytest.raises(SparkError, match="has the columns"):
        DeltaFormat(tmp_path).create(arrow_schema(["offset"]))
    other = pa.schema([pa.field("offset", pa.int32()), SCHEMA.field("append_time")])
    with pytest.raises(SparkError, match="give the columns it has, or another table"):
        DeltaFormat(tmp_path).create(other)


def test_rows_of_several_days_are_several_files(tmp_path: Path) -> None:
    files = write_files(tmp_path, [batch(1, 3), batch(4, 2, day=2), batch(6, 1)])
    assert [(file.date, file.rows, file.first, file.last) for file in files] == [
        ("2026-05-01", 4, 1, 6),
        ("2026-05-02", 2, 4, 5),
    ]

    def fails() -> object:
        yield batch(10, 1, day=9)
        raise ValueError

    with pytest.raises(ValueError):
        write_files(tmp_path, fails())  # type: ignore[arg-type]
    assert not list((tmp_path / "event_date=2026-05-09").iterdir())
