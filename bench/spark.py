"""The cost of Spark jobs on a gateway's log, and Spark's own readers and Kafka beside it, on this machine.

    python -m bench.spark [--records 2000000] [--size 100] [--only REGEX] [--runs 2] [--no-kafka] [--no-write]
    python -m bench.spark --short    # does every work run? some minutes; its figures say nothing

A gateway takes `--records` messages of 100 B and a fifth as many of 1 KiB, random letters, by the native
protocol; the same messages lie in Parquet and in a topic of Kafka, both filled through penstock's reader.
All works run by turns, once to warm up and then `--runs` times, and the best run of each counts: the JVM
compiles for all of them, so a work that came when the others had had all their runs would be better off.
CPU is that of all processes the work uses together: this one, Spark's JVM and its Python workers, ended ones
too, and apart from them the gateway or Kafka. Rows per CPU-second depend little on what else this machine
does, wall times much.

A stream pays once for its start: the process that plans, Spark's plan, the checkpoint. So its last 1000 rows
are a work of their own, and below the table is what a row costs beyond that.

At the end of a size: how much of a core the gateway uses while Spark reads its files, and while nobody does.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from bench import native_client
from bench.cpu import Meter, cpu_seconds, wait_until_idle
from bench.kafka import Kafka, fetched, jars
from bench.report import machine
from penstock.spark.jobs.replay import send, writing
from penstock.spark.jobs.sink import start_sink
from penstock.spark.logs.log_view import LogView
from penstock.spark.logs.reading import Selection, read_parts
from penstock.spark.logs.tiering import tier
from penstock.spark.publishing._messages import COLUMNS as SENT
from penstock.spark.publishing.direct_copy import send_log
from penstock.spark.running import run_to_end
from penstock.spark.schema import COLUMNS as TRAFFIC
from penstock.spark.session import session
from penstock.spark.tables.table_sink import RangesSource, TableSink
from tests.support.brokers import Broker, BrokerMissing, Gateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("offset", "append_time", "address", "routing_key", "payload")
KAFKA_SOURCE_VERSION = "4.2.0"
"""The newest one that Maven Central has."""
KAFKA_SOURCE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{KAFKA_SOURCE_VERSION}"
KAFKA_PARTS = (
    KAFKA_SOURCE,
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{KAFKA_SOURCE_VERSION}",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""With all that it needs beside Spark, in the versions it names; by itself it asks for a jar of tests, too,
which is not there."""
SIZES = (100, 1024)
WATCHED_S = 10.0
"""How long the gateway is looked at, read and unread."""
REPLAYED = 200_000
"""At most; of few messages, half."""
SHORT_RECORDS = 100_000
SHORT_SEGMENT = "4MiB"
"""So that `tier`, which takes closed segments, has some."""
STARTED = 1000
"""Rows of a stream that is little more than its start."""
STREAMS = ("stream of files", "stream of Kafka")
START = "the start"
_TICK_S = 0.01
"""Of the kernel's account of CPU: a short work may have none."""
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

    @property
    def cpu_per_row(self) -> float:
        """In seconds."""
        return self.cpu_s / self.rows

    def cells(self) -> list[str]:
        """A row of the table."""
        mega = self.rows * self.size / 1e6
        cpu_s = max(self.cpu_s, _TICK_S)
        return [
            self.work,
            f"{self.size} B",
            f"{self.rows / cpu_s / 1000:,.0f}",
            f"{mega / cpu_s:,.0f}",
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
        self,
        folder: Path,
        size: int,
        records: int,
        spark: SparkSession,
        kafka: Kafka | None,
        segment: str = "",
    ) -> None:
        """`segment`: the size of the log's segments; "": the default."""
        self.folder, self.size, self.spark, self.kafka = folder, size, spark, kafka
        settings = {
            "log.fsync": "never",
            "log.traffic_retention_bytes": "1TiB",
            "log.traffic_retention_s": "1000000",
        }
        if segment:
            settings["log.segment_bytes"] = segment
        self.gateway = Gateway(folder / "gateway", settings={"native.listen": "127.0.0.1:0", **settings})
        self.gateway.start()
        # Messages that are sent again go into another gateway, since the works that read come again after it.
        self.other = Gateway(folder / "other", settings=settings)
        self.other.start()
        port = self.gateway.ports["native"]
        batch = 262_144 // size
        self.records = native_client.produce(port, "bench", records, size, batch, acks="written", window=64)
        self.done = self.replayed = 0
        """Messages that the work which runs is about."""
        self.data = self.gateway.data_dir
        self.url = f"penstock://guest:guest@127.0.0.1:{port}"
        view = LogView(self.data)
        view.refresh()
        self.end = view.end(written=True)
        self.parts = view.parts(view.first, self.end, 1 << 62)

    def close(self) -> None:
        """End the gateways and remove everything."""
        self.gateway.close()
        self.other.close()
        shutil.rmtree(self.folder)

    @cached_property
    def parquet(self) -> Path:
        """The five columns, as Spark writes them."""
        path = self.folder / "parquet"
        self.read(str(self.data)).write.parquet(str(path))
        return path

    @cached_property
    def topic(self) -> str:
        """Of Kafka, with the same messages; its server is named by `servers`."""
        name = f"bench{self.size}"
        rows = self.read(str(self.data), columns="payload").selectExpr("payload AS value")
        producer = {"kafka.batch.size": "262144", "kafka.linger.ms": "5", "kafka.buffer.memory": "134217728"}
        rows.write.format("kafka").options(**self.servers, **producer, topic=name).save()
        return name

    @property
    def servers(self) -> dict[str, str]:
        """Where Kafka is."""
        assert self.kafka is not None
        return {"kafka.bootstrap.servers": f"127.0.0.1:{self.kafka.port}"}

    def read(self, source: str, **options: str) -> DataFrame:
        """The five columns, in one go."""
        chosen = {"columns": ",".join(COLUMNS), "isolation": "written", **options}
        return self.spark.read.format("penstock").options(**chosen).load(source)

    def decode(self) -> None:
        """No Spark: what one process makes of the files."""
        found = sum(b.num_rows for b in read_parts(self.data, self.parts, Selection(COLUMNS)))
        assert found == self.records, found

    def count(self) -> None:
        """One column's worth."""
        assert self.read(str(self.data), columns="offset").count() == self.records

    def kafka_read(self) -> DataFrame:
        """Kafka's columns: key, value, topic, partition, offset, timestamp."""
        return self.spark.read.format("kafka").options(subscribe=self.topic, **self.servers).load()

    def kafka_stream(self, rows: int = 0) -> DataFrame:
        """The same, as a stream; the last `rows` of it."""
        start = json.dumps({self.topic: {"0": self.records - rows}}) if rows else "earliest"
        options = {"subscribe": self.topic, "startingOffsets": start, **self.servers}
        return self.spark.readStream.format("kafka").options(**options).load()

    def catch_up(self, frame: DataFrame, rows: int = 0) -> None:
        """A stream of what is there, or of the last `rows`, to nothing."""
        self.done = rows or self.records
        checkpoint = self.fresh("checkpoint")
        query = run_to_end(
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start
        )
        assert sum(p["numInputRows"] for p in query.recentProgress) == self.done

    def kafka_count(self) -> None:
        """As `count`."""
        assert self.kafka_read().count() == self.records

    def stream(self, rows: int = 0) -> DataFrame:
        """The log as a stream; the last `rows` of it."""
        start = str(self.end - rows) if rows else "earliest"
        options = {"columns": ",".join(COLUMNS), "isolation": "written", "startingOffsets": start}
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

    def replay(self, tasks: int = 1, *, by_rows: bool = False) -> None:
        """Some of the messages back into the gateway; `by_rows` of Spark's, as with a condition."""
        end = BEHIND_THE_START + min(REPLAYED, self.records // 2)
        bounds = {"startingOffsets": str(BEHIND_THE_START), "endingOffsets": str(end)}
        url = f"amqp://guest:guest@127.0.0.1:{self.other.amqp_port}/%2F"
        if not self.replayed:  # when it warms up
            self.replayed = self.read(str(self.data), **{**bounds, "columns": "offset"}).count()
        self.done = self.replayed
        name = f"replay-{time.monotonic_ns()}"
        if by_rows:
            frame = self.read(str(self.data), **bounds, columns=",".join(c for c in TRAFFIC if c in SENT))
            send(frame, url, name, exchange="amq.topic", tasks=tasks, of_log=True)
            return
        to = writing(url, name, exchange="amq.topic", routing_key=None, rate=0.0, report="")
        send_log(self.spark, str(self.data), {"isolation": "written", **bounds}, to, tasks)

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
        yield f"{STREAMS[0]}, to nothing", lambda: self.catch_up(self.stream()), gateway
        yield f"{STREAMS[0]}, {START}", lambda: self.catch_up(self.stream(STARTED), STARTED), gateway
        yield "Parquet by Spark, to nothing", lambda: noop(self.spark.read.parquet(str(self.parquet))), None
        yield "the files by binaryFile, to nothing", self.binary_file, None
        if self.kafka is not None:
            yield "Kafka by spark-sql-kafka, to nothing", lambda: noop(self.kafka_read()), self.kafka
            yield "Kafka by spark-sql-kafka, count()", self.kafka_count, self.kafka
            yield f"{STREAMS[1]}, to nothing", lambda: self.catch_up(self.kafka_stream()), self.kafka
            yield (
                f"{STREAMS[1]}, {START}",
                lambda: self.catch_up(self.kafka_stream(STARTED), STARTED),
                self.kafka,
            )
        yield "sink to Delta, all columns", self.sink, gateway
        yield "tier to Parquet, all columns, no Spark", self.tier, gateway
        yield "replay into a gateway by AMQP", self.replay, self.other
        yield "replay with two tasks", lambda: self.replay(2), self.other
        yield "replay of Spark's rows", lambda: self.replay(by_rows=True), self.other

    def binary_file(self) -> None:
        """Spark's reader of whole files: bytes, no rows."""
        noop(self.spark.read.format("binaryFile").load(str(self.data / "shard-000" / "wal")))

    def load_on_the_gateway(self) -> str:
        """Its CPU while its files are read again and again, and while nobody reads."""
        used: list[float] = []
        works: tuple[Callable[[], None], ...] = (
            lambda: noop(self.read(str(self.data))),
            lambda: time.sleep(0.1),
        )
        for work in works:
            wait_until_idle(self.gateway.pid)
            began, before = time.monotonic(), cpu_seconds(self.gateway.pid)
            while time.monotonic() < began + WATCHED_S:
                work()
            used.append((cpu_seconds(self.gateway.pid) - before) / (time.monotonic() - began))
        busy, idle = used
        return (
            f"gateway, % of a core: {busy:.2%} while Spark reads {self.size} B messages, {idle:.2%} while not"
        )

    def measure(self, name: str, run: Callable[[], object], broker: Broker | None) -> Figure:
        """Run a work once; see the module."""
        if broker is not None:
            wait_until_idle(broker.pid)
        others = [b for b in (self.gateway, self.other, self.kafka) if b is not None]
        beside = [cpu_seconds(other.pid) for other in others]
        self.done = self.records
        began = time.monotonic()
        with Meter(os.getpid()) as meter:
            run()
        seconds = time.monotonic() - began
        used = [cpu_seconds(other.pid) - was for other, was in zip(others, beside, strict=True)]
        mine = sum(u for u, other in zip(used, others, strict=True) if other is broker)
        return Figure(name, self.size, self.done, seconds, meter.cpu_s - sum(used), mine)

    def best(self, wanted: re.Pattern[str], runs: int) -> list[Figure]:
        """The best run of each work whose name is wanted, in their order; see the module."""
        works = [work for work in self.works() if wanted.search(work[0])]
        found: dict[str, Figure] = {}
        for turn in range(1 + runs):
            for name, run, broker in works:
                figure = self.measure(name, run, broker)
                run_of = f"{turn}/{runs}" if turn else "warming up"
                print(f"{run_of}: {name}, {self.size} B: {figure.cpu_s:.2f} CPU-seconds", file=sys.stderr)
                if turn and (name not in found or figure.cpu_per_row < found[name].cpu_per_row):
                    found[name] = figure
        return list(found.values())


def noop(frame: DataFrame) -> None:
    """All rows, to nothing."""
    frame.write.format("noop").mode("overwrite").save()


def beyond_the_start(figures: list[Figure]) -> list[str]:
    """Of each stream: what its start costs, and what its other rows do."""
    found = {(figure.work, figure.size): figure for figure in figures}
    lines = []
    for size in SIZES:
        for stream in STREAMS:
            whole, start = (found.get((f"{stream}, {part}", size)) for part in ("to nothing", START))
            if whole is not None and start is not None:
                rows, cpu_s = whole.rows - start.rows, whole.cpu_s - start.cpu_s
                lines.append(
                    f"{stream}, {size} B: {start.cpu_s:.2f} CPU-seconds for its start, beyond it"
                    f" {rows / cpu_s / 1000:,.0f} k rows per CPU-second ({rows * size / cpu_s / 1e6:,.0f} MB)"
                )
    return lines


def table(figures: list[Figure]) -> str:
    """As Markdown."""
    lines = [HEADS, tuple("---" for _ in HEADS), *[figure.cells() for figure in figures]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, help="of the smaller size (default: 2,000,000)")
    parser.add_argument("--short", action="store_true", help="see that all runs; nothing is written")
    parser.add_argument("--size", type=int, choices=SIZES, help="of messages (default: both)")
    parser.add_argument("--only", default=re.compile(""), type=re.compile, metavar="REGEX")
    parser.add_argument("--runs", type=int, help="after one to warm up (default: 2)")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--jars", type=Path, default=Path.home() / ".cache" / "penstock-bench")
    arguments = parser.parse_args()
    short = arguments.short
    most = arguments.records or (SHORT_RECORDS if short else 2_000_000)
    runs = arguments.runs or (1 if short else 2)
    told, figures, loads = machine(), [], []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        kafka, settings = None, {}
        if not arguments.no_kafka:
            try:
                kafka = Kafka(folder / "kafka", jars(arguments.jars))
                place = arguments.jars / f"spark-kafka-{KAFKA_SOURCE_VERSION}"
                fetched(place, KAFKA_PARTS, alone=True)
            except BrokerMissing as error:
                raise SystemExit(f"no Kafka: {error}") from error
            settings["spark.jars"] = ",".join(str(path) for path in place.glob("*.jar"))
            kafka.start()
        spark = session("penstock bench", memory="2g", settings=settings)
        for source in (RangesSource, TableSink):
            spark.dataSource.register(source)
        try:
            for size in SIZES if arguments.size is None else (arguments.size,):
                records = most if size == SIZES[0] else most // 5
                segment = SHORT_SEGMENT if short else ""
                stand = Stand(folder / str(size), size, records, spark, kafka, segment)
                try:
                    figures += stand.best(arguments.only, runs)
                    if arguments.only.search("load"):
                        loads.append(stand.load_on_the_gateway())
                        print(loads[-1], flush=True)
                finally:
                    stand.close()
        finally:
            spark.stop()
            if kafka is not None:
                kafka.close()
    beyond = [] if short else beyond_the_start(figures)  # of so little there is nothing beyond it
    text = "\n\n".join([table(figures), *beyond, *loads])
    print(text)
    if not (arguments.no_write or short):
        import pyspark

        versions = f"penstock {penstock.__version__}, pyspark {pyspark.__version__}, {KAFKA_SOURCE}"
        facts = "; ".join(f"{key} {value}" for key, value in told.items())
        path = RESULTS / f"{datetime.datetime.now(datetime.UTC).date()}-spark.md"
        path.write_text(f"# Spark\n\n`python -m bench.spark`; {versions}; {facts}\n\n{text}\n")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
