"""The effect of settings of Kafka on a lone producer's wait: `python -m bench.kafka_remedies`.

For each of them three brokers are started anew on this machine and warmed up. Then a producer with the
settings of penstock's journal sends lone messages, as in `bench.kafka_latency`. Told are p50, p95, p99 from
when a message was due until its answer, and the CPU of all brokers. On a machine that is busy with other work
the CPU can be compared, and the times cannot.

    as is        Kafka's own settings, heap of its start script (1 GiB, G1)
    again        the same once more: by how much two runs differ
    c1           Java's first compiler alone, so that no thread compiles the same code again later
    serial gc    the garbage collector with one thread
    young gc     the same, with 64 MiB for new objects: collections come often and are short
    parallel gc  the collector with several threads that stops the program
    zgc          the collector that works beside the program
    heap         256 MiB and G1, not 1 GiB
    threads      one network thread and two for requests in each broker, not three and eight
    fetch wait   followers ask again after 50 ms of silence, not 500
    five         five requests in flight, not one
    no nagle     the producer sends small packets at once
    lz4          messages are compressed by the producer
    two copies   a leader and one follower: less than penstock wants
    leader       acks=1, so the followers are not waited for: far less than penstock wants
    synced       flush.messages=1: each broker syncs each message
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

from bench.cpu import cpu_seconds
from bench.kafka import HEAP, VERSION, Kafka, jars
from bench.kafka_latency import lone, make_topic
from bench.report import machine
from tests.support.cluster import start_brokers

RATES = (200, 1000)
COPIES = 3
_SERIAL = ("-XX:+UseSerialGC", "-server")


@dataclass(frozen=True)
class Remedy:
    """Settings that differ from Kafka's own."""

    broker: tuple[str, ...] = ()
    """Lines of the configuration."""
    java: tuple[str, ...] = HEAP
    producer: dict[str, Any] = field(default_factory=dict)
    """As of `lone`."""
    topic: dict[str, str] = field(default_factory=dict)
    copies: int = COPIES


REMEDIES = {
    "as is": Remedy(),
    "again": Remedy(),
    "c1": Remedy(java=(*HEAP, "-XX:TieredStopAtLevel=1")),
    "serial gc": Remedy(java=("-Xms1g", "-Xmx1g", *_SERIAL)),
    "young gc": Remedy(java=("-Xms1g", "-Xmx1g", "-Xmn64m", *_SERIAL)),
    "parallel gc": Remedy(java=("-Xms1g", "-Xmx1g", "-XX:+UseParallelGC", "-server")),
    "zgc": Remedy(java=("-Xms1g", "-Xmx1g", "-XX:+UseZGC", "-server")),
    "heap": Remedy(java=("-Xms256m", "-Xmx256m", *HEAP[2:])),
    "threads": Remedy(broker=("num.network.threads=1", "num.io.threads=2")),
    "fetch wait": Remedy(broker=("replica.fetch.wait.max.ms=50",)),
    "five": Remedy(producer={"max_in_flight_requests_per_connection": 5}),
    "no nagle": Remedy(producer={"socket_nagle_disable": True}),
    "lz4": Remedy(producer={"compression_type": "lz4"}),
    "two copies": Remedy(copies=2),
    "leader": Remedy(producer={"acks": 1, "enable_idempotence": False}),
    "synced": Remedy(topic={"flush.messages": "1"}),
}


def measure(brokers: Sequence[Kafka], remedy: Remedy, options: argparse.Namespace) -> list[str]:
    """The cells of a row, for each rate."""
    make_topic(brokers, "lone", copies=remedy.copies, config=remedy.topic)
    lone(brokers, "lone", options.warm, each_s=1 / max(RATES), **remedy.producer)
    cells = []
    for rate in RATES:
        before = sum(cpu_seconds(broker.pid) for broker in brokers)
        took_s = lone(brokers, "lone", options.seconds, each_s=1 / rate, **remedy.producer).took_s
        used = sum(cpu_seconds(broker.pid) for broker in brokers) - before
        cuts = quantiles(took_s, n=100)
        times = " / ".join(f"{cuts[cut - 1] * 1e3:.2f}" for cut in (50, 95, 99))
        cells.append(f"{times} ms, {used / len(took_s) * 1e6:.0f} us")
    return cells


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(REMEDIES), help="names, separated by commas")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each rate (default 20)")
    parser.add_argument(
        "--warm", type=float, default=45.0, help="seconds of lone messages before (default 45)"
    )
    parser.add_argument("--jars", type=Path, default=Path("build/kafka"))
    parser.add_argument("--data", metavar="DIR", help="where the data goes")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends all that was started
    print(", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in machine().items()))
    columns = " | ".join(f"{rate:,}/s: p50 / p95 / p99, CPU of the brokers per message" for rate in RATES)
    print(f"kafka {VERSION}\n\n| settings | {columns} |\n|---|{'---|' * len(RATES)}", flush=True)
    for name in options.only.split(","):
        remedy = REMEDIES[name]
        with ExitStack() as ends:
            temporary = tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=options.data)
            folder = Path(ends.enter_context(temporary))
            place = jars(options.jars.absolute())
            brokers = start_brokers(ends, folder, place, COPIES, remedy.java, options=remedy.broker)
            print(f"| {name} | {' | '.join(measure(brokers, remedy, options))} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
