"""Rows become messages, each once: clients get them, and what Spark sends again is not there twice."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.jobs.shared.common import program
from penstock.spark.running import run_to_end
from tests.support.brokers import Gateway
from tests.support.spark_sink import bound, taken, url
from tests.support.spark_source import publish, read, wait_for_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 2000


def test_a_batch_sent_again_under_its_name_adds_nothing(spark: SparkSession, gateway: Gateway) -> None:
    bound(gateway, "replayed", "#")
    frame = spark.range(0, COUNT, 1, 2).selectExpr(
        "concat('n.', id % 7) AS routing_key",
        "cast(id AS string) AS payload",
        "concat('id-', id) AS message_id",
    )

    def send(producer: str) -> None:
        writer = frame.write.format("penstock").mode("append").option("url", url(gateway))
        writer.option("exchange", "replayed").option("producer", producer).save()

    send("job-1")
    messages = taken(gateway)
    assert sorted(int(body) for _, body, _ in messages) == list(range(COUNT))
    assert {key for key, _, _ in messages} == {f"n.{word}" for word in range(7)}
    assert all(p.message_id == f"id-{int(body)}" and p.delivery_mode == 2 for _, body, p in messages)
    send("job-1")
    assert taken(gateway) == []
    send("job-2")
    assert len(taken(gateway)) == COUNT


def test_a_replayed_micro_batch_makes_no_duplicates(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    sent = publish(gateway, 0, 300)
    wait_for_end(gateway, 0)
    bound(gateway, "copy", "#")

    def run() -> None:
        source = spark.readStream.format("penstock").option("startingOffsets", "earliest")
        frame = (
            source.option("maxOffsetsPerTrigger", "150")
            .option("exchanges", "amq.topic")
            .load(str(gateway.data_dir))
        )
        writer = frame.writeStream.format("penstock").option("url", url(gateway)).option("exchange", "copy")
        run_to_end(
            writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start
        )

    run()
    messages = taken(gateway)
    assert sorted(body.decode() for _, body, _ in messages) == sorted(sent)
    by_key = {key: properties for key, _, properties in messages}
    assert set(by_key) == {"plant.1.amqp", "plant.1.mqtt"}
    headers = by_key["plant.1.amqp"].headers
    assert headers is not None
    assert (headers["n"], headers["s"]) == (1, "x")
    commits = tmp_path / "checkpoint" / "commits"
    newest = max(
        (path for path in commits.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name)
    )
    newest.unlink()
    (commits / f".{newest.name}.crc").unlink(missing_ok=True)
    run()
    assert taken(gateway) == []


def test_unsendable_frames_are_refused(
    spark: SparkSession, gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.range(1).selectExpr("'x' AS payload")
    writer = frame.write.format("penstock").mode("append").option("url", url(gateway))
    with pytest.raises(Exception, match="it is not said to which exchange"):
        writer.save()
    writer = writer.option("exchange", "nowhere").option("routingKey", "k")
    refused = "no exchange 'nowhere' in vhost '/'; declare the exchange first"
    with pytest.raises(Exception, match=refused):
        writer.save()
    with pytest.raises(Exception, match="column 'id' is none of a message"):
        spark.range(1).write.format("penstock").mode("append").option("url", url(gateway)).save()
    assert read(spark, gateway).count() == 0

    # A job says it in one line, though Spark says it in a hundred.
    def stream(_: argparse.Namespace) -> int:
        options = {"url": url(gateway), "exchange": "nowhere"}
        source = spark.readStream.format("penstock").option("startingOffsets", "earliest")
        writer = source.load(str(gateway.data_dir)).writeStream.format("penstock").options(**options)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        run_to_end(writer.start)
        return 0

    publish(gateway, 0, 2)
    wait_for_end(gateway, 0)
    for run in (lambda _: writer.save() or 0, stream):
        capsys.readouterr()
        assert program("test", "", lambda _: None, run, []) == 1
        (line,) = [
            line for line in capsys.readouterr().err.splitlines() if line.startswith("penstock: error:")
        ]
        assert f"refused it: 404 NOT_FOUND - {refused}" in line
    with pytest.raises(Exception, match="cannot be resolved"):  # that is Spark's own to say, as it does
        program("test", "", lambda _: None, lambda _: frame.select("nothing").count(), [])
