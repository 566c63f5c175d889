"""`format("penstock")`: what clients sent, as rows, once or as it comes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.sdk.log_client import LogClient
from penstock.spark.credentials import with_password
from penstock.spark.functions import header, header_number, headers_map, payload_text
from penstock.spark.running import run_to_end
from tests.spark.conftest import PASSWORD
from tests.support.brokers import Gateway
from tests.support.spark_source import payloads, publish, read, wait_for_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 300


def test_messages_of_clients_are_read_without_a_register_call(spark: SparkSession, gateway: Gateway) -> None:
    sent = publish(gateway, 0, MESSAGES)
    wait_for_end(gateway, 0)
    rows = read(spark, gateway).orderBy("offset").collect()
    assert sorted(bytes(row["payload"]).decode() for row in rows) == sorted(sent)
    by_protocol = {row["protocol"]: row for row in rows}
    amqp, mqtt_row = by_protocol["amqp091"], by_protocol["mqtt"]
    assert (amqp["address"], amqp["routing_key"], amqp["vhost"]) == ("amq.topic", "plant.1.amqp", "/")
    assert amqp["message_id"] == bytes(amqp["payload"]).decode()
    assert {h["name"]: (h["type"], bytes(h["value"])) for h in amqp["headers"]}["s"] == ("string", b"x")
    assert (mqtt_row["address"], mqtt_row["qos"]) == ("plant/1/mqtt", 1)
    assert [tuple(header) for header in mqtt_row["headers"]] == [("k", "string", b"v")]
    # Options that choose, and the SQL way.
    assert sorted(payloads(read(spark, gateway, topics="plant/+/mqtt"))) == sorted(sent[1::2])
    assert sorted(payloads(read(spark, gateway, exchanges="amq.topic", protocols="amqp091"))) == sorted(
        sent[::2]
    )
    assert read(spark, gateway, vhosts="other").count() == 0
    assert read(spark, gateway, columns="offset,payload_size").columns == ["offset", "payload_size"]
    spark.sql(f"CREATE TEMPORARY VIEW traffic USING penstock OPTIONS (path '{gateway.data_dir}')")
    assert spark.sql("SELECT count(*) AS n FROM traffic WHERE qos = 1").first()["n"] == MESSAGES // 2
    spark.catalog.dropTempView("traffic")
    taken = read(spark, gateway, exchanges="amq.topic").orderBy("offset")
    decoded = taken.select(header("s"), header("k"), header_number("n"), headers_map()["k"], payload_text())
    rows = [tuple(row) for row in decoded.collect()]
    assert {row[:4] for row in rows} == {("x", None, 1, None), (None, "v", None, b"v")}
    assert sorted(row[4] for row in rows) == sorted(sent)


def test_a_mistake_is_named(spark: SparkSession, gateway: Gateway) -> None:
    with pytest.raises(Exception, match="the options are path, "):
        read(spark, gateway, colums="offset").count()
    with pytest.raises(Exception, match="there is no log in"):
        spark.read.format("penstock").load("/nowhere").count()
    with pytest.raises(Exception, match="'endingOffsets': 1 cannot be used; the query starts behind it"):
        read(spark, gateway, isolation="written", startingOffsets="2", endingOffsets="1").count()
    source = spark.readStream.format("penstock").options(endingOffsets="1").load(str(gateway.data_dir))
    query = source.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(Exception, match="'endingOffsets': 1 cannot be used; a stream has no end"):
        query.awaitTermination()


def run(frame: DataFrame, checkpoint: Path, seen: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """One AvailableNow run of a stream; `seen` gets (batch, offset) of each row. The progress reports."""

    def take(batch: DataFrame, number: int) -> None:
        seen.extend((number, row["offset"]) for row in batch.select("offset").collect())

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = run_to_end(writer.trigger(availableNow=True).start)
    return [json.loads(progress.json) for progress in query.recentProgress]


def test_a_stream_goes_on_where_its_checkpoint_ends(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    publish(gateway, 0, MESSAGES)
    end = wait_for_end(gateway, 0)

    def stream(**options: str) -> DataFrame:
        source = spark.readStream.format("penstock").option("columns", "offset,payload")
        return source.options(startingOffsets="earliest", **options).load(str(gateway.data_dir))

    seen: list[tuple[int, int]] = []
    run(stream(maxOffsetsPerTrigger="150"), tmp_path / "checkpoint", seen)
    assert len({batch for batch, _ in seen}) > 1, "several micro-batches"
    assert len(seen) == len({offset for _, offset in seen}) == MESSAGES
    publish(gateway, MESSAGES, MESSAGES)
    gateway.kill9()
    gateway.start()
    publish(gateway, 2 * MESSAGES, 50)
    wait_for_end(gateway, end)
    run(stream(maxBytesPerTrigger="100000"), tmp_path / "checkpoint", seen)
    assert len(seen) == len({offset for _, offset in seen}) == 2 * MESSAGES + 50
    # A batch whose commit was lost comes again, with the same rows.
    commits = tmp_path / "checkpoint" / "commits"
    newest = max(
        (path for path in commits.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name)
    )
    newest.unlink()
    (commits / f".{newest.name}.crc").unlink(missing_ok=True)
    again: list[tuple[int, int]] = []
    run(stream(maxBytesPerTrigger="100000"), tmp_path / "checkpoint", again)
    assert sorted(again) == sorted(row for row in seen if row[0] == int(newest.name))


def test_deleted_records_end_the_query_with_their_ranges(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    publish(gateway, 0, 20)
    end = wait_for_end(gateway, 0)
    gateway.terminate()
    # Retention deletes the oldest segment, after the start of a second one.
    gateway.start()
    publish(gateway, 20, 20)
    wait_for_end(gateway, end)
    gateway.terminate()
    (gateway.data_dir / "shard-000" / "wal" / "0000000001.wal").unlink()
    with pytest.raises(Exception, match=r"offsets \[1, \d+\) are not in the log any more"):
        read(spark, gateway, startingOffsets="1").count()
    left = read(spark, gateway, startingOffsets="1", failOnDataLoss="false").count()
    assert left == 20


def test_a_stream_is_sent_the_log_by_its_gateway_and_is_listed_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = {
        "native.listen": "127.0.0.1:0",
        "log.segment_bytes": "1MiB",
        "log.checkpoint_bytes": "1MiB",
        "log.traffic_retention_bytes": "0",
        "auth.users": f"[{{name='spark', password='{PASSWORD}', tags=['administrator']}}]",
    }
    with Gateway(tmp_path / "gateway", settings=settings) as gateway:
        url = f"penstock://spark@127.0.0.1:{gateway.ports['native']}"
        client = LogClient(with_password(url))
        client.acquire_lease("until it starts", 1, 3600)
        publish(gateway, 0, MESSAGES)
        end = wait_for_end(gateway, 0)
        source = spark.readStream.format("penstock").option("columns", "offset,payload")
        frame = source.options(
            startingOffsets="earliest", maxOffsetsPerTrigger="200", cursor="ml", lease="1h"
        ).load(url)
        seen: list[tuple[int, int]] = []
        run(frame, tmp_path / "checkpoint", seen)
        assert len({batch for batch, _ in seen}) > 1
        assert len(seen) == len({offset for _, offset in seen}) == MESSAGES
        client.release_lease("until it starts")
        (reader,) = client.leases()
        assert reader["name"] == "ml"
        assert 1 < reader["position"] <= end, (
            "of the last micro-batch, the source is not told that it is done"
        )
        # Up to a cursor, and from it on.
        client.acquire_lease("half", sorted(offset for _, offset in seen)[100], 3600)

        def counted(**options: str) -> int:
            reader = spark.read.format("penstock").options(endpoint=url, cursor="other", **options)
            return reader.load(str(gateway.data_dir)).count()

        assert counted(startingOffsets="cursor:half") == MESSAGES - 100
        assert counted(endingOffsets="cursor:half") == 100
        with pytest.raises(Exception, match=r"the gateway's cursors are: half, ml, other"):
            counted(startingOffsets="cursor:none")
        client.release_lease("half")
        client.release_lease("other")
        # Direct reading with a lease beside it; the batch query's own name comes from nowhere.
        local = spark.read.format("penstock").options(endpoint=url, cursor="count")
        assert local.load(str(gateway.data_dir)).where("protocol = 'mqtt'").count() == MESSAGES // 2
        assert [reader["name"] for reader in client.leases()] == ["count", "ml"]
        remote = spark.read.format("penstock").load(url)
        assert remote.count() == MESSAGES
        # The password comes from the environment, and is nowhere to be seen.
        assert "penstock" in remote._jdf.queryExecution().toString()
        assert PASSWORD not in remote._jdf.queryExecution().toString()
        kept = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
        assert PASSWORD.encode() not in b"".join(kept)
        client.close()


def test_workers_import_pyspark_where_it_is_installed(spark: SparkSession) -> None:
    def place(_: object) -> list[str]:
        import pyspark

        return [pyspark.__file__]

    (found,) = spark.sparkContext.parallelize([1], 1).mapPartitions(place).collect()
    assert ".zip" not in found
