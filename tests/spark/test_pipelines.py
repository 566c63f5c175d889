"""Repetitions dropped, telemetry typed and rolled up, cold segments archived by tasks of Spark."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paho.mqtt import publish as mqtt

from penstock.spark.errors import SparkError
from penstock.spark.jobs.dedup import start_dedup
from penstock.spark.jobs.telemetry import start_telemetry
from penstock.spark.jobs.tier import on_spark
from penstock.spark.logs.tiering import tier
from penstock.spark.running import run_to_end
from penstock.spark.tables.row_sink import start_rows
from penstock.spark.telemetry import OBSERVED, rolled_up, typed
from tests.support.brokers import Gateway
from tests.support.spark_source import payloads, publish, read, wait_for_end
from tests.support.written_tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATER_MS = 1 << 50


def test_of_repeated_messages_the_first_one_is_kept(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    def send(names: list[str | None]) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port))
        channel = connection.channel()
        channel.confirm_delivery()
        for index, name in enumerate(names):
            body = f"{name}-{index}"
            properties = pika.BasicProperties(delivery_mode=2, message_id=name)
            channel.basic_publish("amq.topic", "k", body, properties)
        connection.close()

    to, checkpoint = f"delta:{tmp_path / 'table'}", tmp_path / "checkpoint"

    def run() -> None:
        run_to_end(
            lambda: start_dedup(
                spark,
                gateway.data_dir,
                to,
                checkpoint,
                by=["message_id"],
                within_s=3600.0,
                options={"exchanges": "amq.topic"},
            )
        )

    def kept() -> list[str]:
        rows = rows_of(to).sort_by("offset").column("payload").to_pylist()
        return [body.decode() for body in rows]

    send(["a", "b", "a", None, None, "b"])
    end = wait_for_end(gateway, 0)
    run()
    assert kept() == ["a-0", "b-1", "None-3", "None-4"]
    # The checkpoint holds the remembered keys, so they outlive the end of a run.
    send(["b", "c", "a", "c"])
    wait_for_end(gateway, end)
    run()
    assert kept() == ["a-0", "b-1", "None-3", "None-4", "c-1"]
    with pytest.raises(SparkError, match=r"has rows, and the checkpoint .* knows nothing of them"):
        checkpoint = tmp_path / "another"
        run()


def test_payloads_of_devices_become_typed_rows(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    bodies = [
        json.dumps({"temperature": 20.5, "ok": True}),
        json.dumps({"temperature": 21, "at": int(hour_ago.timestamp() * 1000)}),
        "no JSON",
        json.dumps({"other": 1}),
    ]
    mqtt.multiple(
        [{"topic": "plant/7", "payload": body, "qos": 1} for body in bodies],
        hostname="127.0.0.1",
        port=gateway.mqtt_port,
    )
    publish(gateway, 0, 2)  # other traffic
    wait_for_end(gateway, 0)
    to = f"parquet:{tmp_path / 'table'}"
    query = run_to_end(
        lambda: start_telemetry(
            spark,
            gateway.data_dir,
            to,
            tmp_path / "checkpoint",
            fields={"temperature": "double", "ok": "boolean", "at": "bigint"},
            time_field="at",
            options={"topics": "plant/7"},
        )
    )
    seen = [p["observedMetrics"].get(OBSERVED) for p in query.recentProgress]
    (counts,) = [found for found in seen if found is not None and found["messages"]]
    assert (counts["messages"], counts["unreadable"], counts["late"]) == (4, 1, 1)
    rows = rows_of(to).sort_by("offset").to_pylist()
    assert [(row["temperature"], row["ok"], row["late"]) for row in rows] == [
        (20.5, True, False),
        (21.0, None, True),
        (None, None, False),
    ]
    assert {row["topic"] for row in rows} == {"plant/7"}
    assert rows[0]["event_time"] == rows[0]["append_time"]
    assert abs(rows[1]["event_time"] - hour_ago) < timedelta(milliseconds=2)


def arrivals() -> list[dict[str, Any]]:
    """Two devices for an hour, one of them with a delay now and then; one payload in 40 is more than 10
    minutes late."""
    start = datetime(2026, 5, 1, 12, tzinfo=UTC)
    found = []
    for index in range(720):
        append_time = start + timedelta(seconds=5 * index)
        delay_s = 900 if index % 40 == 39 else 300 if index % 7 == 3 else 0
        value = {"value": float(index % 50), "at": (append_time - timedelta(seconds=delay_s)).isoformat()}
        found.append(
            {
                "offset": index,
                "append_time": append_time,
                "routing_key": f"dev/{index % 2}",
                "payload": json.dumps(value).encode(),
            }
        )
    return found


def expected_windows(rows: list[dict[str, Any]], watermark: datetime) -> dict[tuple[datetime, str], Any]:
    windows: dict[tuple[datetime, str], list[tuple[datetime, int, float]]] = {}
    for row in rows:
        said = json.loads(row["payload"])
        moment = datetime.fromisoformat(said["at"])
        if moment < row["append_time"] - timedelta(minutes=10):
            continue
        begin = moment.replace(second=0)
        windows.setdefault((begin, row["routing_key"]), []).append((moment, row["offset"], said["value"]))
    return {
        key: (len(seen), sum(v for *_, v in seen) / len(seen), min(v for *_, v in seen), max(seen)[2])
        for key, seen in windows.items()
        if key[0] + timedelta(minutes=1) <= watermark
    }


@pytest.mark.parametrize("files_each", [1, 5])
def test_a_roll_up_is_the_same_however_the_stream_is_cut(
    spark: SparkSession, tmp_path: Path, files_each: int
) -> None:
    rows = arrivals()
    schema = pa.schema(
        [
            ("offset", pa.int64()),
            ("append_time", pa.timestamp("us", tz="UTC")),
            ("routing_key", pa.string()),
            ("payload", pa.binary()),
        ]
    )
    source = tmp_path / "source"
    source.mkdir()
    for part in range(5):
        table = pa.Table.from_pylist(rows[part * 144 : part * 144 + 144], schema)
        path = source / f"{part}.parquet"
        pq.write_table(table, path)
        os.utime(path, (part, part))  # Spark takes them by age, and these may be of one millisecond
    fields = {"value": "double", "at": "string"}
    frame = (
        spark.readStream.schema("offset bigint, append_time timestamp, routing_key string, payload binary")
        .option("maxFilesPerTrigger", str(files_each))
        .option("latestFirst", "false")
        .parquet(str(source))
    )
    to = f"delta:{tmp_path / 'table'}"
    groups = rolled_up(typed(frame, fields, lateness_s=600.0, time_field="at"), fields, 60.0, 600.0)
    query = run_to_end(
        lambda: start_rows(groups, to, tmp_path / "checkpoint", moment="window_start", every_s=None)
    )
    progress = list(query.recentProgress)
    seen = [p["observedMetrics"].get(OBSERVED) for p in progress]
    assert sum(found["late"] for found in seen if found is not None) == 720 // 40
    assert sum(state["numRowsDroppedByWatermark"] for p in progress for state in p["stateOperators"]) == 0
    watermark = max(row["append_time"] for row in rows) - timedelta(minutes=10)
    found = {
        (row["window_start"], row["topic"]): (
            row["messages"],
            row["value_avg"],
            row["value_min"],
            row["value_last"],
        )
        for row in rows_of(to).to_pylist()
    }
    wanted = expected_windows(rows, watermark)
    assert len(wanted) > 80
    assert found == {key: pytest.approx(value) for key, value in wanted.items()}


def test_tasks_of_spark_archive_and_a_stream_reads_archive_and_log(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    sent = publish(gateway, 0, 200)
    big = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port))
    channel = big.channel()
    channel.confirm_delivery()
    for _ in range(30):  # segments are 1 MiB
        channel.basic_publish("amq.topic", "big", bytes(100_000), pika.BasicProperties(delivery_mode=2))
    big.close()
    sent += publish(gateway, 200, 50)
    wait_for_end(gateway, 0)
    gateway.terminate()  # closes the last segment, too
    gateway.start()
    sent += publish(gateway, 250, 50)
    wait_for_end(gateway, 0)
    archive = tmp_path / "archive"
    done = list(tier(gateway.data_dir, archive, LATER_MS, on_spark(spark)))
    assert len(done) > 2
    assert sum(commit.rows for commit in done) >= 230
    # The archived segments are gone from the log.
    gateway.terminate()
    for path in sorted((gateway.data_dir / "shard-000" / "wal").glob("*.wal"))[: len(done)]:
        path.unlink()
    options = {"archive": f"parquet:{archive}", "topics": "plant/#", "isolation": "written"}
    assert sorted(payloads(read(spark, gateway, **options))) == sorted(sent)
    stream = spark.readStream.format("penstock").options(
        **options,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="120",
        columns="offset,append_time,payload",
    )
    to = f"parquet:{tmp_path / 'table'}"
    frame = stream.load(str(gateway.data_dir))
    run_to_end(lambda: start_rows(frame, to, tmp_path / "checkpoint", moment="append_time", every_s=None))
    assert sorted(body.decode() for body in rows_of(to).column("payload").to_pylist()) == sorted(sent)
