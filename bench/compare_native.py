"""Batches over the native protocol and over Kafka, in one go, on this machine.

    python -m bench.compare_native [--repeat 3] [--warm 1] [--scale 1.0] [--only WORD] [--no-write]

Records of 100 B are produced in batches and read back, records of 1 KiB are read. Batches are of 16 KiB, as
Kafka's clients make them unless they are told otherwise, and of 256 KiB, which spares Kafka's broker most
of what a request costs it. penstock's client is `bench.native_client`, which costs next to nothing, and
once more the SDK; Kafka's are its own kafka-producer-perf-test and kafka-consumer-perf-test.

Producing: penstock confirms what is on the disk (`acks=fsync`); Kafka, with acks=all on its one broker, what
is in the page cache. Each is measured with the other's promise, too: "penstock, unsynced" (`acks=written`),
and "kafka, synced", a topic with `flush.messages=1`; Kafka cannot sync in groups. "same promise" compares
those that promise the same. Each goes into a topic of its own that was warmed by a tenth of the load. Before
a run the bench sees to it that there is free memory that the host of a virtual machine need not be asked for
(`bench/pages.py`).

Reading: a topic is filled once, and read by each client in turn. The data is in the page cache: the
bench reads the files of either broker right before a run; in the rows "from the disk" it has the system
forget them.

Both are measured once more at the rate that Kafka had: who is faster wakes the other side more often.

The first `--warm` times are not counted: Kafka's broker compiles itself while it runs. Medians and the best
run of each are told. Bodies are random letters. CPU is the broker's, user and system, all threads, from idle
to idle again. Records per CPU second depend little on what else this machine does, records per second do.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import penstock
from bench import native_client, pages
from bench.beside_kafka import Brokers, command_line, compare
from bench.cpu import cpu_seconds, wait_until_idle
from tests.support.brokers import Broker

LARGE, KAFKAS = 262_144, 16_384
"""Bytes of a batch's bodies; the second is the default of Kafka's `batch.size`."""


@dataclass(frozen=True, slots=True)
class Work:
    """One measurement: `records` of `size` bytes in batches of `batch` bytes, produced or read."""

    name: str
    size: int
    records: int
    batch: int
    reads: bool
    least: float
    """Records per second that penstock is to reach."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One run."""

    seconds: float
    cpu_s: float
    records: int
    size: int

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def megabytes(self) -> float:
        """Payload per second, in 10^6 bytes."""
        return self.rate * self.size / 1e6

    @property
    def per_cpu(self) -> float:
        """Records per second of the broker's CPU."""
        return self.records / max(self.cpu_s, 0.01)


_SPARE_BYTES = 1 << 30
_MANY, _BULK = 1.5e6, 700e6 / 1024
WORKS = (
    Work("produce 100 B, 16 KiB", 100, 3_000_000, KAFKAS, False, _MANY),
    Work("produce 100 B, 256 KiB", 100, 5_000_000, LARGE, False, _MANY),
    Work("consume 100 B, 16 KiB", 100, 10_000_000, KAFKAS, True, _MANY),
    Work("consume 100 B, 256 KiB", 100, 10_000_000, LARGE, True, _MANY),
    Work("read 1 KiB, 16 KiB", 1024, 2_000_000, KAFKAS, True, _BULK),
    Work("read 1 KiB, 256 KiB", 1024, 2_000_000, LARGE, True, _BULK),
)


@dataclass(frozen=True, slots=True)
class Client:
    """The client that produces or reads, and its settings."""

    name: str
    peer: str = "kafka"
    """The client of Kafka's that promises the same."""
    kafka: bool = False
    sdk: bool = False
    synced: bool = True
    """Confirmed when it is on the disk."""
    paced: bool = False
    """At the rate that Kafka had."""
    acknowledges: bool = False
    cold: bool = False
    """The records are read from the disk, not from the page cache."""


