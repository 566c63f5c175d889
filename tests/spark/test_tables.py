"""Traffic into tables: each message once, over lost commits and lost checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.jobs.sink import start_sink
from penstock.spark.running import run_to_end
from penstock.spark.tables.table import open_table
from tests.support.brokers import Gateway
from tests.support.spark_source import publish, wait_for_end
from tests.support.written_tables import lose_last_commit, payloads, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
