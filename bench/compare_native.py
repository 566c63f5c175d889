"""Batches over the native protocol and over Kafka, in one go, on this machine.

    python -m bench.compare_native [--repeat 3] [--warm 1] [--scale 1.0] [--only WORD] [--no-write]

Records of 100 B are produced in batches and read back, records of 1 KiB are read. Batches are of 16 KiB, as
Kafka's clients make them unless they are told otherwise, and of 256 KiB, which spares Kafka's broker most
of what a request costs it. penstock confirms what is on the disk (`acks=fsync`); Kafka, with acks=all on
its one broker, what is in the page cache. "kafka, synced" writes to a topic with `flush.messages=1`, which
promises what penstock does; Kafka cannot sync in groups. penstock's client is `bench.native_client`, which
costs next to nothing, and once more the SDK; Kafka's are its own kafka-producer-perf-test and kafka-
consumer-perf-test. What is produced goes into a topic of its own that was warmed by a tenth of the load;
what is read is filled once, and read by each client in turn. The first `--warm` times are not counted:
Kafka's broker compiles itself while it runs. Medians and the best run of each are told. What is produced is
produced once more at the rate that Kafka had: on a virtual machine new pages of memory may have to be
waited for, and that counts as CPU of who wants many of them at once. Bodies are random letters. CPU is the
broker's, user and system, all threads, from idle to idle again. Records per CPU second depend little on
what else this machine does, records per second do.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from statistics import median

import penstock
from bench import native_client
from bench.beside_kafka import Brokers, command_line, compare
from bench.cpu import cpu_seconds, wait_until_idle
from tests.support.brokers import Broker

LARGE, KAFKAS = 262_144, 16_384
"""Bytes of a batch's bodies; the second is the default of Kafka's `batch.size`."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is measured: `records` of `size` bytes in batches of `batch` bytes, produced or read."""

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


_MANY, _BULK = 1.5e6, 700e6 / 1024
WORKS = (
    Work("produce 100 B, 16 KiB", 100, 3_000_000, KAFKAS, False, _MANY),
    Work("produce 100 B, 256 KiB", 100, 5_000_000, LARGE, False, _MANY),
    Work("consume 100 B, 16 KiB", 100, 10_000_000, KAFKAS, True, _MANY),
    Work("consume 100 B, 256 KiB", 100, 10_000_000, LARGE, True, _MANY),
    Work("read 1 KiB, 16 KiB", 1024, 2_000_000, KAFKAS, True, _BULK),
    Work("read 1 KiB, 256 KiB", 1024, 2_000_000, LARGE, True, _BULK),
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
    "goal",
)
PACED, SYNCED, ACKNOWLEDGED = "penstock, at kafka's rate", "kafka, synced", "penstock, acknowledged"
CLIENTS = ("penstock", ACKNOWLEDGED, "penstock by its SDK", "kafka", PACED, SYNCED)


class Stand:
    """Both brokers, and a topic of each filled with what is read."""

    def __init__(self, brokers: Brokers) -> None:
        self.gateway, self.kafka = brokers.gateway, brokers.kafka
        self._topics = self._runs = 0

    def topic(self) -> str:
        """A name that was not used yet."""
        self._topics += 1
        return f"t{self._topics}"

    def produce(self, client: str, topic: str, records: int, work: Work, rate: float = 0) -> float | None:
        """By the client of that name, at most `rate` per second (0: no limit); the seconds that it says it
        took, if it does."""
        port, batch = self.gateway.ports["native"], work.batch // work.size
        if client in ("kafka", SYNCED):
            return self.kafka.produce(topic, records, work.size, batch_bytes=work.batch)
        if client == "penstock by its SDK":
            asyncio.run(_sdk_produce(port, topic, records, work))
        else:
            native_client.produce(port, topic, records, work.size, batch, acks="fsync", window=64, rate=rate)
        return None

    def run(self, client: str, topic: str, records: int, work: Work, rate: float) -> Figure:
        """One run, measured."""
        self._runs += 1
        broker: Broker = self.kafka if client in ("kafka", SYNCED) else self.gateway
        port = self.gateway.ports["native"]
        wait_until_idle(broker.pid)
        before, began = cpu_seconds(broker.pid), time.perf_counter()
        told: float | None = None
        if not work.reads:
            told = self.produce(client, topic, records, work, rate)
        elif client == "kafka":
            told = self.kafka.consume(topic, records)
        elif client == "penstock by its SDK":
            asyncio.run(_sdk_consume(port, topic, records))
        else:
            subscription = f"s{self._runs}" if client == ACKNOWLEDGED else ""
            native_client.consume(port, topic, records, subscription=subscription)
        # Kafka's tools say how long they were at it: Java's start is not counted.
        seconds = told if told is not None else time.perf_counter() - began
        # What a broker puts off (compressing, merging) belongs to what it was given.
        wait_until_idle(broker.pid, 60)
        return Figure(seconds, cpu_seconds(broker.pid) - before, records, work.size)


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