_SYNCED, _COLD = "kafka, synced", "kafka, from the disk"
PRODUCERS = (
    Client("penstock", _SYNCED),
    Client("penstock, unsynced", synced=False),
    Client("penstock by its SDK", _SYNCED, sdk=True),
    Client("kafka", kafka=True, synced=False),
    Client("penstock, at kafka's rate", _SYNCED, paced=True),
    Client("penstock, unsynced, at kafka's rate", synced=False, paced=True),
    Client(_SYNCED, _SYNCED, kafka=True),
)
READERS = (
    Client("penstock"),
    Client("penstock, acknowledged", acknowledges=True),
    Client("penstock by its SDK", sdk=True),
    Client("kafka", kafka=True),
    Client("penstock, at kafka's rate", paced=True),
    Client("penstock, from the disk", _COLD, cold=True),
    Client(_COLD, _COLD, kafka=True, cold=True),
)

COLUMNS = (
    "work",
    "client",
    "records/s",
    "MB/s",
    "broker CPU us/record",
    "cores",
    "best",
    "per CPU second, to Kafka",
    "best to best",
    "same promise",
    "goal",
)


class Stand:
    """Both brokers, and a topic of each filled with what is read."""

    def __init__(self, brokers: Brokers) -> None:
        self.gateway, self.kafka = brokers.gateway, brokers.kafka
        self._topics = self._runs = 0

    def topic(self) -> str:
        """A name that was not used yet."""
        self._topics += 1
        return f"t{self._topics}"

    def broker(self, client: Client) -> Broker:
        """Whom it uses."""
        return self.kafka if client.kafka else self.gateway

    def spare(self) -> None:
        """Have memory that either broker may write to."""
        pages.have_free(self.gateway.folder, _SPARE_BYTES)

    def fill(self, client: Client, topic: str, records: int, work: Work) -> list[Path]:
        """Produce what is read; the files that have it."""
        began = time.time()
        self.produce(client, topic, records, work)
        return pages.written_since(self.broker(client).data_dir, began)

    def produce(self, client: Client, topic: str, records: int, work: Work, rate: float = 0) -> float | None:
        """At most `rate` per second (0: no limit); the seconds that the client says it took, if it does."""
        port, batch = self.gateway.ports["native"], work.batch // work.size
        if client.kafka:
            return self.kafka.produce(topic, records, work.size, batch_bytes=work.batch)
        if client.sdk:
            asyncio.run(_sdk_produce(port, topic, records, work))
        else:
            acks = "fsync" if client.synced else "written"
            native_client.produce(port, topic, records, work.size, batch, acks=acks, window=64, rate=rate)
        return None

    def consume(self, client: Client, topic: str, records: int, rate: float = 0) -> float | None:
        """From the beginning, at most `rate` per second (0: no limit); the seconds that the client says it
        took, if it does."""
        port = self.gateway.ports["native"]
        if client.kafka:
            return self.kafka.consume(topic, records)
        if client.sdk:
            asyncio.run(_sdk_consume(port, topic, records))
        else:
            self._runs += 1
            subscription = f"s{self._runs}" if client.acknowledges else ""
            native_client.consume(port, topic, records, subscription=subscription, rate=rate)
        return None

    def run(self, client: Client, topic: str, records: int, work: Work, rate: float) -> Figure:
        """One run, measured."""
        pid = self.broker(client).pid
        wait_until_idle(pid)
        before, began = cpu_seconds(pid), time.perf_counter()
        paced = rate if client.paced else 0
        if work.reads:
            told = self.consume(client, topic, records, paced)
        else:
            told = self.produce(client, topic, records, work, paced)
        # Kafka's tools say how long they were at it: Java's start is not counted.
        seconds = told if told is not None else time.perf_counter() - began
        # Work that a broker puts off (compressing, merging) belongs to what it was given.
        wait_until_idle(pid, 60)
        return Figure(seconds, cpu_seconds(pid) - before, records, work.size)


