"""End to end, with a real data set: clients publish it over MQTT and AMQP, and a stream job writes the tables
while it arrives, whatever is killed or lost meanwhile.

The readings are those of the package vega_datasets (`demo.data`). In the middle the gateway is killed and
started again, and the job is; then the checkpoint's last commit is removed, and then the whole checkpoint. At
the end the tables equal what was published, each row once, for every reader.

`make spark-end-to-end` runs it, with `penstock spark sink` as a process each time. The suite does not: each
process is a JVM.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import paho.mqtt.client as paho
import pika
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from demo.data import Reading, readings
from penstock.spark.tables.table import open_table
from tests.support.brokers import ROOT, Gateway
from tests.support.limits import LIMIT_S
from tests.support.spark_source import wait_for_end
from tests.support.written_tables import count_of, lose_last_commit, rows_of, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG_S = 900.0
"""Far more than anything here takes."""
SMALL_BATCHES = "300000"
"""Bytes of log per micro-batch, so that there are several."""

Row = tuple[str, str, bytes]
"""Protocol, topic or routing key, payload."""


class Publisher:
    """Publishes readings by AMQP and MQTT by turns, and returns when they are confirmed."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.published: Counter[Row] = Counter()

    def publish(self, items: list[Reading]) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.gateway.amqp_port))
        channel = connection.channel()
        channel.tx_select()
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.max_queued_messages_set(0)
        client.connect_timeout = LIMIT_S  # 5 s
        # With it paho would give up a connection that stood still, and send again what was under way.
        client.connect("127.0.0.1", self.gateway.mqtt_port, keepalive=0)
        client.loop_start()
        waiting = []
        for index, reading in enumerate(items):
            if index % 2:
                waiting.append(client.publish(reading.topic, reading.payload, qos=1))
                self.published["mqtt", reading.topic, reading.payload] += 1
            else:
                key = reading.topic.replace("/", ".")
                properties = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("amq.topic", key, reading.payload, properties)
                self.published["amqp091", key, reading.payload] += 1
        channel.tx_commit()
        for info in waiting:
            info.wait_for_publish(LONG_S)
            assert info.is_published()
        client.disconnect()
        client.loop_stop()
        connection.close()


@dataclass
class Job:
    """`penstock spark sink` into one table."""

    gateway: Gateway
    folder: Path
    kind: str
    spark: SparkSession

    @property
    def to(self) -> str:
        return table_at(self.kind, self.folder / self.kind)

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"checkpoint-{self.kind}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.kind}.log"

    @contextmanager
    def program(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """The command in a process group of its own, which is killed at the end."""
        command = [sys.executable, "-m", "penstock", "spark", "sink", "--data", str(self.gateway.data_dir)]
        command += ["--to", self.to, "--checkpoint", str(self.checkpoint), "--max-bytes", SMALL_BATCHES]
        command += ["--cores", "2", "--memory", "512m", *words]
        jobs = {"PENSTOCK_SPARK_JOBS": str(self.folder / "jobs")}
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **jobs},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def wait_for_rows(self, process: subprocess.Popen[bytes], least: int) -> None:
        """Wait until the table has so many; the process must not end meanwhile."""
        deadline = time.monotonic() + LONG_S
        while count_of(self.to) < least:
            assert process.poll() is None, self.log.read_text()[-5000:]
            assert time.monotonic() < deadline, self.log.read_text()[-5000:]
            time.sleep(0.1)

    def catch_up(self, least: int) -> None:
        """Run again, until the table has so many rows, and stop."""
        with self.program("--every", "1s") as process:
            self.wait_for_rows(process, least)
            process.terminate()
            assert process.wait(LONG_S) == 0, self.log.read_text()[-5000:]

    def take_all(self) -> None:
        """Run again until there is nothing more."""
        with self.program("--once") as process:
            assert process.wait(LONG_S) == 0, self.log.read_text()[-5000:]

    def check(self, published: Counter[Row]) -> None:
        """The table equals what was published, for the format's own reader, pyarrow and Spark."""
        files = open_table(self.to).paths()
        by_spark = self.spark.read.option("recursiveFileLookup", "true").parquet(*files).toArrow()
        for found in (rows_of(self.to), ds.dataset(files, format="parquet").to_table(), by_spark):
            assert counted(found) == published
            offsets = found.column("offset").to_pylist()
            assert len(set(offsets)) == len(offsets) == published.total()


def counted(table: pa.Table) -> Counter[Row]:
    names = ("protocol", "routing_key", "payload")
    return Counter(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def run_through(spark: SparkSession, gateway: Gateway, folder: Path, kinds: list[str], count: int) -> None:
    items = readings()[: 6 * count]
    parts = [items[at : at + count] for at in range(0, len(items), count)]
    publisher = Publisher(gateway)
    jobs = [Job(gateway, folder, kind, spark) for kind in kinds]
    with all_of(jobs, "--every", "1s") as processes:
        publisher.publish(parts[0])
        for job, process in processes:
            job.wait_for_rows(process, 1)
        publisher.publish(parts[1])
        gateway.kill9()
        gateway.start()
        publisher.publish(parts[2])
        for job, process in processes:
            job.wait_for_rows(process, 2 * count + 1)
        publisher.publish(parts[3])
        # The jobs are killed, whatever they do.
    end = wait_for_end(gateway, 0)
    for job in jobs:
        job.catch_up(4 * count)
        lose_last_commit(job.checkpoint)
    publisher.publish(parts[4])
    end = wait_for_end(gateway, end)
    for job in jobs:
        job.take_all()
        shutil.rmtree(job.checkpoint)
    publisher.publish(parts[5])
    wait_for_end(gateway, end)
    assert publisher.published.total() == 6 * count
    for job in jobs:
        job.take_all()
        job.check(publisher.published)


@contextmanager
def all_of(jobs: list[Job], *words: str) -> Iterator[list[tuple[Job, subprocess.Popen[bytes]]]]:
    with ExitStack() as stack:
        yield [(job, stack.enter_context(job.program(*words))) for job in jobs]


@pytest.mark.timeout(6 * LONG_S)  # pytest's own limit is twice of what it takes on a machine that is quick
def test_the_tables_equal_all_that_was_published(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    run_through(spark, gateway, tmp_path, ["delta", "iceberg"], 2000)