def measure(stand: Stand, work: Work, repeat: int, warm: int, scale: float) -> dict[str, list[Figure]]:
    """The figures of each client, which take turns."""
    found: dict[str, list[Figure]] = {}
    records = max(int(work.records * scale) // 100_000, 1) * 100_000
    clients = [c for c in CLIENTS if c not in ((PACED, SYNCED) if work.reads else (ACKNOWLEDGED,))]
    rate = 0.0
    topics: dict[str, str] = {}
    if work.reads:
        ours, theirs = stand.topic(), stand.topic()
        stand.produce("penstock", ours, records, work)
        stand.produce("kafka", theirs, records, work)
        topics = {client: theirs if client == "kafka" else ours for client in clients}
    for number in range(repeat + warm):
        for client in clients:
            topic = topics.get(client) or stand.topic()
            if client == SYNCED:
                stand.kafka.create_synced(topic)
            if not work.reads:
                stand.produce(client, topic, max(records // 10, 100_000), work)
            figure = stand.run(client, topic, records, work, rate if client == PACED else 0)
            rate = figure.rate if client == "kafka" else rate
            if number >= warm:
                found.setdefault(client, []).append(figure)
    return found


def table(figures: dict[Work, dict[str, list[Figure]]]) -> list[str]:
    """As markdown; each figure is the median, but for those of the best run: the one with the least CPU."""
    lines = [
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "|".join("-" * (len(column) + 2) for column in COLUMNS) + "|",
    ]
    for work, clients in figures.items():
        kafka = median(f.per_cpu for f in clients["kafka"])
        kafkas_best = max(f.per_cpu for f in clients["kafka"])
        for name, runs in clients.items():
            rate, cpu = median(f.rate for f in runs), median(f.per_cpu for f in runs)
            goal = ""
            if name == "penstock":
                goal = f"{work.least:,.0f} records/s: {'reached' if rate >= work.least else 'missed'}"
            cells = [work.name, name, f"{rate:,.0f}", f"{median(f.megabytes for f in runs):,.0f}"]
            best = max(f.per_cpu for f in runs)
            cells += [
                f"{1e6 / cpu:.3f}",
                f"{median(f.cpu_s / f.seconds for f in runs):.2f}",
                f"{1e6 / best:.3f}",
            ]
            cells += [f"{cpu / kafka:.1f}x", f"{best / kafkas_best:.1f}x", goal]
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
        figures: dict[Work, dict[str, list[Figure]]] = {}
        for work in WORKS:
            if options.only in work.name:
                figures[work] = measure(stand, work, options.repeat, options.warm, options.scale)
                print("\n".join(table({work: figures[work]})[2:]), flush=True)
        return brokers.versions, [
            *table(figures),
            "",
            "penstock confirms after fdatasync, Kafka out of the page cache. How it is measured is told in",
            "`bench/compare_native.py`.",
        ]

    return compare(options, "native", "Batches: penstock and Kafka", measured)


if __name__ == "__main__":
    sys.exit(main())