async def _sdk_produce(port: int, topic: str, records: int, work: Work) -> None:
    bodies = native_client.letters(work.size, 50_000)
    async with (
        penstock.connect(f"penstock://127.0.0.1:{port}") as client,
        client.producer(topic, batch_bytes=work.batch) as producer,
    ):
        for _ in range(records // len(bodies)):
            await producer.send_many(bodies)


async def _sdk_consume(port: int, topic: str, records: int) -> None:
    async with (
        penstock.connect(f"penstock://127.0.0.1:{port}") as client,
        client.reader(topic, start="earliest", prefetch=50_000) as reader,
    ):
        got = 0
        while got < records:
            got += len(await reader.receive_many(10_000))


def measure(stand: Stand, work: Work, repeat: int, warm: int, scale: float) -> dict[Client, list[Figure]]:
    """The figures of each client, which take turns."""
    found: dict[Client, list[Figure]] = {}
    records = max(int(work.records * scale) // 100_000, 1) * 100_000
    times = repeat + warm
    for client, figure in (
        _read(stand, work, records, times) if work.reads else _produce(stand, work, records, times)
    ):
        found.setdefault(client, []).append(figure)
    return {client: figures[warm:] for client, figures in found.items()}


def _read(stand: Stand, work: Work, records: int, times: int) -> Iterator[tuple[Client, Figure]]:
    ours, theirs = stand.topic(), stand.topic()
    files = stand.fill(Client("penstock"), ours, records, work)
    kafkas = stand.fill(Client("kafka", kafka=True), theirs, records, work)
    rate = 0.0
    # From the disk at the end: what was read ahead for that lies in the page cache in smaller pieces.
    for cold in (False, True):
        for client in [client for _ in range(times) for client in READERS if client.cold is cold]:
            read = kafkas if client.kafka else files
            if cold:
                pages.drop(read)
            else:
                pages.bring(read)
            stand.spare()
            figure = stand.run(client, theirs if client.kafka else ours, records, work, rate)
            if client.name == "kafka":
                rate = figure.rate
            yield client, figure


def _produce(stand: Stand, work: Work, records: int, times: int) -> Iterator[tuple[Client, Figure]]:
    rate = 0.0
    for _ in range(times):
        for client in PRODUCERS:
            topic, began = stand.topic(), time.time()
            if client.kafka and client.synced:
                stand.kafka.create_synced(topic)
            stand.produce(client, topic, max(records // 10, 100_000), work)
            stand.spare()
            figure = stand.run(client, topic, records, work, rate)
            if client.name == "kafka":
                rate = figure.rate
            # Nobody reads it: its memory is there for the next run.
            pages.drop(pages.written_since(stand.broker(client).data_dir, began))
            yield client, figure


def table(figures: dict[Work, dict[Client, list[Figure]]]) -> list[str]:
    """As markdown; each figure is the median, but for those of the best run: the one with the least CPU."""
    lines = [
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "|".join("-" * (len(column) + 2) for column in COLUMNS) + "|",
    ]
    for work, clients in figures.items():
        medians = {client.name: median(f.per_cpu for f in runs) for client, runs in clients.items()}
        bests = {client.name: max(f.per_cpu for f in runs) for client, runs in clients.items()}
        for client, runs in clients.items():
            name = client.name
            rate, cpu, best = median(f.rate for f in runs), medians[name], bests[name]
            goal = ""
            if name == "penstock":
                goal = f"{work.least:,.0f} records/s: {'reached' if rate >= work.least else 'missed'}"
            cells = [work.name, name, f"{rate:,.0f}", f"{median(f.megabytes for f in runs):,.0f}"]
            cells += [
                f"{1e6 / cpu:.3f}",
                f"{median(f.cpu_s / f.seconds for f in runs):.2f}",
                f"{1e6 / best:.3f}",
            ]
            cells += [f"{cpu / medians['kafka']:.1f}x", f"{best / bests['kafka']:.1f}x"]
            cells += [f"{cpu / medians[client.peer]:.1f}x", goal]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    """Run the command line."""
    parser = command_line("compare_native")
    parser.add_argument("--warm", type=int, default=1, help="runs of each before those that count")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many records")
    options = parser.parse_args()

    def measured(brokers: Brokers) -> tuple[str, list[str]]:
        stand = Stand(brokers)
        figures: dict[Work, dict[Client, list[Figure]]] = {}
        for work in WORKS:
            if options.only in work.name:
                figures[work] = measure(stand, work, options.repeat, options.warm, options.scale)
                print("\n".join(table({work: figures[work]})[2:]), flush=True)
        return brokers.versions, [
            *table(figures),
            "",
            "How it is measured, and what the columns are, is told in `bench/compare_native.py`.",
        ]

    return compare(options, "native", "Batches: penstock and Kafka", measured)


if __name__ == "__main__":
    sys.exit(main())
