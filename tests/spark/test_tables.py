"""Traffic into tables: each message once, over lost commits, lost checkpoints and kills of both sides."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import paho.mqtt.client as paho
import pika
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import DataScan

from demo.data import Reading, readings
from penstock.spark.jobs.sink import start_sink
from penstock.spark.running import run_to_end
from penstock.spark.tables import open_table
from tests.spark.test_source import publish, wait_for_end
from tests.support.brokers import ROOT, Gateway

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
        commits = checkpoint / "commits"
        newest = max(
            (path for path in commits.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name)
        )
        newest.unlink()
        (commits / f".{newest.name}.crc").unlink(missing_ok=True)
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


@contextmanager
def job(
    gateway: Gateway, to: str, checkpoint: Path, log: Path, *words: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`penstock spark sink` in a process group of its own, which is killed at the end."""
    command = [sys.executable, "-m", "penstock", "spark", "sink", "--data", str(gateway.data_dir), "--to", to]
    command += ["--checkpoint", str(checkpoint), "--max-bytes", "300000", *words]
    command += ["--cores", "2", "--memory", "512m"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "src"),
                "PENSTOCK_SPARK_JOBS": str(checkpoint.parent / "jobs"),
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


class Publisher:
    """Publishes readings by AMQP and MQTT by turns; knows which are confirmed."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.confirmed: Counter[bytes] = Counter()

    def publish(self, items: list[Reading]) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.gateway.amqp_port))
        channel = connection.channel()
        channel.tx_select()
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.max_queued_messages_set(0)
        client.connect("127.0.0.1", self.gateway.mqtt_port)
        client.loop_start()
        waiting = []
        for index, reading in enumerate(items):
            if index % 2:
                waiting.append(client.publish(reading.topic, reading.payload, qos=1))
            else:
                key = reading.topic.replace("/", ".")
                channel.basic_publish(
                    "amq.topic", key, reading.payload, pika.BasicProperties(delivery_mode=2)
                )
        channel.tx_commit()
        for info in waiting:
            info.wait_for_publish(300)
            assert info.is_published()
        client.disconnect()
        client.loop_stop()
        connection.close()
        self.confirmed.update(reading.payload for reading in items)


def wait_for_rows(to: str, process: subprocess.Popen[bytes], log: Path, least: int) -> int:
    """Wait until the table has at least so many rows; how many it has."""
    deadline = time.monotonic() + 1800
    while True:
        found = count_of(to)
        if found >= least:
            return found
        assert process.poll() is None, log.read_text()[-5000:]
        assert time.monotonic() < deadline, log.read_text()[-5000:]
        time.sleep(0.1)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_table_has_what_was_published_over_kills_of_gateway_and_job(
    gateway: Gateway, tmp_path: Path, kind: str
) -> None:
    items = readings()[:6000]
    to, checkpoint, log = table_at(kind, tmp_path / "table"), tmp_path / "checkpoint", tmp_path / "job.log"
    publisher = Publisher(gateway)
    with job(gateway, to, checkpoint, log, "--every", "1s") as process:
        publisher.publish(items[:1000])
        wait_for_rows(to, process, log, 1)
        publisher.publish(items[1000:3000])
        gateway.kill9()
        gateway.start()
        publisher.publish(items[3000:4500])
        wait_for_rows(to, process, log, 3001)
    # The job is killed, in whatever it does.
    publisher.publish(items[4500:])
    wait_for_end(gateway, 0)
    with job(gateway, to, checkpoint, log, "--once") as process:
        assert process.wait(1800) == 0, log.read_text()[-5000:]
    table = rows_of(to)
    assert Counter(table.column("payload").to_pylist()) == publisher.confirmed
    offsets = table.column("offset").to_pylist()
    assert len(set(offsets)) == len(offsets) == len(items)
    assert set(table.column("protocol").to_pylist()) == {"amqp091", "mqtt"}
    assert "the table has the log up to" in log.read_text()
