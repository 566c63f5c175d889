"""What Spark jobs on a gateway's log cost, and Spark's own readers and Kafka beside it, on this machine.

    python -m bench.spark [--records 2000000] [--only WORD] [--no-kafka] [--no-write]

A gateway takes `--records` messages of 100 B and a fifth as many of 1 KiB, random letters, by the native
protocol; the same amounts lie in Parquet (as penstock's reader makes them) and in a topic of Kafka. Each work
runs once to warm up and then twice; the better one counts. CPU is that of all processes the work uses
together: this one, Spark's JVM and its Python workers, ended ones too, and apart from them the gateway or
Kafka. Rows per CPU-second depend little on what else this machine does, wall times much.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from bench import native_client
from bench.cpu import Meter, cpu_seconds, wait_until_idle
from bench.kafka import Kafka, fetched, jars
from bench.report import machine
from penstock.spark.jobs.replay import send
from penstock.spark.jobs.sink import start_sink
from penstock.spark.log_view import LogView
from penstock.spark.reading import Selection, read_places
from penstock.spark.running import run_to_end
from penstock.spark.session import session
from penstock.spark.table_sink import RangesSource, TableSink
from penstock.spark.tiering import tier
from tests.support.brokers import Broker, BrokerMissing, Gateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("offset", "append_time", "address", "routing_key", "payload")
KAFKA_SOURCE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
"""The newest one whose parts Maven Central has all of; its streams do not run on Spark 4.3, batches do."""
KAFKA_JARS = ("commons-pool2", "kafka-clients", "spark-sql-kafka", "spark-token-provider")
SIZES = (100, 1024)
RUNS = 2
REPLAYED = 20_000
BEHIND_THE_START = 1000
"""A position: what a gateway writes when it starts lies before it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """The better of the runs of one work."""

    work: str
    size: int
    rows: int
    seconds: float
    cpu_s: float
    """Of everything but the broker."""
    broker_cpu_s: float

    def cells(self) -> list[str]:
        """A row of the table."""
        mega = self.rows * self.size / 1e6
        return [
            self.work,
            f"{self.size} B",
            f"{self.rows / self.cpu_s / 1000:,.0f}",
            f"{mega / self.cpu_s:,.0f}",
            f"{mega / self.seconds:,.0f}",
            f"{self.broker_cpu_s / self.rows * 1e6:.2f}",
        ]


HEADS = (
    "work",
    "message",
    "k rows per CPU-second",
    "MB per CPU-second",
    "MB/s",
    "broker CPU us/row",
)


