"""Tables over power cuts: what a job noted as done is there, and what a cut left half done goes away."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from penstock.spark.errors import SparkError
from penstock.spark.tables.delta import DeltaFormat
from penstock.spark.tables.files import write_files
from penstock.spark.tables.iceberg import IcebergFormat
from penstock.spark.tables.table import open_table
from tests.support.faults import LoopDisk
from tests.support.spark_tables import SCHEMA, batch, offsets


def filled(path: Path, commits: int) -> DeltaFormat:
    table = DeltaFormat(path)
    table.create(SCHEMA)
    for first in range(0, 10 * commits, 10):
        table.publish("log", write_files(path, [batch(first, 10)]), first, first + 10)
    return table


def iceberg_offsets(folder: Path) -> list[int]:
    catalog = SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db")
    found = sorted(catalog.load_table("gw.traffic").scan().to_arrow().column("offset").to_pylist())
    catalog.close()
    return found


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_published_rows_survive_a_power_cut(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    reason = LoopDisk.why_not(tmp_path_factory.getbasetemp())
    if reason:
        pytest.skip(reason)
    with LoopDisk(tmp_path, 32) as disk:
        root = disk.path / "lake"
        uri = f"{kind}:{root}/gw.traffic" if kind == "iceberg" else f"{kind}:{root}"
        table = open_table(uri)
        table.create(SCHEMA)
        for first in (0, 10, 20):
            table.publish("log", write_files(table.path, [batch(first, 10)]), first, first + 10)
        table.compact()
        disk.cut_power()
        if isinstance(table, IcebergFormat):
            table._opened().close()
        disk.unmount()
        disk.mount()
        table = open_table(uri)
        table.create(SCHEMA)
        assert table.position("log") == 30
        if kind == "delta":
            assert offsets(root) == list(range(30))
        elif kind == "iceberg":
            assert iceberg_offsets(root) == list(range(30))
        else:
            assert len(table.paths()) == 3
            assert all(Path(path).stat().st_size for path in table.paths())


def cut_off_commit(path: Path) -> None:
    newest = max((path / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:200])


def empty_commit(path: Path) -> None:
    max((path / "_delta_log").glob("*.json")).write_bytes(b"")


def lost_commit(path: Path) -> None:
    max((path / "_delta_log").glob("*.json")).unlink()


def empty_file(path: Path) -> None:
    newest = max(path.glob("*/*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    newest.write_bytes(b"")


@pytest.mark.parametrize("harm", [cut_off_commit, empty_commit, lost_commit, empty_file])
def test_a_commit_that_a_power_cut_tore_is_taken_back_and_made_again(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    filled(tmp_path, 3)
    harm(tmp_path)
    table = DeltaFormat(tmp_path)
    table.create(SCHEMA)
    # The job's repeated rows go to the end of the table.
    assert table.position("log") == 20
    table.publish("log", write_files(tmp_path, [batch(20, 10)]), 20, 30)
    assert offsets(tmp_path) == list(range(30))


def test_a_compaction_whose_files_are_not_on_the_disk_is_taken_back(tmp_path: Path) -> None:
    table = filled(tmp_path, 5)
    before = set(table.paths())
    table.compact()
    (joined,) = set(table.paths()) - before
    Path(joined).write_bytes(b"")
    again = DeltaFormat(tmp_path)
    again.create(SCHEMA)
    assert offsets(tmp_path) == list(range(50))
    assert again.position("log") == 50


def test_a_checkpoint_of_the_log_that_is_cut_off_is_not_used(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    DeltaTable(str(tmp_path)).create_checkpoint()
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    table = DeltaFormat(tmp_path)
    table.create(SCHEMA)
    assert offsets(tmp_path) == list(range(30))
    assert table.position("log") == 30


def others(path: Path, count: int) -> None:
    """Commits of somebody else, who syncs nothing: a file each."""
    for first in range(1000, 1000 + count):
        write_deltalake(str(path), rows_like(path, first), mode="append")


def rows_like(path: Path, first: int) -> pa.Table:
    """A row with the table's columns."""
    found = DeltaTable(str(path)).to_pyarrow_table().slice(0, 1)
    column = pa.array([first], found.schema.field("offset").type)
    return found.set_column(found.schema.get_field_index("offset"), "offset", column)


def torn(path: Path, version: int) -> None:
    commit = path / "_delta_log" / f"{version:020}.json"
    commit.write_bytes(commit.read_bytes()[:50])


def test_many_commits_of_others_behind_the_last_one_are_taken_back_too(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    others(tmp_path, 12)
    torn(tmp_path, 4)
    table = DeltaFormat(tmp_path)
    table.create(SCHEMA)
    assert sorted(offsets(tmp_path)) == [*range(20), 1000], "versions 0 to 3"
    assert table.position("log") == 20


def test_commits_that_a_job_has_built_on_are_not_undone(tmp_path: Path) -> None:
    table = filled(tmp_path, 2)
    others(tmp_path, 1)
    for first in range(20, 160, 10):
        table.publish("log", write_files(tmp_path, [batch(first, 10)]), first, first + 10)
    torn(tmp_path, 3)
    with pytest.raises(SparkError, match=r"is damaged in 0{19}3\.json"):
        DeltaFormat(tmp_path).create(SCHEMA)
    assert len(list((tmp_path / "_delta_log").glob("*.json"))) == 1 + 2 + 1 + 14


def test_damage_that_no_power_cut_explains_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    shutil.rmtree(next(tmp_path.glob("event_date=*")))
    (tmp_path / "_delta_log" / f"{0:020}.json").write_bytes(b"")
    with pytest.raises(SparkError, match=r"is damaged in 0{20}\.json"):
        DeltaFormat(tmp_path).create(SCHEMA)
