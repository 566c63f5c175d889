"""Traffic into tables: each message once, over lost commits and lost checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import DataScan

from penstock.spark.jobs.sink import start_sink
from penstock.spark.running import run_to_end
from penstock.spark.tables import open_table
from tests.spark.test_source import publish, wait_for_end
from tests.support.brokers import Gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table_at(kind: str, folder: Path) -> str:
    return f"iceberg:{folder}/gw.traffic" if kind == "iceberg" else f"{kind}:{folder}"


def iceberg_scan(uri: str) -> DataScan:
    folder, _, name = uri.partition(":")[2].rpartition("/")
    return SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db").load_table(name).scan()


def rows_of(uri: str) -> pa.Table:
    """What a reader of the format that is none of ours finds."""
    kind, _, path = uri.partition(":")
    if kind == "delta":
        return DeltaTable(path).to_pyarrow_table()
    if kind == "iceberg":
        return iceberg_scan(uri).to_arrow()
    return ds.dataset(open_table(uri).paths(), format="parquet").to_table()


def count_of(uri: str) -> int:
    """How many rows there are, by what the table says of its files."""
    kind, _, path = uri.partition(":")
    if kind == "iceberg":
        folder = Path(path).parent
        if not (folder / "gw" / "traffic" / "metadata").is_dir():
            return 0
        return sum(task.file.record_count for task in iceberg_scan(uri).plan_files())
    if not DeltaTable.is_deltatable(path):
        return 0
    actions = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    return sum(actions.column("num_records").to_pylist())


def payloads(uri: str) -> list[str]:
    return sorted(body.decode() for body in rows_of(uri).column("payload").to_pylist())


def lose_last_commit(checkpoint: Path) -> None:
    """Spark's note that the last micro-batch is done."""
    commits = checkpoint / "commits"
    newest = max(
        (path for path in commits.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name)
    )
    newest.unlink()
    (commits / f".{newest.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_each_message_is_in_the_table_once(
    spark: SparkSession, gateway: Gateway, tmp_path: Path, kind: str
) -> None:
    to, checkpoint = table_at(kind, tmp_path / "table"), tmp_path / "checkpoint"

    def run() -> None:
        options = {"maxOffsetsPerTrigger": "300", "exchanges": "amq.topic"}
        run_to_end(lambda: start_sink(spark, gateway.data_dir, to, checkpoint, options=options))

    sent = publish(gateway, 0, 300)
    end = wait_for_end(gateway, 0)
    run()
    assert payloads(to) == sorted(sent)
    if kind in ("delta", "iceberg"):
        # The last micro-batch comes again: its commit was lost.
        lose_last_commit(checkpoint)
        sent += publish(gateway, len(sent), 100)
        end = wait_for_end(gateway, end)
        run()
        assert payloads(to) == sorted(sent)
    if kind in ("delta", "parquet"):
        # The whole checkpoint is lost: the table knows where it ends.
        shutil.rmtree(checkpoint)
        sent += publish(gateway, len(sent), 100)
        wait_for_end(gateway, end)
        run()
        assert payloads(to) == sorted(sent)
    found = {str(path) for path in (tmp_path / "table").rglob("event_date=*/*.parquet")}
    assert found == set(open_table(to).paths()), "what a repeated micro-batch wrote is gone"
    if kind == "iceberg":
        assert spark.read.parquet(*open_table(to).paths()).count() == len(sent)