class Stand:
    """The messages of one size, wherever they are read from."""

    def __init__(
        self, folder: Path, size: int, records: int, spark: SparkSession, kafka: Kafka | None
    ) -> None:
        self.folder, self.size, self.spark, self.kafka = folder, size, spark, kafka
        retention = {"log.traffic_retention_bytes": "1TiB", "log.traffic_retention_s": "1000000"}
        self.gateway = Gateway(
            folder / "gateway", settings={"native.listen": "127.0.0.1:0", "log.fsync": "never", **retention}
        )
        self.gateway.start()
        port = self.gateway.ports["native"]
        batch = 262_144 // size
        self.records = native_client.produce(port, "bench", records, size, batch, acks="written", window=64)
        self.done = 0
        """Messages that the work which runs is about."""
        self.data = self.gateway.data_dir
        self.url = f"penstock://guest:guest@127.0.0.1:{port}"
        view = LogView(self.data)
        view.refresh()
        self.places = view.places(view.first, view.end(written=True), 1 << 62)
        self.parquet = folder / "parquet"
        own = spark.read.format("penstock").options(isolation="written", columns=",".join(COLUMNS))
        own.load(str(self.data)).write.parquet(str(self.parquet))
        if kafka is not None:
            kafka.produce(self.topic, self.records, size)

    @property
    def topic(self) -> str:
        """Of Kafka."""
        return f"bench{self.size}"

    def read(self, source: str, **options: str) -> DataFrame:
        """The five columns, in one go."""
        chosen = {"columns": ",".join(COLUMNS), "isolation": "written", **options}
        return self.spark.read.format("penstock").options(**chosen).load(source)

    def decode(self) -> None:
        """No Spark: what one process makes of the files."""
        found = sum(b.num_rows for b in read_places(self.data, self.places, Selection(COLUMNS)))
        assert found == self.records, found

    def count(self) -> None:
        """One column's worth."""
        assert self.read(str(self.data), columns="offset").count() == self.records

    def kafka_read(self) -> DataFrame:
        """Kafka's columns: key, value, topic, partition, offset, timestamp."""
        assert self.kafka is not None
        reader = self.spark.read.format("kafka").option("subscribe", self.topic)
        return reader.option("kafka.bootstrap.servers", f"127.0.0.1:{self.kafka.port}").load()

    def catch_up(self, frame: DataFrame) -> None:
        """A stream of what is there, to nothing."""
        checkpoint = self.fresh("checkpoint")
        query = run_to_end(
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start
        )
        assert sum(p["numInputRows"] for p in query.recentProgress) == self.records

    def stream(self) -> DataFrame:
        """The log as a stream."""
        options = {"columns": ",".join(COLUMNS), "isolation": "written", "startingOffsets": "earliest"}
        return self.spark.readStream.format("penstock").options(**options).load(str(self.data))

    def sink(self) -> None:
        """All columns into a Delta table."""
        to, checkpoint = f"delta:{self.fresh('table')}", self.fresh("checkpoint")
        options = {"isolation": "written"}
        run_to_end(lambda: start_sink(self.spark, self.data, to, checkpoint, options=options))

    def tier(self) -> None:
        """All columns of the closed segments into the archive, in this process."""
        done = tier(self.data, self.fresh("archive"), 1 << 50)
        self.done = sum(commit.rows for commit in done)

    def replay(self) -> None:
        """Some of the messages back into the gateway."""
        bounds = {"startingOffsets": str(BEHIND_THE_START), "endingOffsets": str(BEHIND_THE_START + REPLAYED)}
        frame = self.read(str(self.data), **bounds)
        url = f"amqp://guest:guest@127.0.0.1:{self.gateway.amqp_port}/%2F"
        self.done = frame.count()
        send(frame, url, f"replay-{time.monotonic_ns()}", exchange="amq.topic", tasks=1)

    def fresh(self, name: str) -> Path:
        """A folder that is not there."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def works(self) -> Iterator[tuple[str, Callable[[], object], Broker | None]]:
        """Name, what to run, and whose CPU is the broker's."""
        local, gateway = str(self.data), self.gateway
        yield "decode to Arrow, one process, no Spark", self.decode, None
        yield "read files, to nothing", lambda: noop(self.read(local)), gateway
        yield "read files, count()", self.count, gateway
        yield "read over the network, to nothing", lambda: noop(self.read(self.url)), gateway
        yield "stream of files, to nothing", lambda: self.catch_up(self.stream()), gateway
        yield "Parquet by Spark, to nothing", lambda: noop(self.spark.read.parquet(str(self.parquet))), None
        yield "the files by binaryFile, to nothing", self.binary_file, None
        if self.kafka is not None:
            yield "Kafka by spark-sql-kafka, to nothing", lambda: noop(self.kafka_read()), self.kafka
        yield "sink to Delta, all columns", self.sink, gateway
        yield "tier to Parquet, all columns, no Spark", self.tier, gateway
        yield "replay into the gateway by AMQP", self.replay, gateway

    def binary_file(self) -> None:
        """Spark's reader of whole files: bytes, no rows."""
        noop(self.spark.read.format("binaryFile").load(str(self.data / "shard-000" / "wal")))

    def measure(self, name: str, run: Callable[[], object], broker: Broker | None) -> Figure:
        """Run a work; see the module."""
        figures = []
        for _ in range(1 + RUNS):
            if broker is not None:
                wait_until_idle(broker.pid)
            others = [b for b in (self.gateway, self.kafka) if b is not None]
            beside = [cpu_seconds(other.pid) for other in others]
            self.done = self.records
            began = time.monotonic()
            with Meter(os.getpid()) as meter:
                run()
            seconds = time.monotonic() - began
            used = [cpu_seconds(other.pid) - was for other, was in zip(others, beside, strict=True)]
            mine = sum(u for u, other in zip(used, others, strict=True) if other is broker)
            figures.append(Figure(name, self.size, self.done, seconds, meter.cpu_s - sum(used), mine))
        return min(figures[1:], key=lambda figure: figure.cpu_s / figure.rows)


def noop(frame: DataFrame) -> None:
    """All rows, to nothing."""
    frame.write.format("noop").mode("overwrite").save()


def table(figures: list[Figure]) -> str:
    """As Markdown."""
    lines = [HEADS, tuple("---" for _ in HEADS), *[figure.cells() for figure in figures]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--jars", type=Path, default=Path.home() / ".cache" / "penstock-bench")
    arguments = parser.parse_args()
    told, figures = machine(), []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        kafka, settings = None, {}
        if not arguments.no_kafka:
            try:
                kafka = Kafka(folder / "kafka", jars(arguments.jars))
                place = fetched(arguments.jars / "spark-kafka", (KAFKA_SOURCE,))
            except BrokerMissing as error:
                raise SystemExit(f"no Kafka: {error}") from error
            chosen = [str(p) for p in place.glob("*.jar") if p.name.startswith(KAFKA_JARS)]
            settings["spark.jars"] = ",".join(chosen)
            kafka.start()
        spark = session("penstock bench", memory="2g", settings=settings)
        for source in (RangesSource, TableSink):
            spark.dataSource.register(source)
        try:
            for size in SIZES:
                records = arguments.records if size == SIZES[0] else arguments.records // 5
                stand = Stand(folder / str(size), size, records, spark, kafka)
                try:
                    for work, run, broker in stand.works():
                        if arguments.only in work:
                            figures.append(stand.measure(work, run, broker))
                            print("  ".join(figures[-1].cells()), flush=True)
                finally:
                    stand.gateway.close()
                    shutil.rmtree(stand.folder)
        finally:
            spark.stop()
            if kafka is not None:
                kafka.close()
    text = table(figures)
    print(text)
    if not arguments.no_write:
        import pyspark

        versions = f"penstock {penstock.__version__}, pyspark {pyspark.__version__}, {KAFKA_SOURCE}"
        facts = "; ".join(f"{key} {value}" for key, value in told.items())
        path = RESULTS / f"{datetime.datetime.now(datetime.UTC).date()}-spark.md"
        path.write_text(f"# Spark\n\n`python -m bench.spark`; {versions}; {facts}\n\n{text}\n")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
