"""`format("penstock")` with `table=events`: what became of messages, once or as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.running import run_to_end
from tests.support.brokers import Gateway
from tests.support.pika_queues import consume_in_transactions
from tests.support.spark_source import wait_for_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def noting(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "gateway", settings={"events.kinds": "connect,deliver,ack"}) as running:
        yield running


def test_events_are_a_table_and_a_stream_and_join_the_traffic(
    spark: SparkSession, noting: Gateway, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"

    def stream() -> None:
        frame = spark.readStream.format("penstock").option("table", "events")
        frame = frame.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "50")
        frame = frame.load(str(noting.data_dir))
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        run_to_end(lambda: writer.trigger(availableNow=True).start(str(tmp_path / "out")))

    consume_in_transactions(noting.amqp_port, 100)
    end = wait_for_end(noting, 0)
    stream()
    consume_in_transactions(noting.amqp_port, 50)
    wait_for_end(noting, end)
    stream()
    events = spark.read.format("penstock").option("table", "events").load(str(noting.data_dir))
    counts = {row["kind"]: row["count"] for row in events.groupBy("kind").count().collect()}
    assert counts == {"connect": 2, "deliver": 150, "ack": 150}
    traffic = spark.read.format("penstock").option("columns", "offset,routing_key").load(str(noting.data_dir))
    acked = events.where("kind = 'ack'").join(traffic, events["message_offset"] == traffic["offset"])
    assert acked.where("queue = routing_key").count() == 150
    streamed = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(map(tuple, streamed.collect()), key=str) == sorted(map(tuple, events.collect()), key=str)
