"""`format("penstock")` with `table=events`: what became of messages, once or as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from penstock.spark.running import run_to_end
from tests.spark.test_source import wait_for_end
from tests.support.brokers import Gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def noting(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "gateway", settings={"events.kinds": "connect,deliver,ack"}) as running:
        yield running


def consume(gateway: Gateway, count: int) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port))
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    for _ in range(count):
        channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
    channel.tx_commit()
    done = 0
    for method, _, _ in channel.consume("q"):
        done += 1
        if done == count:
            channel.basic_ack(method.delivery_tag, multiple=True)
            channel.tx_commit()
            break
    connection.close()


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

    consume(noting, 100)
    end = wait_for_end(noting, 0)
    stream()
    consume(noting, 50)
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
